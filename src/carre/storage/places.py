"""Where geometries are: in a folder, among those that ship with the library, or on the Hugging Face hub."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from carre.backend.surroundings import plain_surroundings
from carre.boundary import ArgumentError
from carre.files import AnyPath, needed
from carre.fitting import choose_device
from carre.geometry import Geometry
from carre.storage.folder import CARD, CONFIG, as_path, read, save
from carre.storage.tensors import TENSORS, LoadArgumentError, LoadError

_NAME = r"[\w\-]+[\w.\-]*"


@plain_surroundings()
def load(
    name_or_folder: AnyPath,
    *,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
    verify: bool = True,
    revision: str | None = None,
    token: str | bool | None = None,
) -> Geometry:
    """Load a geometry that `save` wrote, or one that ships with the library. No code is loaded.

    What is neither a folder nor shipped, but could be a name on the Hugging Face hub, is downloaded from there, or
    found in its cache.

    Args:
        name_or_folder: The path of a folder, one of the names of `pretrained_models`, or a name on the hub, as in
            ``"somebody/circle"``. A shipped name means the same in every working directory, and a `pathlib.Path` is
            always a folder: write ``./name`` for a folder of that name.
        device: Where to compute; None takes a GPU if there is one.
        network: The module that the geometry was fitted with, if it was one of your own; it is copied.
        denoiser: The denoiser that the geometry was fitted around, if there was one.
        verify: Whether to check that the tensors are those that were saved, by their SHA-256.
        revision: On the hub, a branch, a tag or a commit.
        token: For the hub, where a geometry is private.

    Raises:
        LoadError: There is no such geometry; a file of it is missing, cut, changed, of another program or from a later
            version; or the weights do not fit the network.

    Example:
        >>> import carre
        >>> carre.load("mnist").sample_shape
        (1, 28, 28)
    """
    place = choose_device(device, torch.empty(0))
    if is_hub_name(name_or_folder) and not os.path.exists(name_or_folder):
        folder = download(str(name_or_folder), revision=revision, token=token)
    else:
        folder = find(name_or_folder)
        if revision is not None:
            raise ArgumentError("revision", "be None for a folder, which holds one version", got=repr(revision))
    return read(folder, device=place, network=network, denoiser=denoiser, verify=verify)


def pretrained_models() -> list[str]:
    """List the names of the geometries that ship with the library, which `load` takes.

    Example:
        >>> pretrained_models()
        ['mnist']
    """
    place = _location()
    return sorted(path.name for path in place.iterdir() if (path / CONFIG).is_file()) if place.is_dir() else []


def find(name_or_folder: AnyPath) -> Path:
    """Return the folder of a geometry: that of a shipped one for its name, else the folder that was given.

    Raises:
        LoadError: There is neither such a name nor such a folder.

    Example:
        >>> find("mnist").name
        'mnist'
    """
    folder = as_path(name_or_folder, "name_or_folder", "a path or a name")
    known = pretrained_models()
    # A path object equals no name.
    if name_or_folder in known:
        return _location() / str(name_or_folder)
    # By os.path, which says no where pathlib raises: to names that are too long.
    if os.path.isdir(folder):
        return folder
    if os.path.isfile(folder):
        must = f"be the folder that holds {CONFIG}; {str(folder)!r} is a file"
        raise LoadArgumentError("name_or_folder", must, remedy=f"Give a folder, such as {str(folder.parent)!r}")
    raise _nowhere(name_or_folder, f"Write {folder.name!r} for the shipped one" if folder.name in known else "")


def is_hub_name(value: Any) -> bool:
    """Say whether something could be a name on the hub: one of a user, and one of a geometry.

    Example:
        >>> is_hub_name("somebody/circle"), is_hub_name("circle"), is_hub_name("./circle"), is_hub_name("a/b/c")
        (True, False, False, False)
    """
    return isinstance(value, str) and re.fullmatch(f"{_NAME}/{_NAME}", value) is not None


def download(name: str, *, revision: str | None, token: str | bool | None) -> Path:
    """Download a geometry from the hub, or find it in the cache; return its folder.

    Raises:
        LoadError: It cannot be had: there is none, or no network and no copy in the cache.
    """
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415
    except ImportError as error:
        remedy = "If that is a name on the Hugging Face hub, install what downloads it: pip install 'carre[hub]'"
        raise _nowhere(name, remedy) from error
    try:
        files = [CONFIG, TENSORS, CARD]
        return Path(snapshot_download(name, allow_patterns=files, revision=revision, token=token))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise LoadError(
            f"{name!r} could not be downloaded from the Hugging Face hub, and is not in its cache: {reason}. Check the "
            "name and the network, or give the path of a folder"
        ) from error


def push_to_hub(
    geometry: Geometry,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    commit_message: str | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    dtype: str | None = None,
    n_landmarks: int | None = None,
    card: str | None = None,
) -> str:
    """Upload a geometry to the Hugging Face hub, from where `load` gets it by its name; return the address.

    What is uploaded is the folder that `save` writes. It contains landmarks, that is some of the samples.

    Args:
        geometry: The geometry, of a learned field.
        repo_id: Its name on the hub, as in ``"somebody/circle"``; without an owner, it becomes your own.
        private: Whether a new repository is private; None takes the owner's default.
        token: Who you are; None takes what ``hf auth login`` has stored.
        commit_message: What the commit says.
        revision: The branch to upload to; None for the main one.
        create_pr: Whether to open a pull request instead.
        dtype: See `save`.
        n_landmarks: See `save`.
        card: See `save`.

    Example:
        >>> import carre
        >>> carre.push_to_hub(carre.load("mnist"), "two words")
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: repo_id must be a name on the hub, like 'somebody/circle'; got 'two words'
    """
    if not isinstance(repo_id, str) or re.fullmatch(f"({_NAME}/)?{_NAME}", repo_id) is None:
        raise ArgumentError("repo_id", "be a name on the hub, like 'somebody/circle'", got=repr(repo_id))
    api = needed("huggingface_hub", "the hub needs huggingface_hub", "hub").HfApi(token=token)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / repo_id.rpartition("/")[2]
        save(geometry, folder, dtype=dtype, n_landmarks=n_landmarks, card=card)
        commit = api.upload_folder(
            repo_id=api.create_repo(repo_id, private=private, exist_ok=True).repo_id,
            folder_path=folder,
            commit_message=commit_message or "A geometry of Carré",
            revision=revision,
            create_pr=create_pr,
        )
    return str(commit.pr_url or commit.commit_url)


def _nowhere(name_or_folder: AnyPath, remedy: str) -> LoadArgumentError:
    """Say that there is neither such a folder nor such a shipped model."""
    shipped = ", ".join(pretrained_models()) or "there are none"
    must = f"be the path of an existing folder, or the name of a shipped model ({shipped})"
    return LoadArgumentError("name_or_folder", must, got=repr(str(name_or_folder)), remedy=remedy)


def _location() -> Path:
    return Path(str(resources.files("carre") / "pretrained"))
