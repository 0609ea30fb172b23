"""Geodesics have the lengths that closed forms say, and stay on the data."""

import math
import warnings

import numpy as np
import pytest
import torch

import carre
from carre import toolkit
from carre.fields import ExactField, KernelField
from carre.manifolds import CliffordTorus, Embedded, Sphere, SwissRoll, Union
from carre.toolkit import EnergyGeodesic, Geodesic, sample_graph
from tests.toolkit.round_sphere import RoundSphere


def test_the_fast_sphere_is_the_exact_one(rng):
    points = torch.randn(20, 3, generator=rng, dtype=torch.float64)
    exact = ExactField(Sphere(2))
    torch.testing.assert_close(RoundSphere().denoise(points, 0.3), exact.denoise(points, 0.3))
    torch.testing.assert_close(RoundSphere().metric(points, 0.3).dense(), exact.metric(points, 0.3).dense())


def geodesic(field, start, end, bandwidth, *, n_nodes=None, kind=Geodesic, **options):
    return toolkit.path(field, start, end, bandwidth, method=kind(**options), n_nodes=n_nodes)


def great_circle(start, end):
    return (start * end).sum(-1).clamp(-1, 1).acos()


def two_spheres(distance=10.0):
    shift = torch.tensor([distance, 0.0, 0.0], dtype=torch.float64)
    return Union([Sphere(2), Embedded(Sphere(2), torch.eye(3).double(), shift)])


def unrolled(points):
    """Arc length along the spiral and height: the sheet laid flat."""
    angle = points[:, [0, 2]].norm(dim=-1)
    return torch.stack([(angle * (1 + angle.square()).sqrt() + angle.asinh()) / 2, points[:, 1]], 1)


@pytest.fixture(scope="module")
def roll():
    return SwissRoll(end=3.5 * math.pi, height=6.0, n_nodes=640)


@pytest.mark.slow
@pytest.mark.parametrize(("dimension", "ambient", "bandwidth"), [(2, 3, 0.05), (5, 9, 0.15)])
def test_lengths_on_spheres_are_angles(rng, dimension, ambient, bandwidth):
    """The landing is off by O(σ⁴): 1e-3 at σ = 0.15 in dimension 5."""
    sphere = Sphere(dimension).embed(ambient, generator=rng)
    start, end = sphere.sample(10, generator=rng), sphere.sample(10, generator=rng)
    path = geodesic(ExactField(sphere), start, end, bandwidth)
    bias = 2 * dimension * bandwidth**4
    torch.testing.assert_close(path.length(), great_circle(start, end), rtol=bias + 1e-5, atol=0)
    assert path.arrived.all()
    assert path.connected.all()
    assert float(sphere.distance(path.nodes.flatten(0, 1)).max()) < 0.01 * bandwidth
    torch.testing.assert_close(path.nodes[:, [0, -1]], torch.stack([start, end], 1), rtol=0, atol=0.01 * bandwidth)


@pytest.mark.slow
def test_lengths_on_a_flat_torus_are_those_of_the_shortest_way_around(rng):
    torus = CliffordTorus([1.0, 0.5])
    start, end = torus.sample(8, generator=rng), torus.sample(8, generator=rng)
    angles = [torch.atan2(x[:, 1::2], x[:, ::2]) for x in (start, end)]
    turn = torch.remainder(angles[0] - angles[1] + math.pi, 2 * math.pi) - math.pi
    truth = (turn * torch.tensor([1.0, 0.5])).norm(dim=-1)
    path = geodesic(ExactField(torus), start, end, 0.05, n_nodes=17)
    torch.testing.assert_close(path.length(), truth, rtol=1e-4, atol=0)


@pytest.mark.slow
def test_lengths_on_a_swiss_roll_are_those_on_the_unrolled_sheet(rng, roll):
    """Also at its edges, and never across the gap of 2π between sheets."""
    start, end, samples = (roll.sample(n, generator=rng) for n in (8, 8, 250))
    path = geodesic(ExactField(roll), start, end, 0.5, samples=samples)
    truth = (unrolled(start) - unrolled(end)).norm(dim=-1)
    torch.testing.assert_close(path.length(), truth, rtol=1e-3, atol=0)
    assert path.connected.all()
    chords = path.nodes.diff(dim=1).norm(dim=-1).amax()
    dense = path(torch.linspace(0, 1, 301)).flatten(0, 1)
    # The sagitta of a chord on the narrowest turn, of radius 1.5π.
    assert float(roll.distance(dense).max()) < float(chords**2 / (8 * 1.5 * math.pi)) + 0.02


@pytest.mark.slow
def test_without_samples_a_path_that_jumps_between_sheets_says_so(rng, roll):
    def at(t):
        return [[t * math.cos(t), 3.0, t * math.sin(t)]]

    path = geodesic(ExactField(roll), at(4.9), at(10.9), 0.5)
    assert not path.connected.any()
    assert "give samples" in path.reasons[0]


