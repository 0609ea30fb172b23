"""A plan says what the fit then does."""

import sys
import time

import pytest
import torch

import carre
from carre.fitting import FitSettings, carry_out, expected_seconds, make_plan, waiting
from carre.fitting._fit import _seconds_beside, _selection

CPU = torch.device("cpu")
QUICK = {"max_steps": 2, "width": 16, "n_blocks": 1, "batch_size": 16}


@pytest.fixture(scope="module")
def samples():
    angle = torch.rand(300, generator=torch.Generator().manual_seed(0)) * 2 * torch.pi
    return torch.stack([angle.cos(), angle.sin(), torch.zeros(300)], 1)


def test_a_plan_is_what_the_fit_does(samples):
    plan = make_plan(samples, FitSettings(**QUICK, bandwidth=0.3), seed=0, device=CPU)
    geometry = carry_out(plan)
    assert plan.rank == geometry.rank
    assert plan.frame.hull_dim == geometry.hull_dim == 2
    assert plan.costs()[0] == sum(weights.numel() for weights in geometry.field.model.parameters())
    assert plan.max_steps == geometry.history.steps
    assert plan.bandwidth_range == geometry.bandwidth_range
    assert plan.network == "residual MLP of width 16"


def test_a_budget_of_time_alone_bounds_no_steps(samples):
    plan = make_plan(samples, FitSettings(max_seconds=5.0), seed=0, device=CPU)
    assert (plan.max_steps, plan.config.max_seconds) == (None, 5.0)


@pytest.fixture
def slow(monkeypatch):
    """Let the choice of a scale take a tenth of a second for each."""
    room = sys.modules[carry_out.__module__]
    choose = room.choose_bandwidth

    def choose_slowly(field, samples, grid, **settings):
        time.sleep(0.1 * len(grid))
        return choose(field, samples, grid, **settings)

    monkeypatch.setattr(room, "choose_bandwidth", choose_slowly)
    return room


def test_a_budget_is_for_all_that_a_fit_does(samples, slow, monkeypatch):
    """What was spent before training is kept free, and what is to be done after it: thirteen scales, and answers."""
    reserved = []
    monkeypatch.setattr(slow, "train", lambda *given, **more: reserved.append(given[5].reserved) or 1 / 0)
    told = {"width": 16, "bandwidth_range": (0.01, 0.64), "max_seconds": 1000.0}
    for answers in (0, 500 * 512):
        start = time.perf_counter()
        with pytest.raises(ZeroDivisionError), waiting(start - 300, answers=answers, seconds=40.0):
            carre.fit(samples.numpy(), **told)
        least = 300 + 0.1 * (13 + answers / 512) + 40
        assert least < reserved[-1] < 3 * (least - 340) + 340 + time.perf_counter() - start
    with pytest.raises(ZeroDivisionError), waiting(start - 900, answers=0, seconds=40.0):
        carre.fit(samples.numpy(), **told)
    assert reserved[-1] == 500, "half of it is for training, whatever else takes long"


def test_what_is_expected_is_within_the_budget_and_holds_the_choice_of_a_scale(samples, slow):
    def expected(**told):
        told = {"width": 16, "bandwidth_range": (0.01, 0.64), **told}
        return expected_seconds(make_plan(samples, FitSettings(**told), seed=0, device=CPU))

    least, most, longest = expected()
    assert 1.3 < least < most < longest
    assert expected(max_seconds=2.0)[2] == 2.0
    assert expected(max_steps=1)[2] > 1.3
    given = make_plan(samples, FitSettings(width=16, bandwidth=0.1), seed=0, device=CPU)
    assert _seconds_beside(given)[1] == 0


def test_more_samples_and_larger_batches_take_more_memory(samples):
    def memory(factor, **settings):
        told = FitSettings(**{**QUICK, **settings})
        return make_plan(samples.repeat(factor, 1), told, seed=0, device=CPU).costs()[1:]

    assert memory(1) < memory(2) < memory(2, batch_size=64) < memory(2, batch_size=64, width=64)


def test_images_are_planned_with_a_unet():
    images = torch.rand(40, 64, generator=torch.Generator().manual_seed(0))
    plan = make_plan(images, FitSettings(), seed=0, device=CPU, sample_shape=(1, 8, 8))
    assert plan.network == "U-Net of 64 channels"


@pytest.mark.parametrize(("rank", "dim", "count"), [(2, 3, 512), (100, 784, 213), (4096, 100, 64), (64, 512, 512)])
@pytest.mark.parametrize("memory", [1, 2**40])
def test_the_scale_is_chosen_at_as_many_samples_on_every_machine(rank, dim, count, memory, monkeypatch):
    monkeypatch.setattr("carre.backend.memory.available_memory", lambda device: memory)
    samples = torch.arange(600.0)[:, None].expand(-1, dim)
    assert torch.equal(_selection(samples, rank, CPU), samples[:count])
