"""Memory is bounded: of a fit over its data, of mapped files, of many fits, and of answers that do not fit.

Counted is anonymous memory (RssAnon) beyond what the process held with its data: pages of a mapped file that the kernel
keeps in memory belong to the file, and give way.
"""

import gc
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import carre
from carre.metric import LowRankMetric
from tests.attack.kit import Verdict, isolated

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
# Of fits and questions on little data what a network and its steps hold is more than the data, and not what is meant.
OPTIONS = {"max_steps": 3, "random_state": 0, "verbose": False, "device": "cpu", "width": 32, "n_blocks": 1}
MOST, MAPPED = 1.3, 0.65


def anonymous():
    """Return the bytes that this process holds beside files."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def growth(call):
    """Return by how much anonymous memory grew at most during a call, and how long it took."""
    start, most, is_done = anonymous(), [0], threading.Event()

    def watch():
        while not is_done.wait(0.002):
            most[0] = max(most[0], anonymous() - start)

    watcher, begin = threading.Thread(target=watch), time.perf_counter()
    watcher.start()
    try:
        call()
    finally:
        is_done.set()
        watcher.join()
    return most[0], time.perf_counter() - begin


def sphere(n, dtype, dim=50):
    """Samples of a noisy sphere, made without a copy."""
    rng = np.random.default_rng(0)
    basis, found = np.linalg.qr(rng.normal(size=(dim, dim)))[0][:3], np.empty((n, dim), dtype)
    for start in range(0, n, 10_000):
        part = rng.normal(size=(min(10_000, n - start), 3))
        part /= np.linalg.norm(part, axis=1, keepdims=True)
        found[start : start + len(part)] = part @ basis + 0.02 * rng.normal(size=(len(part), dim))
    return found


def fit(X, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return carre.fit(X, **OPTIONS, **more)


def peak(samples, **more):
    """Return the growth during a fit over the size of its data; what any fit takes has been taken before."""

    def run():
        X = samples()
        fit(np.array(X[:300]), **more)
        gc.collect()
        return growth(lambda: fit(X, **more))[0] / X.nbytes

    return isolated(run, seconds=240.0)


def taken(ledger, case, outcome, figure, most):
    """Judge a peak, and keep it as a figure."""
    good = outcome.verdict is Verdict.RIGHT
    ledger.measure(figure, outcome.answer if good else 0.0)
    verdict = Verdict.OVERSIZED if good and outcome.answer > most else outcome.verdict
    ledger.note(case, verdict, f"{outcome.said}; {outcome.answer} times the data")


@pytest.mark.slow
def test_a_fit_takes_little_more_than_its_data(ledger, dose, tmp_path):
    n = dose(300_000, 1_000_000)
    for dtype in ("float32", "float64")[: dose(1, 2)]:
        found = peak(lambda dtype=dtype: sphere(n, dtype))
        # The same working memory beside less data; four copies of them would be beyond that.
        taken(ledger, f"{n:,} x 50 in {dtype}", found, "peak over the data", MOST if n == 10**6 else 4.5)
    np.save(tmp_path / "samples.npy", sphere(n, "float64"))
    mapped = peak(lambda: np.load(tmp_path / "samples.npy", mmap_mode="r"))
    taken(ledger, f"{n:,} x 50, mapped", mapped, "mapped: peak over the data", MAPPED if n == 10**6 else 2.2)
    (tmp_path / "samples.npy").unlink()
    ledger.check(least=dose(2, 3))


@pytest.mark.slow
def test_many_fits_leave_nothing(ledger, dose):
    X, count = sphere(200, "float64", dim=3), dose(10, 100)

    def run():
        for _ in range(dose(4, 20)):
            fit(X, noise=0.0)
        gc.collect()
        kept, tensors = anonymous(), sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())
        for _ in range(count):
            fit(X, noise=0.0)
        gc.collect()
        left = sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects()) - tensors
        return (anonymous() - kept) / count / 1e6, left

    outcome = isolated(run, seconds=240.0)
    megabytes, left = outcome.answer or (float("inf"), 1)
    ledger.measure("growth per fit, MB", max(megabytes, 0.0))
    is_kept = left > 0 or megabytes > dose(0.3, 0.06)
    detail = f"{megabytes:.2f} MB, {left} tensors; {outcome.said}"
    ledger.note("fits in a row", Verdict.OVERSIZED if is_kept else outcome.verdict, detail)
    ledger.check()


@pytest.mark.slow
def test_the_dimension_of_a_million_points_takes_seconds(ledger, dose):
    n, threads = dose(20_000, 1_000_000), torch.get_num_threads()
    for dtype in ("float32", "float64")[: dose(1, 2)]:
        X = sphere(n, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            geometry = carre.fit(X[:4000], max_steps=dose(20, 600), random_state=0, verbose=False, device="cpu")
        torch.set_num_threads(2)
        try:
            _, seconds = growth(lambda geometry=geometry, X=X: geometry.dimension(X))
        finally:
            torch.set_num_threads(threads)
        ledger.measure(f"seconds of dimension on {n:,} x 50, {dtype}", seconds)
        ledger.note(f"{n:,} x 50 in {dtype}", Verdict.RIGHT if seconds < dose(20, 80) else Verdict.HUNG, f"{seconds}")
    ledger.check()


def test_few_long_samples_fit_in_their_hull_or_are_refused(ledger, dose):
    wide = np.random.default_rng(0).normal(size=(20, dose(30_000, 100_000))).astype(np.float32)
    ledger.take("in the hull", isolated(lambda: fit(wide).hull_dim, seconds=60.0), most_bytes=1.2e9)
    options = OPTIONS | {"width": 2048, "rank": 128, "reduce": False}
    refused = isolated(lambda: carre.fit(wide, **options), names=("X",), seconds=60.0)
    ledger.take("outside of it", refused, most_bytes=5e8, must_refuse=True)
    ledger.check(least=2)


def test_answers_that_do_not_fit_are_refused_before_they_are_computed(ledger):
    long = LowRankMetric(torch.ones(3, 2, 100_000))
    geometry = fit(sphere(200, "float64", dim=3))
    many = np.zeros((200_000, 3))

    for case, call in {
        "dense": long.dense,
        "numpy.asarray": lambda: np.asarray(long),
        "distances": lambda: geometry.distances(many),
    }.items():
        ledger.take(case, isolated(call, names=("metric", "points")), most_bytes=2e8, must_refuse=True)
    ledger.check(least=3)
