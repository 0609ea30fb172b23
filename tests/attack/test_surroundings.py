"""Whatever a process is set to, a fit and its answers are those of a new process, and the process is left as it was."""

import contextlib
import locale
import os
import random
import signal
import sys
import warnings

import matplotlib as mpl
import numpy as np
import pytest
import torch

import carre
from tests.attack.kit import Verdict
from tests.attack.questions import QUESTIONS, QUICK, X, is_same, square, weights_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@contextlib.contextmanager
def set_for_a_while(setter, value, back):
    """Set something of the process, and set it back: what a fit does in between must not need that."""
    setter(value)
    try:
        yield
    finally:
        setter(back)


@contextlib.contextmanager
def _without_streams(closed=False):
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = None
    if closed:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        sys.stdout.close()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def _warnings_as_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def _speak(name):
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, name)


SURROUNDINGS = {
    "nothing": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "float64": lambda: set_for_a_while(torch.set_default_dtype, torch.float64, torch.float32),
    "a default device": lambda: set_for_a_while(torch.set_default_device, "meta", None),
    "a device for a while": lambda: torch.device("meta"),
    "deterministic": lambda: set_for_a_while(torch.use_deterministic_algorithms, True, False),
    "NumPy raises": lambda: np.errstate(all="raise"),
    "warnings as errors": _warnings_as_errors,
    "no streams": _without_streams,
    "closed streams": lambda: _without_streams(closed=True),
    "another folder": lambda: contextlib.chdir("/"),
    "another language": lambda: set_for_a_while(_speak, "de_DE.UTF-8", locale.setlocale(locale.LC_ALL)),
    "no home": lambda: set_for_a_while(lambda home: os.environ.update(HOME=home), "/no/home", os.environ["HOME"]),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
}


def settings_of_the_process():
    """What a call must leave as it is."""
    return {
        "torch's numbers": torch.get_rng_state().numpy().tobytes(),
        "NumPy's numbers": np.random.get_state()[1].tobytes(),
        "Python's numbers": random.getstate(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "errors": np.geterr(),
        "warnings": list(warnings.filters),
        "pictures": dict(mpl.rcParams),
        "folder": os.getcwd(),
        "language": locale.setlocale(locale.LC_ALL),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    }


def ask_in(ledger, case, surroundings, call, is_right):
    """Ask in some surroundings, and compare; a warning that was to be an error is one, and a sentence."""

    def asked():
        with surroundings():
            before = settings_of_the_process()
            try:
                return call(), before == settings_of_the_process()
            except Warning as warning:
                return warning, before == settings_of_the_process()

    def verdict(found):
        answer, is_left_alone = found
        same = isinstance(answer, Warning) or is_right(answer)
        return Verdict.RIGHT if same and is_left_alone else Verdict.WRONG

    ledger.ask(case, asked, verdict=verdict)


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_fits_in_hostile_surroundings(name, plain, ledger, dose):
    def fit():
        return carre.fit(X, **{**QUICK, "verbose": True})

    def is_right(found):
        return weights_of(found) == weights_of(plain[0])

    for seed in range(dose(1, 5)):
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        ask_in(ledger, f"fit in {name}", SURROUNDINGS[name], fit, is_right)
    ledger.check()


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_questions_in_hostile_surroundings(name, plain, ledger, dose):
    geometry, wanted = plain
    # Autocast rounds products in float32 alone.
    for kind in ("array", "tensor")[: dose(1 + (name == "autocast"), 2)]:
        for question, ask in list(QUESTIONS.items())[:: dose(2, 1)]:

            def call(ask=ask, kind=kind):
                # Made there, as people make them.
                given = X if kind == "array" else torch.tensor(X, dtype=torch.float32, device="cpu")
                return ask(geometry, given)

            right = wanted[kind][question]
            ask_in(
                ledger,
                f"{question} of {kind} in {name}",
                SURROUNDINGS[name],
                call,
                lambda found, right=right: is_same(found, right),
            )
    ledger.check()


CALLS = {
    "save": lambda geometry, place: carre.save(geometry, place / "model"),
    "load": lambda geometry, place: carre.load(place / "model"),
    "table": lambda geometry, place: carre.data.write_table(place / "table.csv", {"x": X[:, 0]}),
    "read": lambda geometry, place: carre.data.load_samples(place / "table.csv"),
    "noise": lambda geometry, place: carre.toolkit.estimate_noise(X),
    "carré du champ": lambda geometry, place: carre.learn_carre_du_champ(X, square, max_steps=2, width=8, device="cpu"),
    "program": lambda geometry, place: carre.export(geometry, place / "program.pt2"),
    "report": lambda geometry, place: carre.write_report(geometry, X[:5], place / "page.html", seconds=0.1),
    "picture": lambda geometry, place: carre.plots.plot_spectrum(geometry.eigenvalues(X[:5])),
    "refusal": lambda geometry, place: geometry.denoise("nothing"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nothing", "inference mode", "float64", "a default device", "NumPy raises"])
def test_calls_leave_the_process_as_it_was(name, plain, ledger, dose, tmp_path):
    with mpl.rc_context():
        for call, made in list(CALLS.items())[: dose(6, len(CALLS))]:
            ask_in(ledger, f"{call} in {name}", SURROUNDINGS[name], lambda made=made: made(plain[0], tmp_path), _any)
    ledger.check()


def _any(answer):
    return True
