"""Fields in mixed precision: on images, and under the fields that are derived from them."""

import pytest
import torch

from carre.fields import NeuralField, ScoreField, SteinField
from carre.metric import AffineFrame
from carre.networks import UNetSettings, build_image_model
from carre.networks.unet import Convolution


@pytest.fixture(scope="module")
def field():
    """Norms over many channels, and updates that are small beside what they are added to, amplify no roundings."""
    torch.manual_seed(0)
    model = build_image_model((1, 6, 6), 2, spread=1.0, settings=UNetSettings(32, (1, 2), 1, (1,)))
    for module in model.modules():
        if isinstance(module, Convolution) and not module.weight.any():
            torch.nn.init.normal_(module.weight, std=0.3 * module.weight[0].numel() ** -0.5)
    return NeuralField(model, AffineFrame(torch.zeros(36), 2.0))


@pytest.fixture
def points(rng):
    return torch.randn(2, 36, generator=rng)


def distance(first, second):
    return float((first - second).norm() / second.norm())


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_the_jacobian_of_a_rounded_field_is_rounded(field, points, mode):
    """bfloat16 has 8 bits: the products differ, but by some dozen roundings only."""
    axes = torch.eye(36).expand(2, -1, -1)
    exact, rounded = (
        ScoreField(source, mode=mode).apply_jacobian(points, 0.5, axes)
        for source in (field, field.with_mixed_precision())
    )
    assert rounded.dtype == torch.float32
    assert 1e-4 < distance(rounded, exact) < 0.1


@pytest.mark.parametrize("derived", [ScoreField, lambda f: ScoreField(f, rank=3, mode="forward"), SteinField])
def test_fields_of_a_rounded_field_are_near_those_of_the_exact_one(field, points, derived):
    exact, rounded = (derived(source).metric(points, 0.5).dense() for source in (field, field.with_mixed_precision()))
    assert distance(rounded, exact) < 0.1


def test_a_rounded_field_answers_points_in_float64_without_rounding(field, points):
    expected = field.metric(points.double(), 0.5).factor
    assert torch.equal(field.with_mixed_precision().metric(points.double(), 0.5).factor, expected)


def test_a_rounded_field_can_be_differentiated(field, points):
    rounded, given = field.with_mixed_precision(), points.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(rounded.metric(given, 0.5).trace().sum(), given)
    (expected,) = torch.autograd.grad(field.metric(given, 0.5).trace().sum(), given)
    assert distance(gradient, expected) < 0.1


def test_the_field_that_was_rounded_stays_exact(field, points):
    before = field.metric(points, 0.5).factor
    field.with_mixed_precision().metric(points, 0.5)
    assert torch.equal(field.metric(points, 0.5).factor, before)
    assert {value.dtype for value in field.with_mixed_precision().model.parameters()} == {torch.float32}


def test_the_jacobian_is_computed_in_inference_mode_as_well(field, points):
    expected = ScoreField(field).metric(points, 0.5).dense()
    with torch.inference_mode():
        found = ScoreField(field).metric(points, 0.5).dense()
    torch.testing.assert_close(found, expected)
