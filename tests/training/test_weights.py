"""The update of the weights, on a CPU; tests/backend compares the GPU's with it."""

import torch

from carre.networks import build_model
from carre.training import TrainingConfig
from carre.training.weights import ListedWeights


def make():
    torch.manual_seed(0)
    weights = ListedWeights(build_model(3, 2, width=8, n_blocks=1, spread=1.0), TrainingConfig(clip_norm=0.5))
    step(weights, 1.0)
    return weights


def step(weights, scale):
    loss = scale * sum((p - 0.5).square().sum() for p in weights.module.parameters())
    return weights.update(loss, torch.tensor(1e-2), torch.tensor(0.1))


def state(weights):
    return [p.detach().clone() for module in (weights.module, weights.averaged) for p in module.parameters()]


def test_a_step_that_is_not_finite_changes_neither_weights_nor_average():
    weights = make()
    before = state(weights)
    assert not torch.isfinite(step(weights, float("nan")))
    assert all(torch.equal(old, new) for old, new in zip(before, state(weights), strict=True))


def test_gradients_are_clipped_to_their_norm():
    """Beyond the clip the size of the loss does not matter: a thousand times as much is the same step."""
    weights, twin = make(), make()
    step(weights, 1e3)
    step(twin, 1e6)
    for one, other in zip(state(weights), state(twin), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
