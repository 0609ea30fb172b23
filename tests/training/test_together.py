"""Several processes train one model: one batch in parts, one history, the same weights to the bit."""

import copy
import dataclasses
import math
import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import carre
from carre.backend.processes import ALONE, Together, together
from carre.matching import Perturbation
from carre.training import Checkpoint, Objective, TrainingConfig, train
from carre.training._steps import Stepper
from tests.samples import TINY
from tests.training.processes import finish, start
from tests.training.runs import RANGE, make_model, run, stop_at

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
STEPS, BATCH = 8, 32


def double_circle(n=301):
    angle = torch.linspace(0, 2 * math.pi, n + 1, dtype=torch.float64)[:-1]
    return 2**0.5 * torch.stack([angle.cos(), angle.sin()], 1)


def config(**settings):
    return TrainingConfig(**{"batch_size": BATCH, "n_references": 0, "seed": 5, **settings})


@contextmanager
def in_float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def stepper(everyone):
    """Steps on every second sample. Without vectors to multiply by the Jacobian: steps draw these after the batch."""
    told, generator = config(jacobian_weight=0.0), torch.Generator().manual_seed(everyone.seed(5))
    samples = double_circle()[everyone.rank :: 2]
    return Stepper(make_model().double(), samples, RANGE, Objective(), told, generator, everyone)


def totals_and_weights(made):
    """Take steps; return the numbers that they gave, of losses and norms of all processes, and the weights."""
    totals, update = [], made.weights.update
    made.weights.update = lambda *given: totals.append(update(*given)) or totals[-1]
    for _ in range(STEPS):
        made.step(1e-2)
    return torch.stack(totals), copy.deepcopy(made.model.state_dict())


def steps_of_two(rank, place):
    with in_float64():
        return totals_and_weights(stepper(together()))


def train_uneven(rank, place):
    """One process has 7 rows, the other 150, and another network of somebody's own to begin with."""
    model = make_model(own=True)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.01 * rank)
    samples = double_circle(157).float()
    own = samples[:7] if rank == 0 else samples[7:]
    told = config(max_steps=24, batch_size=15, evaluations=3, n_references=64)
    history = train(model, own, samples[:20], RANGE, Objective(), told)
    return model.state_dict(), dataclasses.asdict(history)


def interrupt_one(rank, place):
    """The second process is interrupted in its seventh step; both stop, and go on as if they had not been."""
    wanted, _ = run(max_steps=20)
    path = os.path.join(place, "run")
    try:
        run(path=path, max_steps=20, callback=stop_at(7) if rank == 1 else None)
        raise AssertionError("nobody was interrupted")
    except KeyboardInterrupt:
        left = Checkpoint(path).told("max_steps"), os.path.exists(path)
    again = []
    resumed, _ = run(path=path, max_steps=20, callback=again.append)
    return left, again[0].step, wanted.state_dict(), resumed.state_dict()


def everything(rank, place):
    """All laws that need nothing but two processes, in one start of them."""
    found = {"steps": steps_of_two(rank, place), "uneven": train_uneven(rank, place)}
    found["interrupted"] = interrupt_one(rank, place)
    found["streamed"] = streamed(rank, place)
    return found | {"fits": fits(rank, place), "refused": refused(rank, place), "error": circle_error()}


def points(n, seed=0):
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle), np.zeros(n)], 1)


def fits(rank, place):
    """The same rows everywhere, and rows of one's own."""
    samples = points(300)
    own = samples[:90] if rank == 0 else samples[90:]
    return [described(carre.fit(given, **TINY, scale=scale)) for given, scale in ((samples, "none"), (own, "robust"))]


