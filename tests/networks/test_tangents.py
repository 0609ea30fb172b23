"""Forward derivatives of the networks are those of their formulas, and can be differentiated again."""

import pytest
import torch
from torch.autograd import forward_ad

from carre.networks import build_model
from carre.networks.pointwise import layer_norm, modulated_activation, split_dual
from carre.networks.unet import Convolution
from tests.networks.unets import model_of

STEP = 1e-5


def mean_network(kind):
    if kind == "unet":
        return model_of().mean.requires_grad_(False), 36
    torch.manual_seed(0)
    network = build_model(4, 2, width=16, n_blocks=2, spread=1.0, block=kind).mean.double().requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network, 4


def along(function, points, vectors):
    return torch.func.jvp(function, (points,), (vectors,))[1]


def difference(function, points, vectors):
    """The central difference, whose error is of order STEP² of third derivatives of size one."""
    return (function(points + STEP * vectors) - function(points - STEP * vectors)) / (2 * STEP)


@pytest.mark.parametrize("kind", ["unet", "gated", "plain"])
class TestTheMean:
    @pytest.fixture
    def case(self, kind, rng):
        network, dim = mean_network(kind)
        points, vectors, others = torch.randn(3, 2, dim, generator=rng, dtype=torch.float64)
        return lambda y: network(y, torch.full((2,), 0.5).double()), points, vectors, others

    def test_its_forward_derivative_is_the_quotient_of_differences(self, case):
        mean, points, vectors, _ = case
        torch.testing.assert_close(along(mean, points, vectors), difference(mean, points, vectors), rtol=0, atol=1e-6)

    def test_its_forward_derivative_is_the_transpose_of_the_backward_one(self, case):
        mean, points, vectors, others = case
        pulled = torch.func.vjp(mean, points)[1](others)[0]
        torch.testing.assert_close((others * along(mean, points, vectors)).sum(), (pulled * vectors).sum())

    def test_its_forward_derivative_can_be_differentiated_forward_and_backward(self, case):
        """Torch's own derivative of a layer norm cannot: it takes the deviation for a constant."""
        mean, points, vectors, others = case
        first = lambda y: along(mean, y, vectors)  # noqa: E731
        expected = difference(first, points, others)
        torch.testing.assert_close(along(first, points, others), expected, rtol=0, atol=1e-5)
        given = points.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(first(given).sum(), given)
        torch.testing.assert_close((gradient * others).sum(), expected.sum(), rtol=0, atol=1e-4)

    def test_its_backward_derivative_can_be_differentiated_forward(self, case):
        """Dual numbers that are differentiated backward as well keep all they depend on."""
        mean, points, vectors, others = case
        pull = lambda y: torch.func.vjp(mean, y)[1](others)[0]  # noqa: E731
        expected = difference(pull, points, vectors)
        with forward_ad.dual_level():
            given = forward_ad.make_dual(points.clone().requires_grad_(), vectors)
            (gradient,) = torch.autograd.grad(mean(given), given, others, create_graph=True)
            found = forward_ad.unpack_dual(gradient).tangent
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(along(pull, points, vectors), expected, rtol=0, atol=1e-5)


def test_a_derivative_in_the_weights_is_left_to_torch(rng):
    convolution = Convolution(2, 3, bias_deviation=1.0).double().requires_grad_(False)
    image, change = torch.randn(2, 1, 2, 4, 4, generator=rng, dtype=torch.float64)
    direction = torch.randn(convolution.weight.shape, generator=rng, dtype=torch.float64)

    def convolve(picture, weight):
        return torch.func.functional_call(convolution, {"weight": weight}, (picture,))

    found = torch.func.jvp(convolve, (image, convolution.weight), (change, direction))[1]
    expected = convolve(change, convolution.weight) + convolve(image, direction)
    expected = expected - 2 * convolution.bias[:, None, None]
    torch.testing.assert_close(found, expected)


def test_a_derivative_in_the_modulation_is_left_to_torch(rng):
    image, modulation, direction = torch.randn(2, 3, 4, 4), torch.randn(2, 6), torch.randn(2, 6)
    image, modulation, direction = image.double(), modulation.double(), direction.double()
    both = lambda m: modulated_activation(m[:, :3, None, None] * image, m)[0]  # noqa: E731
    torch.testing.assert_close(
        along(both, modulation, direction), difference(both, modulation, direction), rtol=0, atol=1e-6
    )


def test_norms_with_and_without_a_derivative_have_the_same_value(rng):
    hidden, weight, bias = (torch.randn(size, generator=rng, dtype=torch.float64) for size in ((3, 5), (5,), (5,)))
    spelled_out = torch.func.jvp(lambda h: layer_norm(h, weight, bias), (hidden,), (hidden,))[0]
    torch.testing.assert_close(spelled_out, layer_norm(hidden, weight, bias), rtol=1e-12, atol=1e-12)


def test_rounded_networks_have_rounded_derivatives(rng):
    """Some dozen of roundings of 2⁻⁹ each, in norms over four channels, leave a digit."""
    network, dim = mean_network("unet")
    network = network.float()
    points, vectors = torch.randn(2, 2, dim, generator=rng)
    mean = lambda y: network(y, torch.full((2,), 0.5))  # noqa: E731
    exact = along(mean, points, vectors)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = along(mean, points, vectors)
    assert rounded.dtype == torch.float32
    assert 1e-4 * exact.norm() < (rounded - exact).norm() < 0.1 * exact.norm()


def test_there_is_no_tangent_outside_of_a_derivative():
    points = torch.ones(2)
    assert split_dual(points, points, None) == (points, None)
