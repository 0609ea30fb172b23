import math

import pytest
import torch
from torch import nn

from carre.metric import AffineFrame, LowRankMetric
from carre.networks import (
    FilmMLP,
    FrozenDenoiser,
    GatedBlock,
    LogBandwidthEmbedding,
    MeanNetwork,
    PlainBlock,
    build_model,
)
from carre.networks.model import round_weights
from tests.networks.unets import model_of


def sigma(*values):
    return torch.tensor(values)


@pytest.mark.parametrize("block", ["gated", "plain"])
@pytest.mark.parametrize("batch", [5, 7])
def test_a_model_maps_points_and_bandwidths_to_a_mean_and_a_factor(block, batch):
    model = build_model(7, 4, width=16, n_blocks=2, spread=1.0, block=block)
    mean, factor = model(torch.randn(batch, 7), torch.rand(batch) + 0.1)
    assert mean.shape == (batch, 7)
    assert factor.shape == (batch, 4, 7)


def test_the_untrained_mean_is_the_linear_denoiser_of_unit_gaussian_data(rng):
    """c_skip = 1/(1+σ²), and a mean head that starts at zero."""
    model = build_model(3, 2, width=16, n_blocks=1, spread=1.0)
    points, bandwidth = torch.randn(4, 3, generator=rng), sigma(0.01, 0.1, 1.0, 10.0)
    mean, _ = model(points, bandwidth)
    torch.testing.assert_close(mean, points / (1 + bandwidth.square())[:, None])


def test_an_error_of_the_trunk_moves_the_mean_by_at_most_sigma_times_as_much():
    """c_out ≤ σ: no blow-up of (x − m̂)/σ at small σ (THEORY §3.6)."""

    class Wrong(nn.Module):
        def forward(self, points, bandwidth):
            return torch.ones_like(points)

    points, bandwidth = torch.zeros(3, 2), sigma(1e-4, 1e-2, 1.0)
    error = MeanNetwork(Wrong())(points, bandwidth)
    assert (error.abs() <= bandwidth[:, None] * (1 + 1e-6)).all()
    torch.testing.assert_close(error[:, 0], bandwidth / (1 + bandwidth.square()).sqrt())


@pytest.mark.parametrize("dim", [4, 400])
def test_factor_rows_start_with_norm_one_in_every_dimension(dim, rng):
    """F = 0 is a saddle; rows of norm c_G make FFᵀ ≈ c_G² I at the start (THEORY §3.7)."""
    torch.manual_seed(0)
    model = build_model(dim, 6, width=256, n_blocks=1, spread=2.0)
    bandwidth = torch.full((64,), 0.5)
    norms = model(torch.randn(64, dim, generator=rng), bandwidth)[1].square().sum(2)
    assert norms.mean().item() == pytest.approx(4.0 / 4.25, rel=0.25)


def test_residual_blocks_start_as_the_identity(rng):
    for block in (GatedBlock(8), PlainBlock(8)):
        hidden = torch.randn(3, 8, generator=rng)
        torch.testing.assert_close(block(hidden, torch.randn(3, 16, generator=rng)), hidden)


def test_the_embedding_tells_small_bandwidths_apart():
    """A sinusoid of σ itself cannot: cos and sin of 1e-3 and 1e-2 are all but equal."""
    torch.manual_seed(0)
    embedding = LogBandwidthEmbedding(32)
    near, far = embedding(sigma(1e-3, 1.05e-3)), embedding(sigma(1e-3, 1e-2))
    assert (far[0] - far[1]).norm() > 5 * (near[0] - near[1]).norm()


def test_the_output_depends_on_the_bandwidth_once_trained_a_little(rng):
    torch.manual_seed(0)
    network = FilmMLP(3, 2, width=16, n_blocks=1, head_deviation=0.25)
    nn.init.normal_(network.blocks[0].fall.weight)
    points = torch.randn(5, 3, generator=rng)
    low, high = network(points, torch.full((5,), 0.01)), network(points, torch.full((5,), 1.0))
    assert not torch.allclose(low, high)


def test_one_bandwidth_for_all_points_is_the_same_as_one_each(rng):
    """An expanded scalar is embedded once; the answer must not know."""
    torch.manual_seed(0)
    model = build_model(3, 2, width=16, n_blocks=2, spread=1.0).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    points, single = torch.randn(5, 3, generator=rng).double(), torch.tensor([0.3]).double()
    for expanded, each in zip(model(points, single.expand(5)), model(points, single.repeat(5)), strict=True):
        torch.testing.assert_close(expanded, each, rtol=1e-12, atol=1e-12)


def test_a_users_denoiser_is_called_in_the_units_of_the_data(rng):
    samples = 3.0 + 10 * torch.randn(200, 4, generator=rng)
    frame = AffineFrame.of(samples)
    seen = {}

    def denoiser(points, bandwidth):
        seen.update(points=points, bandwidth=bandwidth)
        return points * 0 + 3.0

    local = frame.to(torch.float32)
    coordinates = local.encode(samples[:5])
    mean = FrozenDenoiser(denoiser, frame)(coordinates, torch.full((5,), 0.2))
    torch.testing.assert_close(seen["points"], samples[:5], atol=1e-4, rtol=0)
    torch.testing.assert_close(seen["bandwidth"], torch.full((5,), 0.2 * frame.scale))
    torch.testing.assert_close(local.decode(mean), torch.full((5, 4), 3.0), atol=1e-4, rtol=0)


def test_a_denoiser_with_the_wrong_shape_is_named():
    frame = AffineFrame.of(torch.eye(4))
    with pytest.raises(ValueError, match="denoiser must return one point per input"):
        FrozenDenoiser(lambda y, s: y[:, :2], frame)(torch.zeros(5, frame.hull_dim), torch.ones(5))


def test_uncentered_models_have_no_mean():
    model = build_model(3, 2, width=8, n_blocks=1, spread=1.0, with_mean=False)
    mean, factor = model(torch.zeros(2, 3), torch.ones(2))
    assert mean is None
    assert math.isfinite(float(LowRankMetric(factor).trace().sum().detach()))


def test_a_denoiser_that_is_a_module_is_copied_and_frozen():
    denoiser = nn.Linear(4, 4).double()
    frozen = FrozenDenoiser(lambda y, s: denoiser(y), AffineFrame.of(torch.eye(4)))
    copied = FrozenDenoiser(denoiser, AffineFrame.of(torch.eye(4))).to(torch.float32)
    assert not list(frozen.parameters())
    assert not any(parameter.requires_grad for parameter in copied.parameters())
    assert denoiser.weight.dtype == torch.float64
    assert denoiser.weight.requires_grad


@pytest.mark.parametrize("kind", ["unet", "gated", "plain"])
def test_rounding_changes_no_bit_under_autocast(kind, rng):
    """Weights that were rounded once give the bits of weights that are rounded at every call."""
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