def streamed(rank, place):
    """Shards of which each process holds some hundred rows at a time, a part of the half that it reads."""
    folder = Path(place, f"shards{rank}")
    folder.mkdir()
    for i, part in enumerate(np.split(points(8000), 8)):
        np.save(folder / f"{i}.npy", part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("carre.fitting.samples._HELD_BYTES", 8 * 3 * 600)
        return described(carre.fit(folder, **TINY, scale="standardize"))


def described(geometry):
    state = geometry.field.model.state_dict()
    record = geometry.bandwidth, geometry.bandwidth_range, geometry.n_samples, geometry.rank
    return state, record, geometry.landmarks, dataclasses.asdict(geometry.history)


def circle_error(seed=0):
    """Fit a circle; return how far denoised points are from it on average."""
    settings = {**TINY, "max_steps": 300, "width": 32, "batch_size": 64, "random_state": seed, "bandwidth": 0.2}
    geometry = carre.fit(points(1500)[:, :2], **settings)
    noisy = points(400, seed=1)[:, :2] + 0.2 * np.random.default_rng(2).normal(size=(400, 2))
    return float(np.abs(np.linalg.norm(geometry.denoise(noisy), axis=1) - 1).mean())


def refused(rank, place):
    """What is wrong in one process is said in all of them."""
    sentences = []
    wrong = [points(40), np.full((4, 3), np.nan)], [points(40), points(40)[:, :2]]
    for given in wrong:
        with pytest.raises(carre.ArgumentError) as caught:
            carre.fit(given[rank], **TINY)
        sentences.append(str(caught.value))
    with pytest.raises(carre.ArgumentError) as caught:
        carre.fit(points(40), **{**TINY, "batch_size": 8 + rank})
    return [*sentences, str(caught.value)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    place = tmp_path_factory.mktemp("together")
    return finish(start(everything, place), place)


def assert_equal(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_steps_of_two_processes_are_those_of_one_with_both_batches(found):
    """The same numbers are added in another order: float64 keeps fifteen digits of them."""
    with in_float64():
        parts, whole = [stepper(Together(rank, 2)) for rank in range(2)], stepper(ALONE)
        whole.batch = lambda: Perturbation(
            *map(torch.cat, zip(*(part.batch().tensors() for part in parts), strict=True))
        )
        totals, weights = totals_and_weights(whole)
    for rank in range(2):
        torch.testing.assert_close(found[rank]["steps"][0], totals, rtol=1e-10, atol=0)
        torch.testing.assert_close(found[rank]["steps"][1], weights, rtol=1e-8, atol=1e-10)


def test_uneven_shards_of_one_network_end_alike(found):
    """The same weights to the bit, running statistics too, and one history; also seconds are those of the first."""
    (state, history), (twin, record) = (found[rank]["uneven"] for rank in range(2))
    assert_equal(state, twin)
    assert history == record
    assert history["steps"] == 24
    assert len(history["evaluations"]) >= 3


def test_an_interruption_of_one_is_one_of_all_and_the_run_goes_on_to_the_same_bits(found):
    for rank in range(2):
        (max_steps, is_kept), first, wanted, resumed = found[rank]["interrupted"]
        assert is_kept
        assert max_steps == 20
        assert first == 9, "the wish was heard in the step after"
        assert_equal(resumed, wanted)


def test_a_fit_is_the_same_in_both_processes(found):
    for one, other in zip(*(found[rank]["fits"] for rank in range(2)), strict=True):
        assert_equal(one[0], other[0])
        assert one[1] == other[1]
        assert_equal(one[2], other[2])
        assert one[3] == other[3]
        assert one[1][2] == 300, "all rows are counted"


def test_rows_of_several_processes_are_planned_for_as_those_of_one(found):
    """Scales, units and landmarks are those of all rows, whoever has which."""
    alone = carre.fit(points(300), **TINY, scale="robust")
    record, landmarks = found[0]["fits"][1][1:3]
    assert record[1] == pytest.approx(alone.bandwidth_range, rel=0.1)
    rows = (set(map(tuple, part.round(decimals=9).tolist())) for part in (landmarks, alone.landmarks))
    assert len(set.symmetric_difference(*rows)) == 0


def test_shards_that_do_not_fit_are_divided_among_processes(found):
    one, other = (found[rank]["streamed"] for rank in range(2))
    assert_equal(one[0], other[0])
    assert one[1] == other[1]
    assert_equal(one[2], other[2])
    assert one[1][2] == 8000, "each process has read a half"


def test_two_processes_learn_as_much_as_one_from_the_same_total_batch(found):
    """Other noise is drawn, as with another seed, which differ by a tenth and more."""
    alone = [circle_error(seed) for seed in range(2)]
    assert found[0]["error"] == found[1]["error"]
    assert found[0]["error"] < 1.3 * max(alone)


def test_what_is_wrong_in_one_process_is_said_in_all(found):
    assert found[0]["refused"] == found[1]["refused"]
    missing, other_columns, other_settings = found[0]["refused"]
    assert "X must" in missing
    assert other_columns.startswith("X must have the same columns")
    assert other_settings == "the arguments of a fit must be the same in all processes that train together"