def test_the_number_of_sweeps_does_not_grow_with_the_number_of_nodes(rng):
    """Gradient steps would need n² of them."""
    start, end = Sphere(2).sample(5, generator=rng), Sphere(2).sample(5, generator=rng)
    path = geodesic(RoundSphere(), start, end, 0.1, n_nodes=129, max_sweeps=15)
    assert path.arrived.all()
    torch.testing.assert_close(path.length(), great_circle(start, end), rtol=1e-4, atol=0)


@pytest.mark.parametrize("ridge", [0.1, 0.01])
def test_the_metric_energy_agrees_with_shortening_up_to_its_sag(ridge):
    """On an arc of angle θ the curve of least energy sags by (3/16)λθ²R; the ridge of G adds σ² [THEORY §4.7]."""
    angle, sigma = 2.0, 0.05
    end = [[math.cos(angle), math.sin(angle), 0.0]]
    options = {"n_nodes": 33, "tolerance": 1e-7}
    exact = geodesic(RoundSphere(), [[1.0, 0.0, 0.0]], end, sigma, **options)
    energy = geodesic(RoundSphere(), [[1.0, 0.0, 0.0]], end, sigma, kind=EnergyGeodesic, ridge=ridge, **options)
    sag = 1 - float(energy.nodes.norm(dim=-1).min())
    assert sag == pytest.approx(3 / 16 * ridge * angle**2, rel=0.2, abs=sigma**2)
    assert energy.arrived.all()
    assert float(energy.length()) == pytest.approx(float(exact.length()), rel=2 * sag)


def test_the_ridge_of_the_field_counts_in_the_energy():
    """The metric G + 0.02I with a ridge of 0.01 is the metric G with a ridge of 0.03."""
    ends = [[1.0, 0.0, 0.0]], [[math.cos(1.5), math.sin(1.5), 0.0]]
    options = {"n_nodes": 9, "dimension": 2, "kind": EnergyGeodesic}
    own = geodesic(RoundSphere(ridge=0.02), *ends, 0.05, ridge=0.01, **options)
    given = geodesic(RoundSphere(), *ends, 0.05, ridge=0.03, **options)
    torch.testing.assert_close(own.nodes, given.nodes, rtol=0, atol=1e-9)


def test_distances_of_curves_that_are_still_shortening_are_warned_of_once(rng):
    """From ways over samples: the straight lines between points of a sphere land on great circles at once."""
    points = torch.eye(3, dtype=torch.float64)
    options = {"samples": Sphere(2).sample(60, generator=rng), "n_nodes": 9}
    with pytest.warns(UserWarning, match="3 of 3 pairs were still shortening after max_sweeps=1") as caught:
        toolkit.distances(RoundSphere(), points, None, 0.1, max_sweeps=1, **options)
    assert len(caught) == 1
    assert "Increase max_sweeps" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        toolkit.distances(RoundSphere(), points, None, 0.1, **options)


def test_too_few_nodes_are_named_as_a_cause():
    path = geodesic(RoundSphere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.02, n_nodes=2)
    assert not path.connected.any()
    assert "n_nodes=2 are too few" in path.reasons[0]


@pytest.mark.slow
@pytest.mark.parametrize("with_samples", [pytest.param(False, marks=pytest.mark.slow), True])
def test_points_in_different_components_are_not_connected(rng, with_samples):
    """Also where the pair lies on the line of symmetry between them."""
    union = two_spheres()
    samples = union.sample(400, generator=rng) if with_samples else None
    start = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).double()
    end = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).double()
    path = geodesic(ExactField(union), start, end, 0.1, samples=samples, n_nodes=9)
    assert path.connected.tolist() == [False, True]
    assert "different components" in path.reasons[0]
    assert path.reasons[1] == ""
    distances = toolkit.distances(ExactField(union), start, end, 0.1, samples=samples, n_nodes=9)
    assert torch.isinf(distances[:, 0]).all()
    torch.testing.assert_close(distances[:, 1], torch.full((2,), math.pi / 2).double(), rtol=1e-4, atol=0)


def test_distances_are_a_metric_and_computed_once_for_each_pair(rng):
    points = Sphere(2).sample(6, generator=rng)
    reported = []
    distances = toolkit.distances(RoundSphere(), points.numpy(), None, 0.1, n_nodes=17, progress=reported.append)
    assert isinstance(distances, np.ndarray)
    truth = great_circle(points[:, None], points[None]).fill_diagonal_(0.0)
    np.testing.assert_allclose(distances, truth, rtol=1e-4)
    assert reported[-1] == 1.0


def test_a_point_is_at_no_distance_from_itself(rng):
    points, samples = Sphere(2).sample(3, generator=rng), Sphere(2).sample(100, generator=rng)
    for given in (None, samples):
        path = geodesic(RoundSphere(), points, points, 0.1, samples=given, n_nodes=9)
        assert float(path.length().max()) < 1e-6


