"""A training run in one file, so that it can go on after an interruption. Tensors and JSON; no code.

The file also says what the run was told, by name: two runs that were told the same are the same run. Ctrl-C waits for
the end of a step, so that what is kept is whole; so do SIGTERM and SIGHUP, where a program takes them for Ctrl-C.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from carre.backend.rows import Rows, in_blocks
from carre.boundary import ArgumentError
from carre.files import beside, check_memory, is_path, reason, write_whole
from carre.matching import BandwidthDistribution
from carre.training.config import TrainingConfig
from carre.training.objective import Objective

# What asks a process to end, where it exists.
STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
FORMAT_VERSION = 1
# The one key of the header's metadata; it also tells our damaged files from those of other programs.
_KEY = "carre.checkpoint"
_HEADER_SIZE_BYTES, _KEY_WITHIN, _LARGEST_HEADER = 8, 256, 2**26
_MOST_NAMED = 3
_REMEDY = "Delete it to start anew, or name another file"
# What comes from the samples may be rounded otherwise by another version of torch.
_TOLERANCE = 1e-6


class CheckpointError(ArgumentError):
    """A checkpoint cannot be written there, or is not one of this run. The message says why, and what to do.

    Example:
        >>> Checkpoint("no/such/folder/run.safetensors")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        carre.training.checkpoint.CheckpointError: checkpoint must lie in a folder that exists; ...
    """


class Checkpoint:
    """The file that a run is kept in while it trains, and goes on from if it is there.

    It is written in one stroke: at every evaluation on the held-out samples, at least about every `every` seconds, and
    when the run is interrupted. Nothing in it is executed when it is read.

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
        if not is_path(path):
            raise CheckpointError("checkpoint", "be the path of a file, or None", got=repr(path))
        place = Path(path).absolute()
        if place.is_dir():
            raise CheckpointError("checkpoint", f"be a file; {str(path)!r} is a folder", remedy="Name a file in it")
        if not place.parent.is_dir():
            must, remedy = "lie in a folder that exists", "Make its folder"
            raise CheckpointError("checkpoint", must, got=repr(str(path)), remedy=remedy)
        self.path, self.facts, self.every = place, dict(facts or {}), every

    def told(self, name: str) -> Any:
        """Return what the run in the file was told, by name, like its ``"seed"``; None where there is no file.

        Example:
            >>> Checkpoint("there is none").told("seed") is None
            True
        """
        return self._notes(self._content()[0])["facts"].get(name) if self.path.exists() else None

    def read(self, facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return the progress and the tensors in the file; None where there is no file.

        Args:
            facts: What the present run was told.

        Raises:
            CheckpointError: The file is damaged, of another program, of a later version, or of another run.
        """
        from safetensors import SafetensorError  # noqa: PLC0415
        from safetensors.torch import load  # noqa: PLC0415

        if not self.path.exists():
            return None
        header, size = self._content()
        notes = self._notes(header)
        # Before anything is read that only the right run needs.
        self._check_run(notes, facts)
        check_memory(2 * size, f"what {self.path} holds", _REMEDY)
        try:
            tensors = load(self.path.read_bytes())
        except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            raise self.damaged(reason(error)) from error
        if notes.pop("sha256", None) != _digest_all(notes, tensors):
            raise self.damaged("its SHA-256 is another one")
        return notes["progress"], tensors

    def write(self, facts: Mapping[str, Any], progress: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Replace the file in one stroke. Where that is impossible (a full disk), warn: training is worth more.

        Args:
            facts: What the run was told, by name; see `fingerprint`.
            progress: Counters and the history, as plain values.
            tensors: Weights, averages, moments of the optimizer, states of the generators, by name.
        """
        from safetensors.torch import save  # noqa: PLC0415

        copies = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
        notes: dict[str, Any] = {"format_version": FORMAT_VERSION, "versions": _versions()}
        notes |= {"facts": facts, "progress": progress}
        notes["sha256"] = _digest_all(notes, copies)
        content = save(copies, metadata={_KEY: json.dumps(notes)})
        try:
            write_whole(self.path, content)
        except OSError as error:
            warnings.warn(f"the checkpoint could not be written ({error}); training goes on", stacklevel=2)

    def remove(self) -> None:
        """Remove the file, and what a killed process left of one that it was writing."""
        for path in (self.path, beside(self.path, "partial")):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                warnings.warn(f"{str(path)!r} could not be removed ({error})", stacklevel=2)

    def _content(self) -> tuple[bytes, int]:
        """Read the beginning of the file, and tell how long it is; a pipe or a device may never end."""
        if not self.path.is_file():
            raise self._refused("be a file", "is a pipe or a device", "Name another file")
        with self.path.open("rb") as stream:
            start = stream.read(_HEADER_SIZE_BYTES)
            length = min(int.from_bytes(start, "little"), _LARGEST_HEADER)
            return start + stream.read(max(length, _KEY_WITHIN)), self.path.stat().st_size

    def _notes(self, content: bytes) -> dict[str, Any]:
        """Read the header; refuse what is no checkpoint that this version can read."""
        size = int.from_bytes(content[:_HEADER_SIZE_BYTES], "little")
        try:
            header = json.loads(content[_HEADER_SIZE_BYTES : _HEADER_SIZE_BYTES + size])
            notes = json.loads(header["__metadata__"][_KEY])
            version = int(notes["format_version"])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            if _KEY.encode() in content[:_KEY_WITHIN] or not content:
                raise self.damaged("it is cut or empty") from error
            why = "is one of something else"
            raise self._refused("be a file that carre wrote", why, "Name another file") from error
        if version > FORMAT_VERSION:
            why = f"is of format {version}, written by carre {notes.get('versions', {}).get('carre')}"
            must, remedy = f"be of format {FORMAT_VERSION} at most", "Upgrade carre, or name another file"
            raise self._refused(must, why, remedy)
        parts = [notes.get(name) for name in ("facts", "progress", "versions")]
        if not all(isinstance(part, dict) for part in parts) or not {"carre", "torch"} <= notes["versions"].keys():
            raise self.damaged("its header lacks something")
        return dict(notes)

    def _check_run(self, notes: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Refuse a run that was told something else, or by another version of carre; another torch only warns."""
        before, now = notes["versions"], _versions()
        # Another version may train in another way: what came out would be neither's. Torch's optimizers and states
        # are the same from version to version, up to rounding.
        if before["carre"] != now["carre"]:
            why = f"is of {before['carre']}, which may train in another way"
            raise self._refused(f"be of carre {now['carre']}", why, f"Go on with that version. {_REMEDY}")
        others = compare(notes["facts"], facts)
        if "samples" in others:
            raise self._refused("be of the same samples", "was written while fitting others")
        if others:
            # Another seed shuffles the samples, and changes what is derived from them.
            told = others.get("seed") or "; ".join(list(others.values())[:_MOST_NAMED])
            raise self._refused("be of the same settings", f"was written with another {told}")
        if before["torch"] != now["torch"]:
            warnings.warn(
                f"the checkpoint was written with torch {before['torch']}, this is {now['torch']}: training goes on, "
                "but not to the same bits",
                stacklevel=2,
            )

    def damaged(self, why: str) -> CheckpointError:
        """Word that the file is not as it was written."""
        return self._refused("be whole", f"is damaged: {why}")

    def _refused(self, must: str, why: str, remedy: str = _REMEDY) -> CheckpointError:
        return CheckpointError("checkpoint", f"{must}; {str(self.path)!r} {why}", remedy=remedy)


def _versions() -> dict[str, str]:
    from carre import __version__  # noqa: PLC0415  (the package is imported after this room)

    return {"carre": __version__, "torch": str(torch.__version__)}


def _digest_all(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Hash all that a file says. Safetensors notices a cut, but not a bit that flipped."""
    # As it will be read: JSON has no tuples.
    said = json.dumps(json.loads(json.dumps(notes)), sort_keys=True)
    return digest(said, *(part for name in sorted(tensors) for part in (name, tensors[name])))


def fingerprint(
    model: nn.Module, bandwidths: BandwidthDistribution, objective: Objective, config: TrainingConfig, device: str
) -> dict[str, Any]:
    """Write down what a run was told, all but the samples, as plain values; refuse what a checkpoint cannot hold.

    The code of a network, a function or a denoiser of the user's own is known by its name only.

    Example:
        >>> from carre.matching import LogUniform
        >>> facts = fingerprint(nn.Linear(2, 3), LogUniform(0.1, 1.0), Objective(), TrainingConfig(seed=7), "cpu")
        >>> facts["bandwidth_range"], facts["seed"]
        ([0.1, 1.0], 7)
    """
    balance, function = objective.balance, objective.function
    settings = dataclasses.asdict(config)
    # Replaying a step or not gives the same numbers; what must be kept free is measured anew.
    del settings["cuda_graph"], settings["reserved"]
    return {
        "bandwidth_law": type(bandwidths).__name__,
        "bandwidth_range": [bandwidths.low, bandwidths.high],
        "ridge": objective.ridge,
        "noise": objective.noise,
        "train_mean": objective.train_mean,
        "centered": objective.centered,
        "weights_of_scales": None if balance is None else balance.between(bandwidths),
        "function": None if function is None else getattr(function, "__qualname__", type(function).__qualname__),
        **settings,
        "device": device,
        "network": _network(model),
    }


def digest(*parts: Tensor | Rows | str) -> str:
    """Hash tensors, with their shapes and dtypes, and words.

    Example:
        >>> digest(torch.zeros(2)) == digest(torch.zeros(2)) != digest(torch.zeros(2, 1))
        True
    """
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode())
            continue
        found.update(f"{part.dtype}{tuple(part.shape)}".encode())
        blocks: Iterable[Tensor] = in_blocks(part) if isinstance(part, Rows) or part.ndim == 2 else [part]
        for some in blocks:
            found.update(some.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Say what differs, by name; numbers may be rounded.

    Example:
        >>> compare({"max_steps": 100, "seed": 0}, {"max_steps": 200, "seed": 0})
        {'max_steps': 'max_steps (100 there, 200 here)'}
    """
    plain = json.loads(json.dumps(dict(now)))
    return {
        name: f"{name} ({before.get(name)} there, {plain.get(name)} here)"
        for name in {**plain, **before}
        if not _agree(before.get(name), plain.get(name))
    }


def _agree(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=_TOLERANCE)
    return bool(one == other)


def state_of(model: nn.Module, purpose: str) -> dict[str, Tensor]:
    """Return the state of a network, which has to consist of tensors."""
    state: dict[str, Tensor] = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            must, got = f"keep nothing but tensors in its state_dict {purpose}", f"{type(value).__name__} in {name!r}"
            remedy = "Keep it in the constructor of the network, or in a buffer"
            raise ArgumentError("network", must, got=got, remedy=remedy)
    return state


def _network(model: nn.Module) -> str:
    """Name a network by the shapes of its weights: their values are in the file."""
    state_of(model, "for a checkpoint")
    found = [(name, *value.shape) for name, value in [*model.named_parameters(), *model.named_buffers()]]
    count = sum(value.numel() for value in model.parameters())
    short = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:8]
    return f"{type(model).__name__} of {count:,} weights ({short})"


class Interruption:
    """Whether somebody has asked to stop."""

    is_asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Remember the first time; raise at once when asked again."""
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True

    def happen(self) -> None:
        """Raise now what was asked for before."""
        if self.is_asked:
            self.is_asked = False
            raise KeyboardInterrupt


@contextmanager
def postponed(*, wanted: bool = True) -> Iterator[Interruption]:
    """Postpone Ctrl-C until the work is at a point where it can go on later; a second Ctrl-C is not postponed.

    Any of `STOPS` is, whose handler is that of Ctrl-C: ``signal.signal(SIGTERM, signal.default_int_handler)``, as the
    command has it. Where Ctrl-C means something else already, and in threads, which never see it, nothing changes.

    Example:
        >>> with postponed() as interruption:
        ...     signal.raise_signal(signal.SIGINT)  # somebody presses Ctrl-C
        ...     try:
        ...         interruption.happen()
        ...     except KeyboardInterrupt:
        ...         print("here")
        here
    """
    interruption = Interruption()
    is_main = threading.current_thread() is threading.main_thread()
    asked = STOPS if wanted and is_main else ()
    handled = [number for number in asked if signal.getsignal(number) is signal.default_int_handler]
    for number in handled:
        signal.signal(number, interruption.ask)
    try:
        yield interruption
    finally:
        for number in handled:
            signal.signal(number, signal.default_int_handler)
    interruption.happen()
