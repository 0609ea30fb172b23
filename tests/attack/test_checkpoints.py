"""Hostile checkpoints: a fit goes on from its own, or says why not, whatever is in the file."""

import copy
import json
import random
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import carre
from carre.training.checkpoint import Checkpoint, CheckpointError, _digest_all
from tests.attack import bombs
from tests.attack.files import MOST_BYTES
from tests.attack.kit import Verdict, isolated
from tests.attack.questions import QUICK, X

KEY = "carre.checkpoint"
VALUES = (None, True, -1, 10**30, 1.5, "a", [], [1], ["a"], {}, {"a": 1}, float("nan"))


pytestmark = [
    pytest.mark.filterwarnings("ignore:training stopped in its linear phase"),
    pytest.mark.filterwarnings("ignore:the checkpoint was written with torch"),
]


class StopError(Exception):
    """Somebody stops a fit."""


def fit(path):
    return carre.fit(X, **{**QUICK, "max_steps": 6, "bandwidth": 0.3}, checkpoint=str(path))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A checkpoint of a fit that was stopped after four steps: its notes, its tensors, and what the fit comes to."""
    place = tmp_path_factory.mktemp("checkpoint")

    def stop(progress):
        if progress.step == 4:
            raise StopError

    with pytest.raises(StopError):
        carre.fit(X, **{**QUICK, "max_steps": 6, "bandwidth": 0.3}, checkpoint=str(place / "run"), progress=stop)
    content = (place / "run").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    whole = fit(place / "other")
    return json.loads(header["__metadata__"][KEY]), load_file(place / "run"), whole.denoise(X[:4])


def write(path, notes, tensors):
    """Write a checkpoint as who is hostile would: its digest is right."""
    notes = {name: part for name, part in notes.items() if name != "sha256"}
    digest = _digest_all(notes, tensors)
    save_file(tensors, path, metadata={KEY: json.dumps(notes | {"sha256": digest})})


def leaves(value, before=()):
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from leaves(part, (*before, name))
    else:
        yield before


def with_value(notes, path, value):
    found = copy.deepcopy(notes)
    part = found
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return found


def test_every_value_that_a_run_goes_on_from(stopped, ledger, dose, tmp_path):
    """It goes on, to an answer, or says that the file is damaged."""
    notes, tensors, wanted = stopped
    write(tmp_path / "good", notes, tensors)
    assert np.array_equal(fit(tmp_path / "good").denoise(X[:4]), wanted)
    chance = random.Random(0)
    cases = [(f"{path[-1]} = {value!r}", with_value(notes, path, value), tensors)
             for path in leaves({"progress": notes["progress"]}) for value in VALUES]  # fmt: skip
    for name, tensor in tensors.items():
        twice = torch.cat([tensor.reshape(-1), tensor.reshape(-1)])
        cases += [(f"{name}, {kind}", notes, tensors | {name: other}) for kind, other in
                  {"twice": twice, "none": tensor.reshape(-1)[:0].clone(), "gone": None}.items()]  # fmt: skip
    for case, told, held in chance.sample(cases, dose(12, 150)):
        write(tmp_path / "run", told, {name: tensor for name, tensor in held.items() if tensor is not None})
        ledger.ask(case, lambda: judged(tmp_path / "run"), names=("checkpoint",), verdict=lambda found: found)
    ledger.check(least=dose(12, 150))


def test_every_value_that_says_which_run_it_is(stopped, ledger, dose, tmp_path):
    """Another value is another run, or the same: a file that is hostile is refused by a sentence, or is of this run."""
    notes, tensors, _ = stopped
    for path in leaves({name: notes[name] for name in ("format_version", "versions", "facts")}):
        for value in random.Random(0).sample(VALUES, dose(3, len(VALUES))):
            write(tmp_path / "run", with_value(notes, path, value), tensors)
            for what, read in {"read": lambda c: c.read(notes["facts"]), "told": lambda c: c.told("seed")}.items():
                case = f"{'.'.join(path)} = {value!r}, {what}"
                ledger.ask(case, lambda read=read: read(Checkpoint(tmp_path / "run")), names=("checkpoint",))
    ledger.check(least=200)


def judged(path):
    answer = fit(path).denoise(X[:4])
    return Verdict.RIGHT if np.isfinite(answer).all() else Verdict.INFINITE


BOMBS = {
    "6 GB of nothing": bombs.sparse,
    "6 GB after a header": lambda file: bombs.sparse(file, begin=struct.pack("<Q", 2) + b"{}"),
    "a header of 2**63 bytes": lambda file: file.write_bytes(struct.pack("<Q", 2**63) + b"{}"),
    "a header of brackets": lambda file: file.write_bytes(struct.pack("<Q", 10**6) + b"[" * 10**6),
    "a device": bombs.device,
    "a pipe": bombs.pipe,
    "nothing": lambda file: file.write_bytes(b""),
    "a pickle": lambda file: torch.save({"a": 1}, file),
}


def test_files_that_are_no_checkpoints(ledger, tmp_path):
    for number, (case, make) in enumerate(BOMBS.items()):
        file = tmp_path / f"{number}"
        make(file)
        for what, read in {"read": lambda c: c.read({}), "told": lambda c: c.told("seed")}.items():
            outcome = isolated(lambda file=file, read=read: read(Checkpoint(file)), names=("checkpoint",), seconds=6.0)
            ledger.take(f"{case}, {what}", outcome, most_bytes=MOST_BYTES, must_refuse=True)
    ledger.check(least=16)


def test_a_checkpoint_of_somebody_else_is_refused_before_its_tensors_are_read(stopped, tmp_path):
    notes, tensors, _ = stopped
    write(tmp_path / "run", notes | {"facts": notes["facts"] | {"samples": "0" * 64}}, tensors)
    content = (tmp_path / "run").read_bytes()
    (tmp_path / "run").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="the same samples"):
        fit(tmp_path / "run")
