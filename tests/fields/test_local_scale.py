"""The kernel whose scale follows the density, against a dense computation."""

import math

import pytest
import torch

from carre.fields import KernelField


def adaptive_metric(samples, bandwidth):
    """exp(−d²/(ε bᵢbⱼ)) with b the root mean square distance to 8 neighbors, dense, over the weights' variance."""
    squares = (samples[:, None] - samples[None]).square().sum(-1)
    b = squares.sort(1).values[:, 1:9].mean(1).sqrt()
    epsilon = 2 * bandwidth**2 / b.log().mean().exp() ** 2
    kernel = torch.exp(-squares / (epsilon * b[:, None] * b[None, :]))
    weights = kernel / kernel.sum(1, keepdim=True)
    centered = samples[None] - (weights @ samples)[:, None]
    rho = epsilon * b * (weights @ b) / 4
    return torch.einsum("ij,ijd,ije->ide", weights, centered, centered) / (2 * rho)[:, None, None]


@pytest.mark.slow
def test_the_adaptive_kernel_divides_by_the_variance_of_its_weights(rng):
    """Cov/2ρ with ρ = εbᵢ·Σwⱼbⱼ/4 is Cov/σ² with σ² = εbᵢ·Σwⱼbⱼ/2 (THEORY §5)."""
    samples = torch.randn(150, 3, generator=rng, dtype=torch.float64)
    for options in ({}, {"n_neighbors": 150}, {"memory": 3000}):
        field = KernelField(samples, adaptive=True, **options)
        torch.testing.assert_close(field.metric(samples, 0.4).dense(), adaptive_metric(samples, 0.4))


def test_on_uniform_data_nothing_changes(rng):
    """A circle: by σᵢ² alone the trace of G was 1.24 ± 0.47."""
    angle = 2 * math.pi * torch.rand(2000, generator=rng, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    fixed, adaptive = (
        KernelField(circle, adaptive=how, self_neighbor="drop").metric(circle[:500], 0.1).trace()
        for how in (False, True)
    )
    assert abs(adaptive.mean() - fixed.mean()) < 0.05
    assert adaptive.std() < 1.5 * fixed.std()


def test_with_even_density_the_adaptive_kernel_is_the_fixed_one():
    angle = torch.arange(60, dtype=torch.float64) * (2 * math.pi / 60)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    adaptive, fixed = KernelField(circle, adaptive=True), KernelField(circle)
    torch.testing.assert_close(adaptive.metric(circle, 0.3).dense(), fixed.metric(circle, 0.3).dense())


def test_copies_do_not_break_the_adaptive_kernel(rng):
    samples = torch.randn(100, 3, generator=rng, dtype=torch.float64)
    field = KernelField(torch.cat([samples, samples[:1].expand(20, -1)]), adaptive=True)
    assert torch.isfinite(field.metric(samples[:3], 0.3).factor).all()
    with pytest.raises(ValueError, match="samples must not all have 8 copies"):
        KernelField(samples[:3].repeat(12, 1), adaptive=True).metric(samples, 0.3)
