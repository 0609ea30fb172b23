"""Saving and loading as methods: the fitted attributes become a record, and a record fitted attributes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from carre.fields import NeuralField
from carre.fitting import choose_device
from carre.storage import GeometryState, LoadError, export_field, find, load, save
from carre.storage.hub import download, is_hub_name, not_downloaded, save_among_others

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# They are given again at loading: code is not stored, and neither a device nor a file is part of a geometry.
_NOT_STORED = ("device", "denoiser", "checkpoint")

_Geometry = TypeVar("_Geometry", bound="SavingMethods")


class SavingMethods:
    """What `MetricMatching` needs to be kept in a folder, shared, and loaded elsewhere."""

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        dtype: str | None = None,
        n_landmarks: int | None = None,
        card: str | None = None,
        **hub: Any,
    ) -> str | None:
        """Save the fitted geometry in a folder: config.json, model.safetensors and README.md.

        The folder appears when it is complete; a geometry that was saved there before is replaced then. It contains
        landmarks, that is some of the samples.

        Args:
            folder: A new or empty folder, or one that holds a saved geometry and nothing else.
            dtype: ``"float16"`` or ``"bfloat16"`` to store the weights and the landmarks in half the space, rounded to
                11 or 8 binary digits. None stores everything exactly.
            n_landmarks: How many landmarks to store; None for all.
            card: Sections in Markdown to add to README.md; it may begin with a front matter (license, datasets).
            hub: In a class with `huggingface_hub.ModelHubMixin`, what that takes, like ``push_to_hub=True``. Its
                ``config`` and ``model_card_kwargs`` change nothing: both files are those of above.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> from carre import MetricMatching
            >>> circle = np.stack([np.cos(np.arange(100)), np.sin(np.arange(100))], axis=1)
            >>> geometry = MetricMatching(max_steps=20, width=16, bandwidth=0.1, random_state=0).fit(circle)
            >>> with tempfile.TemporaryDirectory() as place:
            ...     geometry.save_pretrained(place + "/circle")
            ...     again = MetricMatching.from_pretrained(place + "/circle", device=geometry.device_)
            >>> bool((again.denoise(circle) == geometry.denoise(circle)).all())
            True
        """
        if hub and not hasattr(super(), "save_pretrained"):
            raise TypeError(f"save_pretrained() got an unexpected keyword argument {next(iter(hub))!r}")
        save(self._state(), folder, dtype=dtype, n_landmarks=n_landmarks, card=card)
        if not hub.pop("push_to_hub", False):
            return None
        name = hub.pop("repo_id", None) or Path(folder).name
        url: str = self.push_to_hub(name, **hub)  # type: ignore[attr-defined]
        return url

    def _state(self) -> GeometryState:
        """Collect what is stored of the fit."""
        check_is_fitted(self, "field_")
        names = [field.name for field in dataclasses.fields(GeometryState) if field.name != "parameters"]
        fitted: dict[str, Any] = {name: getattr(self, f"{name}_", None) for name in names}
        parameters: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        stored = {name: value for name, value in parameters.items() if name not in _NOT_STORED}
        return GeometryState(**fitted, parameters=stored)

    def _save_pretrained(self, save_directory: Path) -> None:
        """Save where `huggingface_hub.ModelHubMixin` says."""
        save_among_others(self._state(), Path(save_directory).resolve())

    @classmethod
    def from_pretrained(
        cls: type[_Geometry],
        name_or_folder: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        network: nn.Module | None = None,
        denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
        verify: bool = True,
        **hub: Any,
    ) -> _Geometry:
        """Load a geometry that `save_pretrained` wrote, or one that ships with the library. No code is loaded.

        Args:
            name_or_folder: The path of a folder, or one of the names of `carre.storage.pretrained_models`.
            device: Where to compute; None takes a GPU if there is one.
            network: The module that the geometry was fitted with, if it was one of your own.
            denoiser: The denoiser that the geometry was fitted around, if there was one.
            verify: Whether to check the SHA-256 of the tensors.
            hub: In a class with `huggingface_hub.ModelHubMixin`, which also takes names on the hub, what that takes,
                like ``revision``.

        Raises:
            LoadError: There is no such geometry, or something is wrong with its files.

        Example:
            >>> from carre import MetricMatching
            >>> MetricMatching.from_pretrained("./nowhere")  # doctest: +ELLIPSIS
            Traceback (most recent call last):
                ...
            carre.storage.errors.LoadError: name_or_folder must be the path of an existing folder, ...
        """
        options: dict[str, Any] = {"device": device, "network": network, "denoiser": denoiser, "verify": verify}
        online: Any = getattr(super(), "from_pretrained", None)
        if hub and online is None:
            raise TypeError(f"from_pretrained() got an unexpected keyword argument {next(iter(hub))!r}")
        place = choose_device(device, torch.empty(0))
        try:
            folder = find(name_or_folder)
        except LoadError:
            if online is None or not is_hub_name(name_or_folder):
                raise
            return cls._ask_mixin(online, str(name_or_folder), options | hub)
        return cls._load(folder, place, **options)

    @classmethod
    def _ask_mixin(cls: type[_Geometry], online: Any, name: str, options: dict[str, Any]) -> _Geometry:
        """Let the mixin find out what the name is; it comes back to `_from_pretrained`."""
        try:
            geometry: _Geometry = online(name, **options)
        except LoadError:
            raise
        except (OSError, ValueError) as error:
            raise not_downloaded(name, error) from error
        return geometry

    @classmethod
    def _from_pretrained(cls: type[_Geometry], *, model_id: str, **options: Any) -> _Geometry:
        """Load what `huggingface_hub.ModelHubMixin` has been asked for: a folder, or a name on the hub."""
        own = {name: options[name] for name in ("network", "denoiser", "verify") if name in options}
        device = options.get("device")
        folder = (
            find(model_id) if not is_hub_name(model_id) or Path(model_id).is_dir() else download(model_id, **options)
        )
        return cls._load(folder, choose_device(device, torch.empty(0)), device=device, **own)

    @classmethod
    def _load(
        cls: type[_Geometry],
        folder: Path,
        place: torch.device,
        *,
        device: str | torch.device | None = None,
        network: nn.Module | None = None,
        denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
        verify: bool = True,
    ) -> _Geometry:
        """Make an estimator of a folder."""
        state = load(folder, network=network, denoiser=denoiser, verify=verify)
        given = {"device": device, "denoiser": denoiser, **({} if network is None else {"network": network})}
        unknown = sorted(state.parameters.keys() - cls().get_params(deep=False).keys())  # type: ignore[attr-defined]
        if unknown:
            raise LoadError(f"config.json has parameters that {cls.__name__} does not know: {unknown}. Upgrade carre")
        geometry = cls(**{**state.parameters, **given})
        for field in dataclasses.fields(state):
            value = getattr(state, field.name)
            # scikit-learn asks whether there is an attribute of the column names, not whether it is None.
            if field.name != "parameters" and not (field.name == "feature_names_in" and value is None):
                setattr(geometry, f"{field.name}_", value)
        geometry.device_ = place  # type: ignore[attr-defined]
        return geometry

    def export(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        kind: str = "metric",
        bandwidth: float | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> ExportedProgram:
        """Export the field as a program of torch's own, which runs where this library is not installed.

        The program maps points, shape (n, D), and σ, shape (n,), to the rows F of G = FᵀF + λI, shape (n, rank, D), or
        to E[X | Y=y], shape (n, D), for any n; of images, points are flat. λ is in its ``state_dict``, as ``ridge``.
        A program is numbers in and numbers out: what a `carre.LowRankMetric` does without forming G has to be done with
        F by hand.

        Args:
            path: A file that ends in ``.pt2``; ``torch.export.load`` reads it.
            kind: ``"metric"`` for F, ``"denoiser"`` for the mean.
            bandwidth: A σ for all points, which the program then no longer asks for.
            dtype: Of the points and of everything inside, ``torch.float32`` or ``torch.float64``.

        Example:
            >>> import numpy as np, torch
            >>> from carre import MetricMatching
            >>> square = np.random.default_rng(0).uniform(size=(100, 2))
            >>> geometry = MetricMatching(max_steps=5, width=16, rank=3, bandwidth=0.1, random_state=0).fit(square)
            >>> denoise = geometry.export(kind="denoiser", bandwidth=0.1).module()
            >>> denoise(torch.zeros(4, 2)).shape
            torch.Size([4, 2])
        """
        check_is_fitted(self, "field_")
        field: NeuralField = self.field_  # type: ignore[attr-defined]
        return export_field(field, path, kind=kind, bandwidth=bandwidth, dtype=dtype)
