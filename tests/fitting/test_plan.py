"""A plan says what the fit then does."""

import pytest
import torch

from carre.fitting import FitSettings, fit_field, plan_fit

CPU = torch.device("cpu")
QUICK = {"max_steps": 2, "width": 16, "n_blocks": 1, "batch_size": 16}


@pytest.fixture(scope="module")
def samples():
    angle = torch.rand(300, generator=torch.Generator().manual_seed(0)) * 2 * torch.pi
    return torch.stack([angle.cos(), angle.sin(), torch.zeros(300)], 1)


def test_a_plan_is_what_the_fit_does(samples):
    settings = FitSettings(**QUICK, bandwidth=0.3)
    plan = plan_fit(samples, settings, seed=0, device=CPU)
    fit = fit_field(samples, settings, seed=0, device=CPU)
    assert plan.rank == fit.rank
    assert plan.hull_dim == fit.field.frame.dim == 2
    assert plan.n_parameters == sum(weights.numel() for weights in fit.field.model.parameters())
    assert plan.max_steps == fit.history.steps
    assert plan.bandwidth_range == fit.bandwidth_range


def test_a_budget_of_time_alone_bounds_no_steps(samples):
    plan = plan_fit(samples, FitSettings(max_seconds=5.0), seed=0, device=CPU)
    assert (plan.max_steps, plan.max_seconds) == (None, 5.0)


def test_more_samples_and_larger_batches_take_more_memory(samples):
    def memory(factor, **settings):
        return plan_fit(samples.repeat(factor, 1), FitSettings(**{**QUICK, **settings}), seed=0, device=CPU).memory

    assert memory(1) < memory(2) < memory(2, batch_size=64) < memory(2, batch_size=64, width=64)


def test_images_are_planned_with_a_unet():
    images = torch.rand(40, 64, generator=torch.Generator().manual_seed(0))
    plan = plan_fit(images, FitSettings(), seed=0, device=CPU, sample_shape=(1, 8, 8))
    assert plan.network == "U-Net of 64 channels"
