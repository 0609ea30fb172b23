"""One pair has one length, whoever is asked; many pairs go over the samples, and say how exact that is."""

import math
import warnings

import pytest
import torch

import carre
from carre import toolkit
from carre.fields import ExactField
from carre.manifolds import CliffordTorus, Embedded, Sphere, Union
from carre.toolkit import sample_graph
from tests.toolkit.round_sphere import RoundSphere

UNITS = torch.tensor([1.0, 100.0, 0.02], dtype=torch.float64)


def great_circle(start, end):
    return (torch.nn.functional.normalize(start, dim=-1) * torch.nn.functional.normalize(end, dim=-1)).sum(-1).acos()


@pytest.fixture(scope="module")
def graph():
    samples = Sphere(2).sample(1000, generator=torch.Generator().manual_seed(0))
    return sample_graph(RoundSphere(), samples, 0.1)


@pytest.fixture(scope="module")
def ball():
    """A geometry whose points are given in scaled columns."""
    samples = Sphere(2).sample(300, generator=torch.Generator().manual_seed(0))
    options = {"bandwidth": 0.1, "bandwidth_range": (0.05, 0.5), "rank": 3, "verbose": False}
    return carre.Geometry(RoundSphere(), landmarks=samples * UNITS, units=UNITS, **options)


def test_one_pair_has_one_length(ball):
    """Ends are off the sphere by 1σ and 2σ, in scaled columns; the report asks `path`, and the command does."""
    inner = torch.tensor([[1.1, 0.0, 0.0], [0.0, 0.8, 0.0]], dtype=torch.float64)
    first, last = (inner * UNITS).split(1)
    truth = pytest.approx(math.pi / 2, rel=2e-4)
    path = ball.path(first, last)
    assert float(path.length()) == truth
    assert float(path.polygon_length()) < math.pi / 2
    assert float(ball.distances(first, last)) == truth
    assert float(ball.distances(torch.cat([first, last]))[1, 0]) == truth
    vector = ball.logarithm(first, last, dimension=2) / UNITS
    assert float(vector.norm()) == truth
    assert float(ball.exponential(first / first.norm() * UNITS[0], vector * UNITS).length()) == truth


def test_ways_over_samples_are_as_long_as_great_circles_within_a_percent(graph, rng):
    """Their edges zigzag: by 4 % in the mean; straightened, what is left is of second order."""
    points = Sphere(2).sample(50, generator=rng)
    truth = great_circle(points[:, None], points[None])[*torch.triu_indices(50, 50, 1)]
    found = toolkit.distances(RoundSphere(), points, None, 0.1, method="graph", samples=graph)
    error = found[*torch.triu_indices(50, 50, 1)] / truth - 1
    assert float(error.abs().mean()) < 0.005
    assert float(error.abs().max()) < 0.06
    assert torch.equal(found, found.T)
    i, j = torch.triu_indices(50, 50, 1)
    _, weights = graph.routes(points, points, i, j)
    assert float((weights / truth - 1).mean()) > 0.02


def test_geodesics_of_a_few_nodes_are_as_long_as_closed_forms(rng):
    torus = CliffordTorus([1.0, 0.5])
    samples, points = torus.sample(150, generator=rng), torus.sample(4, generator=rng)
    angles = torch.atan2(points[:, 1::2], points[:, ::2])
    turn = torch.remainder(angles[:, None] - angles[None] + math.pi, 2 * math.pi) - math.pi
    truth = (turn * torch.tensor([1.0, 0.5])).norm(dim=-1)
    found = toolkit.distances(ExactField(torus), points, None, 0.05, samples=samples)
    torch.testing.assert_close(found, truth, rtol=3e-4, atol=1e-6)


def test_many_pairs_go_over_samples_few_do_not(graph, rng, monkeypatch):
    points = Sphere(2).sample(12, generator=rng)
    options = {"bandwidth": 0.1, "samples": graph}
    drawn = toolkit.distances(RoundSphere(), points, **options)
    torch.testing.assert_close(drawn, toolkit.distances(RoundSphere(), points, method="geodesic", **options))
    monkeypatch.setattr("carre.toolkit.pairwise._FEW", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many = toolkit.distances(RoundSphere(), points, **options)
    over = toolkit.distances(RoundSphere(), points, method="graph", **options)
    is_drawn = many < over
    assert is_drawn.any(), "near pairs whose way bends"
    torch.testing.assert_close(many[~is_drawn], over[~is_drawn])
    torch.testing.assert_close(many[is_drawn], drawn[is_drawn], rtol=1e-3, atol=0)
    assert not torch.equal(many, drawn)
    monkeypatch.setattr("carre.toolkit.pairwise._LARGEST_DEVIATION", 1e-6)
    with pytest.warns(UserWarning, match="differ from geodesics by 0.* in the mean of 32 pairs"):
        toolkit.distances(RoundSphere(), points, **options)


def test_parts_that_nearest_neighbors_leave_alone_are_joined_only_where_the_data_go_on(rng):
    """Samples of a sphere in two places are neighbors of their own kind only; those of another sphere are elsewhere."""
    shift = torch.tensor([6.0, 0.0, 0.0]).double()
    places = torch.tensor([[0.0, 0.0, 1.0], [math.sin(0.8), 0.0, math.cos(0.8)]]).double()
    near = places.repeat_interleave(20, 0) + 0.02 * torch.randn(40, 3, generator=rng).double()
    near = torch.nn.functional.normalize(near, dim=1)
    union = ExactField(Union([Sphere(2), Embedded(Sphere(2), torch.eye(3).double(), shift)]))
    points = torch.cat([places, places[:1] + shift])
    for method in ("graph", "geodesic"):
        samples = torch.cat([near, near[:20] + shift])
        found = toolkit.distances(union, points, None, 0.1, method=method, samples=samples)
        assert float(found[0, 1]) == pytest.approx(0.8, rel=0.03 if method == "graph" else 1e-3)
        assert found[:2, 2].isinf().all(), "between parts of the data there is no way"


def test_methods_that_make_no_sense_are_named():
    points = torch.eye(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="method must be 'geodesic' or 'graph', or None; got 'dijkstra'"):
        toolkit.distances(RoundSphere(), points, None, 0.1, method="dijkstra")
    with pytest.raises(ValueError, match="samples must be given, to go over them by method='graph'"):
        toolkit.distances(RoundSphere(), points, None, 0.1, method="graph")


def test_an_end_that_does_not_land_is_off_the_data_and_has_no_distance():
    """A denoiser that knows nothing of a point may lead anywhere, and no node between is off the data."""

    class Lost(RoundSphere):
        def denoise(self, points, bandwidth):
            nowhere = points + torch.tensor([0.0, 0.0, 0.5])
            return torch.where(points[:, :1] > 1.2, nowhere, super().denoise(points, bandwidth))

    start, end = torch.tensor([[1.4, 0.0, 0.0]]).double(), torch.tensor([[0.0, 1.0, 0.0]]).double()
    assert not toolkit.path(Lost(), start, end, 0.1, n_nodes=5).connected.any()
    start = torch.tensor([[4.0, 0.0, 0.0]]).double()
    far = toolkit.path(RoundSphere(), start, end, 0.1)
    assert far.connected.all()
    assert float(far.ends_off[0, 0]) == pytest.approx(30, rel=0.01)
    assert float(far.length()) == pytest.approx(math.pi / 2, rel=1e-3)
