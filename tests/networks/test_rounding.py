"""Weights that were rounded once give the bits of weights that are rounded at every call."""

import pytest
import torch
from torch import nn

from carre.metric import AffineFrame
from carre.networks import FrozenDenoiser, build_model
from carre.networks.rounding import round_weights
from tests.networks.unets import model_of


@pytest.mark.parametrize("kind", ["unet", "gated", "plain"])
def test_rounding_changes_no_bit_under_autocast(kind, rng):
    torch.manual_seed(0)
    model = model_of() if kind == "unet" else build_model(36, 2, width=16, n_blocks=1, spread=1.0, block=kind)
    model = model.float().requires_grad_(False)
    points, sigma = torch.randn(2, 36, generator=rng), torch.tensor([0.1, 0.7])
    with torch.autocast("cpu", torch.bfloat16):
        before = model(points, sigma)
        round_weights(model)
        after = model(points, sigma)
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
    rounded = [name for name, value in model.named_parameters() if value.dtype == torch.bfloat16]
    assert {"mean.trunk.head.weight", "factor.trunk.film.weight"} <= set(rounded)
    assert not any("bias" in name or "norm" in name for name in rounded)


def test_what_a_user_gave_is_never_rounded():
    given = FrozenDenoiser(build_model(3, 2, width=8, n_blocks=1, spread=1.0).mean, AffineFrame(torch.zeros(3), 1.0))
    model = build_model(3, 2, width=8, n_blocks=1, spread=1.0, mean=given)
    round_weights(model)
    assert {value.dtype for value in model.mean.parameters()} == {torch.float32}
    assert torch.bfloat16 in {value.dtype for value in model.factor.parameters()}
    other = nn.Linear(2, 2)
    round_weights(other)
    assert other.weight.dtype == torch.float32
