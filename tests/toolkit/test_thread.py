"""Threads follow smooth data like geodesics, and join ends that lie off them."""

import math

import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import CliffordTorus, Sphere
from carre.metric import LowRankMetric
from carre.toolkit import Path, geodesic, thread


@pytest.fixture
def arcs(rng):
    """A right angle, and two at random, on the 2-sphere."""
    sphere = Sphere(2)
    start = torch.cat([torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), sphere.sample(2, generator=rng)])
    end = torch.cat([torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64), sphere.sample(2, generator=rng)])
    return start, end


def test_on_a_sphere_it_is_the_great_circle_inside_by_the_bias_of_the_denoiser(arcs):
    """E[X | Y=y] on S^d has the radius 1 − dσ²/2 at y on the sphere; the tension pulls inwards as well, by less."""
    start, end = arcs
    sigma = 0.1
    path = thread(ExactField(Sphere(2)), start, end, sigma, max_sweeps=200, tolerance=1e-4)
    assert path.arrived.all()
    assert path.connected.all()
    plane = torch.nn.functional.normalize(torch.linalg.cross(start, end), dim=-1)
    assert float(torch.einsum("pnd,pd->pn", path.nodes, plane).abs().max()) < 1e-10
    angle = (start * end).sum(-1).acos()
    depth = 1 - path.nodes[:, 2:-2].norm(dim=-1)
    # A chord of h sags by h²/8, which the tension adds in every sweep and the landing halves.
    spacing = angle / 16
    assert float((depth - (sigma**2 + spacing.square()[:, None])).max()) < 0
    assert float(depth.min()) > 0
    torch.testing.assert_close(path.length(), angle, rtol=0.03, atol=0)


def test_it_starts_and_ends_where_it_should_also_off_the_data(arcs):
    start, end = arcs
    path = thread(ExactField(Sphere(2)), 1.2 * start, 0.9 * end, 0.2, finest=0.05)
    assert torch.equal(path.nodes[:, 0], 1.2 * start)
    assert torch.equal(path.nodes[:, -1], 0.9 * end)
    assert float((path.nodes[:, 8].norm(dim=-1) - 1).abs().max()) < 0.06


@pytest.mark.slow
def test_it_agrees_with_the_geodesic_on_a_flat_torus(rng):
    torus = CliffordTorus([1.0, 1.0])
    start = torus.sample(1, generator=rng)
    turned = torch.tensor([[math.cos(0.9), -math.sin(0.9)], [math.sin(0.9), math.cos(0.9)]], dtype=torch.float64)
    end = torch.cat([start[:, :2] @ turned.T, start[:, 2:]], 1)
    field = ExactField(torus)
    drawn = thread(field, start, end, 0.1, max_sweeps=200, tolerance=1e-4)
    shortest = geodesic(field, start, end, 0.1, n_nodes=17)
    torch.testing.assert_close(drawn.length(), shortest.length(), rtol=0.02, atol=0)


def test_metric_and_denoiser_are_asked_at_the_finest_scale_at_the_ends_and_the_bandwidth_between(arcs):
    seen = []

    class Spy(ExactField):
        def denoise(self, points, bandwidth):
            seen.append(bandwidth)
            return super().denoise(points, bandwidth)

        def metric(self, points, bandwidth):
            seen.append(bandwidth)
            return super().metric(points, bandwidth)

    start, end = (x[:1] for x in arcs)
    thread(Spy(Sphere(2)), start, end, 0.2, finest=0.01, slope=0.3, max_sweeps=1)
    chord = float((start - end).norm())
    steps = torch.arange(1, 16, dtype=torch.float64) / 16
    expected = (0.3 * chord * torch.minimum(steps, 1 - steps)).clamp(0.01, 0.2)
    for sigma in seen[:2]:
        torch.testing.assert_close(sigma, expected)


class Shrinking:
    """The plane, with a metric that is a number and a denoiser that halves the distance from the x-axis."""

    dim = 2

    def metric(self, points, bandwidth):
        return LowRankMetric(0.5**0.5 * torch.eye(2, dtype=points.dtype).expand(len(points), 2, 2))

    def denoise(self, points, bandwidth):
        return points * points.new_tensor([1.0, 0.5])


def test_one_sweep_is_its_formula_and_spaces_nodes_evenly():
    """From the line y = 1, tension is nothing and landing α takes α/2 off the inner nodes; then they are spaced."""
    path = thread(Shrinking(), [[0.0, 1.0]], [[4.0, 1.0]], 0.1, landing=0.4, max_sweeps=1, n_nodes=5)
    inner = torch.tensor([[0.0, 1.0], [1.0, 0.8], [2.0, 0.8], [3.0, 0.8], [4.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(path.nodes, Path.through(inner).resample(5).nodes)
    gaps = path.nodes.diff(dim=1).norm(dim=-1)
    torch.testing.assert_close(gaps, gaps.mean().expand_as(gaps), rtol=1e-3, atol=0)


def test_it_says_when_it_was_not_given_the_time(arcs):
    path = thread(ExactField(Sphere(2)), *arcs, 0.1, max_sweeps=2)
    assert not path.arrived.any()
    assert "still moving after max_sweeps=2" in path.reasons[0]


def test_each_thread_is_drawn_as_if_it_were_alone(arcs):
    start, end = arcs
    field = ExactField(Sphere(2))
    together = thread(field, start, end, 0.1)
    alone = thread(field, start[1:2], end[1:2], 0.1)
    torch.testing.assert_close(together.nodes[1:2], alone.nodes)


def test_two_nodes_are_the_ends(arcs):
    path = thread(ExactField(Sphere(2)), *arcs, 0.1, n_nodes=2)
    assert torch.equal(path.nodes, torch.stack(arcs, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"finest": 0.3}, "finest must be at most the bandwidth"),
        ({"finest": -0.1}, "finest must be positive"),
        ({"finest": "a"}, "finest must be a number"),
        ({"slope": 0.0}, "slope must be a positive number"),
        ({"slope": math.inf}, "slope must be a positive number"),
        ({"landing": 0.0}, "landing must be a positive number"),
        ({"landing": "a"}, "landing must be a positive number"),
        ({"landing": 1.5}, "landing must be at most 1"),
        ({"tolerance": -1.0}, "tolerance must be a positive number"),
        ({"tolerance": None}, "tolerance must be a positive number"),
        ({"max_sweeps": 0}, "max_sweeps must be at least 1"),
        ({"n_nodes": 1}, "n_nodes must be at least 2"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_options_are_named(arcs, options, message):
    with pytest.raises(ValueError, match=message):
        thread(ExactField(Sphere(2)), *arcs, 0.1, **options)
