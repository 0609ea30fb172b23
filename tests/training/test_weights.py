"""The update of the weights, and their state by name: the same for every kind of weights, and enough to go on.

The GPU's update is compared with the CPU's in tests/backend.
"""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from carre.networks import build_model
from carre.training import TrainingConfig
from carre.training._weights import FlatWeights, ListedWeights

RATE, PULL = torch.tensor(1e-2), torch.tensor(0.1)


def averaged_adamw(
    values, gradients, first, second, averages, working, *, norm, rate, pull, total, n_steps, **settings
):
    """What the GPU's fused operation computes, spelled out."""
    (beta1, beta2), g = settings["betas"], gradients.float() / (norm / settings["clip_norm"]).clamp_min(1)
    first.lerp_(g, 1 - beta1)
    second.lerp_(g.square(), 1 - beta2)
    step = first / (1 - beta1**n_steps) / ((second / (1 - beta2**n_steps)).sqrt() + 1e-8)
    values -= rate * (settings["decay"] * values + step)
    averages += pull * (values - averages)
    if working is not None:
        working.copy_(values)


@pytest.fixture(autouse=True)
def fused_on_a_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "carre.backend.triton_training", SimpleNamespace(averaged_adamw=averaged_adamw))


class Model(nn.Module):
    """Two parts, a buffer that steps change, and a weight that takes no part."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.unused = build_model(3, 2, width=8, n_blocks=1, spread=1.0), nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, points):
        self.seen.lerp_(points.mean(0), 0.5)
        mean, factor = self.inner(points - self.seen, torch.ones(len(points)))
        return (mean - 0.5).square().sum() + (factor - 0.1).square().sum()


def step(weights, seed):
    points = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed))
    with torch.autocast("cpu", torch.bfloat16, enabled=weights.config.mixed_precision):
        loss = weights.module(points)
    weights.update(loss, RATE, PULL)


def make(kind, *, seed=0, mixed=False, steps=3):
    weights = kind(Model(seed), TrainingConfig(clip_norm=0.5, mixed_precision=mixed))
    for i in range(steps):
        step(weights, i)
    return weights


def copies(state):
    return {name: value.detach().clone() for name, value in state.items()}


def assert_same(one, other, **tolerance):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(
            value, other[name], **{"rtol": 0, "atol": 0, **tolerance}, msg=lambda m, n=name: f"{n}: {m}"
        )


KINDS = [(ListedWeights, False), (FlatWeights, False), (FlatWeights, True)]


@pytest.mark.parametrize(("kind", "mixed"), KINDS)
@pytest.mark.parametrize("steps_before", [0, 2], ids=["fresh", "laid out, as in a captured step"])
def test_restored_weights_go_on_to_the_same_bits(kind, mixed, steps_before):
    weights = make(kind, mixed=mixed)
    stored = copies(weights.state())
    other = make(kind, seed=1, mixed=mixed, steps=steps_before)
    other.restore(stored)
    assert_same(other.state(), stored)
    for i in (7, 8):
        step(weights, i)
        step(other, i)
    assert_same(other.state(), weights.state())
    assert not torch.equal(
        stored["weights.inner.mean.trunk.inlet.weight"], weights.state()["weights.inner.mean.trunk.inlet.weight"]
    )


@pytest.mark.parametrize(("kind", "mixed"), KINDS)
def test_restoring_keeps_the_addresses_that_a_captured_step_knows(kind, mixed):
    stored = copies(make(kind, mixed=mixed).state())
    weights = make(kind, seed=1, mixed=mixed)
    before = {name: value.data_ptr() for name, value in weights.state().items()}
    weights.restore(stored)
    assert {name: value.data_ptr() for name, value in weights.state().items()} == before


def test_averages_keep_no_graph_of_the_steps_that_made_them():
    assert not any(average.requires_grad for average in make(ListedWeights).averages)


def test_one_kind_goes_on_from_the_other():
    flat, listed = make(FlatWeights), make(ListedWeights)
    assert_same(flat.state(), listed.state(), atol=1e-6)
    fresh = make(ListedWeights, seed=1, steps=0)
    fresh.restore(copies(flat.state()))
    assert_same(fresh.state(), flat.state())


def test_a_weight_that_takes_no_part_has_no_memory_and_is_restored():
    stored = make(FlatWeights).state()
    assert "first.unused.weight" not in stored
    assert "first.inner.mean.trunk.inlet.weight" in stored
    other = make(FlatWeights, seed=1, mixed=True, steps=0)
    other.restore(copies(stored))
    assert torch.equal(other.module.unused.weight, stored["weights.unused.weight"])


def listed():
    torch.manual_seed(0)
    weights = ListedWeights(build_model(3, 2, width=8, n_blocks=1, spread=1.0), TrainingConfig(clip_norm=0.5))
    step_towards_a_half(weights, 1.0)
    return weights


def step_towards_a_half(weights, scale):
    loss = scale * sum((p - 0.5).square().sum() for p in weights.module.parameters())
    return weights.update(loss, torch.tensor(1e-2), torch.tensor(0.1))


def values(weights):
    return [p.detach().clone() for module in (weights.module, weights.averaged) for p in module.parameters()]


def test_a_step_that_is_not_finite_changes_neither_weights_nor_average():
    weights = listed()
    before = values(weights)
    assert not torch.isfinite(step_towards_a_half(weights, float("nan")))
    assert all(torch.equal(old, new) for old, new in zip(before, values(weights), strict=True))


def test_gradients_are_clipped_to_their_norm():
    """Beyond the clip the size of the loss does not matter: a thousand times as much is the same step."""
    weights, twin = listed(), listed()
    step_towards_a_half(weights, 1e3)
    step_towards_a_half(twin, 1e6)
    for one, other in zip(values(weights), values(twin), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
