"""Fits and questions beside others: in threads, forks and other processes, in a notebook; they are those made alone."""

import asyncio
import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from torch import nn

import carre
from tests.attack.kit import Verdict, isolated
from tests.attack.questions import QUESTIONS, QUICK, X, is_same, weights_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Forgetful(nn.Module):
    """A network that draws from the global generator while it is trained."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Dropout(0.2), nn.Linear(16, 9))

    def forward(self, points, bandwidth):
        found = self.layers(points)
        return points + bandwidth[:, None] * found[:, :3], found[:, 3:].reshape(-1, 2, 3)


@pytest.fixture(scope="module")
def forgetful():
    torch.manual_seed(0)
    return Forgetful()


@contextlib.contextmanager
def somebody_who_draws():
    """Draw from the global generators all the while, in a thread."""
    done = threading.Event()

    def draw():
        while not done.is_set():
            torch.rand(3), np.random.rand(3), random.random()
            done.wait(1e-4)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_seeded_fits_in_threads_are_those_one_after_the_other(forgetful, ledger, dose):
    kinds = [{"random_state": seed} for seed in range(2)] + [{"random_state": 1, "network": forgetful}] * 2
    wanted = [weights_of(carre.fit(X, **{**QUICK, **kind})) for kind in kinds]
    for attempt in range(dose(2, 25)):
        with ThreadPoolExecutor(2) as threads, somebody_who_draws() if attempt % 2 else contextlib.nullcontext():
            some = kinds[:2] if attempt % 2 else kinds
            fits = [threads.submit(carre.fit, X, **{**QUICK, **kind}) for kind in some]
            for kind, fitted, right in zip(some, fits, wanted, strict=False):
                verdict = lambda answer, right=right: Verdict.RIGHT if weights_of(answer) == right else Verdict.WRONG  # noqa: E731
                ledger.ask(f"{kind} beside another", fitted.result, verdict=verdict)
    ledger.check()


def test_dropout_comes_from_the_seed_and_moves_nobody_elses_numbers(forgetful, ledger, dose):
    settings = {**QUICK, "network": forgetful}
    wanted = weights_of(carre.fit(X, **settings))
    for seed in range(dose(2, 20)):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found = weights_of(carre.fit(X, **settings))
        is_right = found == wanted and torch.equal(before, torch.get_rng_state())
        ledger.note(f"global seed {seed}", Verdict.RIGHT if is_right else Verdict.WRONG)
    assert weights_of(carre.fit(X, **{**settings, "random_state": 1})) != wanted
    ledger.check()


def test_loads_in_threads_leave_random_numbers_alone(plain, ledger, dose, tmp_path):
    carre.save(plain[0], tmp_path / "model")
    before = torch.get_rng_state()
    with ThreadPoolExecutor(4) as threads:
        loads = [threads.submit(carre.load, tmp_path / "model") for _ in range(dose(12, 200))]
    for loaded in loads:
        is_right = weights_of(loaded.result()) == weights_of(plain[0])
        ledger.note("a load beside others", Verdict.RIGHT if is_right else Verdict.WRONG)
    ledger.note("random numbers", Verdict.RIGHT if torch.equal(before, torch.get_rng_state()) else Verdict.WRONG)
    ledger.check()


def test_fits_in_forks_and_in_a_running_loop(plain, ledger, dose):
    def fit():
        return weights_of(carre.fit(X, **QUICK))

    async def in_a_notebook():
        return fit()

    for _ in range(dose(1, 10)):
        outcome = isolated(fit)
        ledger.take("after a fork", outcome, must_refuse=outcome.answer != weights_of(plain[0]))
        found = asyncio.run(in_a_notebook())
        ledger.note("in a running loop", Verdict.RIGHT if found == weights_of(plain[0]) else Verdict.WRONG)
    ledger.check()


def _fit_elsewhere(settings):
    torch.set_num_threads(1)
    return weights_of(carre.fit(X, **settings))


@pytest.mark.slow
def test_fits_in_joblib(plain, ledger, dose):
    # Processes of its own have to import torch first.
    for backend in ("threading", "loky")[: dose(1, 2)]:
        fits = [joblib.delayed(_fit_elsewhere)(QUICK) for _ in range(dose(2, 8))]
        for weights in joblib.Parallel(n_jobs=2, backend=backend)(fits):
            ledger.note(f"by {backend}", Verdict.RIGHT if weights == weights_of(plain[0]) else Verdict.WRONG)
    ledger.check(least=2)


def test_one_geometry_answers_many_threads_at_once(plain, ledger, dose):
    wanted = plain[1]["array"]
    names = [*QUESTIONS][:: dose(2, 1)]
    for _ in range(dose(1, 5)):
        # A new one: what it keeps is made by whoever comes first.
        geometry = carre.fit(X, **QUICK)
        with ThreadPoolExecutor(4) as threads:
            asked = {name: threads.submit(QUESTIONS[name], geometry, X) for name in names + names[::-1]}
            for name, answer in asked.items():
                right = lambda found, name=name: Verdict.RIGHT if is_same(found, wanted[name]) else Verdict.WRONG  # noqa: E731
                ledger.ask(f"{name} beside others", answer.result, verdict=right)
    ledger.check()


@pytest.mark.slow
def test_more_threads_of_torch_change_no_answer_beyond_rounding(plain, ledger):
    torch.set_num_threads(2)
    try:
        geometry = carre.fit(X, **QUICK)
        found = geometry.denoise(X)
    finally:
        torch.set_num_threads(1)
    difference = float(np.abs(found - plain[0].denoise(X)).max())
    ledger.measure("difference with two threads", difference)
    ledger.note("two threads", Verdict.RIGHT if difference < 1e-4 else Verdict.WRONG)
    ledger.check()
