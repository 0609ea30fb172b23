"""A training run in one file, so that it can go on after an interruption. Tensors and JSON; no code."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from carre.training.fingerprint import compare, update_digest

FORMAT_VERSION = 1
# The one key of the header's metadata; it also tells our damaged files from those of other programs.
_KEY = "carre.checkpoint"
_HEADER_SIZE_BYTES, _LOOK_AT = 8, 256
_LARGEST_HEADER = 100_000_000
_MOST_NAMED = 3
_REMEDY = "Delete it to start anew, or name another file"


class CheckpointError(ValueError):
    """A checkpoint cannot be written there, or is not one of this run. The message says why, and what to do.

    Example:
        >>> Checkpoint("no/such/folder/run.safetensors")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        carre.training.checkpoint.CheckpointError: checkpoint must lie in a folder that exists; ...
    """


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a run has come to.

    Attributes:
        facts: What the run was told, by name; see `carre.training.fingerprint`.
        progress: Counters and the history, as plain values.
        tensors: Weights, averages, moments of the optimizer, states of the generators, by name.
    """

    facts: dict[str, Any]
    progress: dict[str, Any]
    tensors: dict[str, Tensor]


class Checkpoint:
    """The file that a run is kept in while it trains, and goes on from if it is there.

    It is written in one stroke: at every look at the held-out samples, at least about every `every` seconds, and when
    the run is interrupted. Nothing in it is executed when it is read.

    Args:
        path: The file; its folder has to exist.
        facts: What else has to be the same for a run to go on, by name, as plain values; with ``"samples"`` among
            them, that stands for the samples.
        every: Seconds between two writes, about.

    Example:
        >>> import tempfile
        >>> from carre.matching import LogUniform
        >>> from carre.networks import build_model
        >>> from carre.training import Objective, TrainingConfig, train
        >>> model, samples = build_model(2, 2, width=8, n_blocks=1, spread=1.0), torch.randn(50, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoint = Checkpoint(folder + "/run.safetensors")
        ...     config = TrainingConfig(max_steps=5, batch_size=8)
        ...     history = train(
        ...         model, samples, samples, LogUniform(0.1, 1.0), Objective(), config, checkpoint=checkpoint
        ...     )
        ...     checkpoint.path.exists()  # it is the caller who knows when the file is no longer needed
        ...     checkpoint.remove()
        True
    """

    def __init__(
        self, path: str | os.PathLike[str], facts: Mapping[str, Any] | None = None, *, every: float = 60.0
    ) -> None:
        if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str) or not os.fspath(path):
            raise CheckpointError(f"checkpoint must be the path of a file, or None; got {path!r}")
        place = Path(path).absolute()
        if place.is_dir():
            raise CheckpointError(f"checkpoint must be a file; {str(path)!r} is a folder. Name a file in it")
        if not place.parent.is_dir():
            raise CheckpointError(f"checkpoint must lie in a folder that exists; got {str(path)!r}. Make its folder")
        self.path, self.facts, self.every = place, dict(facts or {}), every

    def seed(self) -> int | None:
        """Return the seed of the run in the file; None where there is no file.

        Example:
            >>> Checkpoint("there is none").seed() is None
            True
        """
        if not self.path.exists():
            return None
        seed: int | None = self._notes(self.path.read_bytes())["facts"].get("seed")
        return seed

    def read(self, facts: Mapping[str, Any]) -> Snapshot | None:
        """Return what is in the file; None where there is no file.

        Args:
            facts: What the present run was told.

        Raises:
            CheckpointError: The file is damaged, of another program, of a later version, or of another run.
        """
        from safetensors import SafetensorError  # noqa: PLC0415
        from safetensors.torch import load  # noqa: PLC0415

        if not self.path.exists():
            return None
        content = self.path.read_bytes()
        notes = self._notes(content)
        try:
            tensors = load(content)
        except SafetensorError as error:
            raise self._damaged(str(error)) from error
        if notes.pop("sha256", None) != _digest(notes, tensors):
            raise self._damaged("its SHA-256 is another one")
        self._check_run(notes, facts)
        return Snapshot(notes["facts"], notes["progress"], tensors)

    def write(self, snapshot: Snapshot) -> None:
        """Replace the file in one stroke. Where that is impossible (a full disk), warn: training is worth more.

        Args:
            snapshot: What to keep.
        """
        from safetensors.torch import save  # noqa: PLC0415

        tensors = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in snapshot.tensors.items()}
        notes: dict[str, Any] = {"format_version": FORMAT_VERSION, "versions": _versions()}
        notes |= {"facts": snapshot.facts, "progress": snapshot.progress}
        notes["sha256"] = _digest(notes, tensors)
        content = save(tensors, metadata={_KEY: json.dumps(notes)})
        partial = self._partial()
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            warnings.warn(f"the checkpoint could not be written ({error}); training goes on", stacklevel=2)
        finally:
            _remove(partial)

    def remove(self) -> None:
        """Remove the file, and what a killed process left of one that it was writing."""
        _remove(self.path)
        _remove(self._partial())

    def _partial(self) -> Path:
        return self.path.with_name(f".{self.path.name}.partial")

    def _notes(self, content: bytes) -> dict[str, Any]:
        """Read the header; refuse what is no checkpoint that this version can read."""
        size = int.from_bytes(content[:_HEADER_SIZE_BYTES], "little")
        is_ours = _KEY.encode() in content[:_LOOK_AT]
        try:
            # A file of something else can announce any size.
            header = json.loads(content[_HEADER_SIZE_BYTES : _HEADER_SIZE_BYTES + min(size, _LARGEST_HEADER)])
            notes = json.loads(header["__metadata__"][_KEY])
            version = int(notes["format_version"])
        except (ValueError, KeyError, TypeError) as error:
            if is_ours or not content:
                raise self._damaged("it is cut or empty") from error
            raise CheckpointError(
                f"checkpoint must be a file that carre wrote; {str(self.path)!r} is one of something else. "
                "Name another file"
            ) from error
        if version > FORMAT_VERSION:
            raise CheckpointError(
                f"checkpoint must be of format {FORMAT_VERSION} at most; {str(self.path)!r} is of format {version}, "
                f"written by carre {notes.get('versions', {}).get('carre')}. Upgrade carre, or name another file"
            )
        if not {"facts", "progress", "versions"} <= notes.keys():
            raise self._damaged("its header lacks something")
        return dict(notes)

    def _check_run(self, notes: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Refuse a run that was told something else, or by another version of carre; another torch only warns."""
        before, now = notes["versions"], _versions()
        # Another version may train in another way: what came out would be neither's. Torch's optimizers and states
        # are the same from version to version, up to rounding.
        if before["carre"] != now["carre"]:
            raise CheckpointError(
                f"checkpoint must be of carre {now['carre']}; {str(self.path)!r} is of {before['carre']}, which may "
                f"train in another way. Go on with that version. {_REMEDY}"
            )
        others = compare(notes["facts"], facts)
        if "samples" in others:
            raise CheckpointError(
                f"checkpoint must be of the same samples; {str(self.path)!r} was written while fitting others. "
                f"{_REMEDY}"
            )
        if others:
            # Another seed shuffles the samples, and changes what is derived from them.
            told = others.get("seed") or "; ".join(list(others.values())[:_MOST_NAMED])
            raise CheckpointError(
                f"checkpoint must be of the same settings; {str(self.path)!r} was written with another {told}. "
                f"{_REMEDY}"
            )
        if before["torch"] != now["torch"]:
            warnings.warn(
                f"the checkpoint was written with torch {before['torch']}, this is {now['torch']}: training goes on, "
                "but not to the same bits",
                stacklevel=2,
            )

    def _damaged(self, why: str) -> CheckpointError:
        return CheckpointError(f"checkpoint must be whole; {str(self.path)!r} is damaged: {why}. {_REMEDY}")


def _versions() -> dict[str, str]:
    from carre import __version__  # noqa: PLC0415  (the package is imported after this room)

    return {"carre": __version__, "torch": str(torch.__version__)}


def _digest(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Hash all that a file says. Safetensors notices a cut, but not a bit that flipped."""
    # As it will be read: JSON has no tuples.
    found = hashlib.sha256(json.dumps(json.loads(json.dumps(notes)), sort_keys=True).encode())
    for name in sorted(tensors):
        found.update(name.encode())
        update_digest(found, tensors[name])
    return found.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Have the new name on the disk, too; only POSIX systems can open a folder."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"{str(path)!r} could not be removed ({error})", stacklevel=3)
