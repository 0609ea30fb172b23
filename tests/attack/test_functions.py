"""Hostile functions: of the wrong signature, that fail, or answer with what is no answer; and the command line."""

import random

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import carre
from carre import toolkit
from carre.cli import app
from tests.attack.calls import FIELDS, TOOLS, world
from tests.attack.kit import Verdict

# The tools that take a function of points, and what they call it.
OF_FUNCTIONS = {
    **{"gradient": "function", "laplacian": "function", "hessian": "function", "divergence": "vector_field"},
    **{"carre_du_champ": "left", "minimize": "function", "gradient_flow": "function"},
}
WRONG = {
    "no arguments": lambda: 0,
    "two arguments": lambda points, other: points,
    "a number": lambda points: 1.0,
    "None": lambda points: None,
    "text": lambda points: "f",
    "an array of texts": lambda points: np.array(["a"] * len(points)),
    "too few": lambda points: points[:1].sum(1)[:0],
    "too many axes": lambda points: points[:, None, None],
    "NaN": lambda points: points.sum(1) * torch.nan,
    "infinite": lambda points: points.sum(1) * torch.inf,
    "complex": lambda points: points.sum(1) * 1j,
    "integers": lambda points: points.sum(1).long(),
    "half": lambda points: points.sum(1).half(),
    "flags": lambda points: points.sum(1) > 0,
    "of another graph": lambda points: torch.ones(len(points), requires_grad=True),
    "detached": lambda points: points.sum(1).detach(),
    "sparse": lambda points: points.sum(1).to_sparse(),
    "meta": lambda points: points.sum(1).to("meta"),
    "not a function": 3.0,
}


class _OwnError(Exception):
    pass


def _raise(points):
    raise _OwnError


def test_functions(ledger):
    """What a function answers is used or refused by a sentence that names it, and what it raises comes through."""
    w = world()
    for name, argument in OF_FUNCTIONS.items():
        tool, good = getattr(toolkit, name), TOOLS[name](w)
        good = {**good, "gradient": None} if "gradient" in good else good
        for label, function in WRONG.items():
            case, given = f"{name}({argument} of {label})", {**good, argument: function}
            ledger.ask(case, lambda tool=tool, given=given: tool(**given), names=(argument,))
        with pytest.raises(_OwnError):
            tool(**{**good, argument: _raise})
        ledger.note(f"{name}({argument} that raises)", Verdict.RIGHT)
    ledger.check(least=len(OF_FUNCTIONS) * len(WRONG))


def test_functions_that_write_into_their_points(ledger):
    """Points that a function changes are not those of the caller, and not those of the answer."""
    w = world()

    def greedy(points):
        answer = points.clone().sum(1)
        points.detach().mul_(2.0)
        return answer

    for name, argument in OF_FUNCTIONS.items():
        tool, good = getattr(toolkit, name), TOOLS[name](w)
        good = {**good, "gradient": None} if "gradient" in good else good
        before = {key: value.copy() for key, value in good.items() if isinstance(value, np.ndarray)}
        function = (lambda points: greedy(points)[:, None] * points) if name == "divergence" else greedy
        ledger.ask(name, lambda tool=tool, given={**good, argument: function}: tool(**given), names=(argument,))
        assert all(np.array_equal(before[key], good[key]) for key in before), name
    ledger.check()


def test_denoisers(ledger):
    """A denoiser that is none is refused when it is asked."""
    w, x = world(), torch.ones(3, 3)
    for label, function in WRONG.items():
        for kind in (carre.ScoreField, carre.SteinField):
            case = f"{kind.__name__}({label})"
            given = {"denoiser": (lambda p, s, f=function: f(p)) if callable(function) else function}
            good = label in ("integers", "half", "flags", "detached")  # one number per point is no point
            call = lambda kind=kind, given=given: kind(**given, dim=3).metric(x, 0.1).trace()  # noqa: E731
            if label in ("no arguments", "two arguments"):
                given = {"denoiser": function} if label == "no arguments" else given
                continue
            ledger.ask(case, call, names=("denoiser",), verdict=lambda answer, good=good: Verdict.WRONG)
    assert FIELDS["ScoreField"](w)
    ledger.check()


HOSTILE = [
    "",
    "nonsense",
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e400",
    "9" * 400,
    "1.5",
    "0x10",
    "\u202e",
    "a/b",
    "1e-300",
]
_GIVEN = {
    "fit": ["points.csv", "--out", "new", "--dry-run"],
    "dimension": ["model", "points.csv"],
    "tangent": ["model", "points.csv", "--out", "new.npy"],
    "denoise": ["model", "points.csv", "--out", "new.csv"],
    "path": ["model", "0", "1", "--data", "points.csv", "--out", "new.csv", "--method", "straight"],
    "gradient": ["model", "points.csv", "--values", "z", "--out", "new.csv"],
    "map": ["model", "points.csv", "--out", "new", "--dry-run"],
    "report": ["model", "points.csv", "--out", "new.html"],
    "info": [],
    "demo": ["circle", "--steps", "1"],
}


@pytest.mark.slow
def test_options_of_the_command_line(ledger, dose, tmp_path, monkeypatch):
    """No option shows a traceback, and what cannot be used ends with 2."""
    monkeypatch.chdir(tmp_path)
    np.savetxt("points.csv", world().X[:20], delimiter=",", header="x,y,z", comments="")
    carre.save(world().geometry, tmp_path / "model")
    commands = typer.main.get_command(app).commands
    assert set(commands) == set(_GIVEN)
    asked = [
        (name, option.opts[-1], value)
        for name, command in commands.items()
        for option in command.params
        if option.opts[-1].startswith("--") and not getattr(option, "is_flag", False)
        for value in HOSTILE
    ]
    for name, option, value in random.Random(0).sample(asked, min(dose(40, 400), len(asked))):
        result = CliRunner().invoke(app, [name, *_GIVEN[name], option, value], standalone_mode=True)
        good = result.exit_code in (0, 2) and "Traceback" not in result.output and not _is_raw(result)
        verdict = Verdict.UNCLEAR if not good else Verdict.RIGHT if result.exit_code == 0 else Verdict.CLEAR
        ledger.note(f"{name} {option}={value[:12]}", verdict, f"{result.exit_code}: {result.output[-200:]}")
    ledger.check(least=40)


def _is_raw(result):
    return result.exception is not None and not isinstance(result.exception, SystemExit)