def test_a_point_is_at_no_distance_from_itself_even_where_little_was_learned(rng):
    geometry = carre.fit(torch.rand(120, 3, generator=rng), max_steps=5, width=16, bandwidth=0.5, random_state=0)
    corners = torch.eye(3)
    assert (geometry.distances(corners, corners, max_sweeps=2, n_nodes=5, dimension=2).diag() == 0).all()


def test_lengths_do_not_count_the_way_onto_the_data_unless_ends_are_kept():
    points = torch.tensor([[1.1, 0.0, 0.0], [0.0, 0.8, 0.0]], dtype=torch.float64)
    landed = geodesic(RoundSphere(), points[:1], points[1:], 0.1)
    assert float(landed.length()) == pytest.approx(math.pi / 2, rel=1e-4)
    torch.testing.assert_close(landed.ends_off, torch.tensor([[1.0, 2.0]]).double(), rtol=0.02, atol=0)
    assert float(landed.strayed) < 0.1
    kept = geodesic(RoundSphere(), points[:1], points[1:], 0.1, ends="given")
    assert torch.equal(kept.nodes[0, [0, -1]], points)
    torch.testing.assert_close(kept.ends_off, landed.ends_off, rtol=0.05, atol=0)
    assert float(kept.length()) > math.pi / 2 + 0.1
    assert float(kept.strayed) < 0.1, "the way from the ends onto the data is not the curve's"
    assert kept.connected.all()


def test_distances_are_at_one_scale():
    points = torch.eye(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="bandwidth must be one number for all pairs"):
        toolkit.distances(RoundSphere(), points, None, torch.tensor([0.1, 0.1, 0.2]).double())


def test_an_odd_number_of_nodes_and_two_nodes_are_possible(rng):
    start, end = Sphere(2).sample(4, generator=rng), Sphere(2).sample(4, generator=rng)
    for n_nodes in (2, 3, 12):
        assert geodesic(RoundSphere(), start, end, 0.1, n_nodes=n_nodes).nodes.shape == (4, n_nodes, 3)


def test_one_start_serves_all_ends_and_each_pair_may_have_its_scale(rng):
    start, end = Sphere(2).sample(1, generator=rng), Sphere(2).sample(3, generator=rng)
    path = geodesic(RoundSphere(), start, end, torch.tensor([0.05, 0.1, 0.15]).double(), n_nodes=9)
    torch.testing.assert_close(path.length(), great_circle(start, end), rtol=1e-3, atol=0)


def test_kernels_in_single_precision_come_within_two_percent(rng):
    samples = Sphere(2).sample(600, generator=rng, dtype=torch.float32)
    start, end = Sphere(2).sample(2, generator=rng), Sphere(2).sample(2, generator=rng)
    field = KernelField(samples)
    path = geodesic(field, start.float(), end.float(), 0.25, samples=sample_graph(field, samples, 0.25), n_nodes=17)
    assert path.nodes.dtype == torch.float32
    assert path.connected.all()
    torch.testing.assert_close(path.length().double(), great_circle(start, end), rtol=0.02, atol=0)


@pytest.mark.slow
def test_a_learned_field_comes_within_two_percent(rng):
    samples, start, end = (Sphere(2).sample(n, generator=rng) for n in (1000, 50, 50))
    fitted = carre.fit(samples.numpy(), max_steps=300, width=32, random_state=0, verbose=False)
    path = geodesic(fitted, start.numpy(), end.numpy(), None, samples=samples.numpy(), dimension=2)
    error = (path.length() / great_circle(start, end) - 1).abs()
    assert path.connected.all()
    assert float(error.median()) < 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": [[1.0, 0.0, 0.0]]}, "start must have 2 columns"),
        ({"end": [[0.0, 1.0, 0.0]]}, "end must have 2 columns"),
        ({"end": [[math.nan, 1.0]]}, "end must be finite"),
        (
            {"start": [[1.0, 0.0]] * 3, "end": [[0.0, 1.0]] * 2},
            "end must be as many as start, 3, or one for all; got",
        ),
        ({"n_nodes": 1}, "n_nodes must be at least 2"),
        ({"kind": EnergyGeodesic, "ridge": 0.0}, "ridge must be positive"),
        ({"max_sweeps": 0}, "max_sweeps must be at least 1"),
        ({"tolerance": -1.0}, "tolerance must be at least 0"),
        ({"dimension": 3}, "dimension must lie between 1 and 2"),
        ({"bandwidth": -0.1}, "bandwidth must be positive"),
        ({"samples": [[1.0, 0.0]]}, "samples must be at least 2"),
        ({"samples": [[1.0, 0.0, 0.0]] * 20}, "samples must have 2 columns"),
    ],
)
def test_bad_input_is_named(options, message):
    given = {"start": [[1.0, 0.0]], "end": [[0.0, 1.0]], "bandwidth": 0.1, **options}
    first = [given.pop(name) for name in ("start", "end", "bandwidth")]
    with pytest.raises(ValueError, match=message):
        geodesic(ExactField(Sphere(1)), *first, **given)
