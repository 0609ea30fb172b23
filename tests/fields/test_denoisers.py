"""Denoisers of every kind, seen through the metric of their Jacobian."""

import pickle

import pytest
import torch
from torch import nn

from carre.fields import ScoreField
from tests.fields.test_fields import random_network


class NoForward(torch.autograd.Function):
    """A hyperbolic tangent in the old style, without a forward derivative."""

    @staticmethod
    def forward(ctx, values):
        ctx.save_for_backward(values.tanh())
        return values.tanh()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 - ctx.saved_tensors[0].square())


class ShrinkModule(nn.Module):
    """A user's denoiser: a small network around the identity, in float32, with dropout that must be off."""

    def __init__(self, activation=nn.functional.silu):
        super().__init__()
        self.inner, self.outer, self.dropout = nn.Linear(4, 16), nn.Linear(16, 4), nn.Dropout(0.5)
        self.activation = activation

    def forward(self, points, bandwidth):
        hidden = self.dropout(self.activation(self.inner(points)))
        return (points + self.outer(hidden)) / (1 + bandwidth.square()[:, None])


def jacobians(denoise, points, sigma):
    rows = [torch.autograd.functional.jacobian(lambda y: denoise(y[None], sigma)[0], point) for point in points]
    return torch.stack(rows)


def positive_part(matrices):
    values, vectors = torch.linalg.eigh(0.5 * (matrices + matrices.mT))
    return vectors @ torch.diag_embed(values.clamp_min(0)) @ vectors.mT


def test_a_module_is_copied_frozen_and_evaluated_in_the_dtype_of_the_points(rng):
    torch.manual_seed(0)
    module = ShrinkModule()
    field = ScoreField(module, 4, mode="forward")
    points = torch.randn(3, 4, generator=rng, dtype=torch.float64)
    metric = field.metric(points, 0.5)
    expected = positive_part(jacobians(field.denoise, points, 0.5))
    torch.testing.assert_close(metric.dense(), expected)
    assert not metric.factor.requires_grad
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    again = pickle.loads(pickle.dumps(field))
    assert torch.equal(again.metric(points, 0.5).factor, metric.factor)


def test_a_learned_field_lends_its_denoiser(rng):
    learned = random_network(torch.randn(40, 4, generator=rng, dtype=torch.float64))
    points = torch.randn(3, 4, generator=rng, dtype=torch.float64)
    field = ScoreField(learned, mode="forward")
    assert field.dim == 4
    metric = field.metric(points, 0.5)
    torch.testing.assert_close(metric.dense(), positive_part(jacobians(learned.denoise, points, 0.5)))
    torch.testing.assert_close(field.denoise(points, 0.5), learned.denoise(points, 0.5))


def test_a_denoiser_without_forward_derivative_is_differentiated_in_reverse(rng):
    """The field is differentiable itself where the denoiser's gradient is."""
    torch.manual_seed(0)
    module = ShrinkModule(activation=NoForward.apply).double()
    smooth = ShrinkModule(activation=torch.tanh).double()
    smooth.load_state_dict(module.state_dict())
    points = torch.randn(3, 4, generator=rng, dtype=torch.float64)
    expected = ScoreField(smooth, 4).metric(points, 0.5).dense()
    for mode in ("auto", "reverse"):
        torch.testing.assert_close(ScoreField(module, 4, mode=mode).metric(points, 0.5).dense(), expected)
    with pytest.raises(RuntimeError, match="setup_context"):
        ScoreField(module, 4, mode="forward").metric(points, 0.5)
    gradients = []
    for field in (ScoreField(smooth, 4, mode="reverse"), ScoreField(smooth, 4)):
        y = points.clone().requires_grad_()
        gradients.append(torch.autograd.grad(field.metric(y, 0.5).trace().sum(), y)[0])
    torch.testing.assert_close(*gradients)


def test_functions_whose_parameters_learn_leave_no_graph_behind():
    weight = torch.eye(3).requires_grad_()
    metric = ScoreField(lambda points, bandwidth: points @ weight, 3).metric(torch.ones(2, 3), 0.1)
    assert not metric.factor.requires_grad


@pytest.mark.parametrize(
    ("denoiser", "message"),
    [
        (lambda y, s: y[:, :2], r"denoiser must return one point per input, a tensor of shape \(1, 4\); got \(1, 2\)"),
        (lambda y, s: (y, s), "denoiser must return one point per input.*got tuple"),
        (lambda y, s: torch.zeros_like(y), "denoiser must be differentiable in its points"),
        (lambda y, s: y.detach(), "denoiser must be differentiable in its points"),
        (lambda y, s: (y - y).sqrt(), "denoiser must have a finite derivative"),
    ],
)
def test_bad_denoisers_are_named(denoiser, message):
    with pytest.raises(ValueError, match=message):
        ScoreField(denoiser, 4, chunk=2).metric(torch.zeros(2, 4), 0.1)


def test_a_denoiser_without_gradients_of_its_own_is_still_differentiated():
    """Forward mode is not stopped by no_grad, which samplers are often decorated with."""
    denoiser = torch.no_grad()(lambda points, bandwidth: 0.5 * points)
    torch.testing.assert_close(ScoreField(denoiser, 3).metric(torch.ones(1, 3), 0.1).dense(), 0.5 * torch.eye(3)[None])
