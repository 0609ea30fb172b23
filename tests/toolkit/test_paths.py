"""Paths arrive where nothing is in their way, and say so where something is; threads also join ends off the data."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from carre import toolkit
from carre.boundary import Points, as_bandwidth, as_points
from carre.fields import DataField, ExactField, KernelField
from carre.manifolds import CliffordTorus, Sphere, SwissRoll
from carre.metric import LowRankMetric
from carre.toolkit import PATH_METHODS, Flow, Geodesic, Path, PathMethod, Straight, Thread
from tests.toolkit.round_sphere import RoundSphere


def flow(field, start, end, bandwidth, *, n_nodes=None, **options):
    return toolkit.path(field, start, end, bandwidth, method=Flow(**options), n_nodes=n_nodes)


def thread(field, start, end, bandwidth, *, n_nodes=None, **options):
    return toolkit.path(field, start, end, bandwidth, method=Thread(**options), n_nodes=n_nodes)


# The verb.


@pytest.mark.parametrize("name", PATH_METHODS)
def test_a_name_stands_for_a_record_with_its_defaults(name):
    start, end = [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]
    record = PATH_METHODS[name]()
    assert isinstance(record, PathMethod)
    named, recorded = (toolkit.path(RoundSphere(), start, end, 0.1, method=method) for method in (name, record))
    assert torch.equal(named.nodes, recorded.nodes)
    assert named.n_nodes == (17 if name == "thread" else 33)
    assert named.nodes[0, 0].tolist() == start[0]
    assert named.nodes[0, -1].tolist() == end[0]


@pytest.mark.parametrize("method", ["shortest", 3, Flow], ids=["name", "number", "class"])
@pytest.mark.usefixtures("unchecked")
def test_an_unknown_method_is_answered_with_the_names(method):
    message = "method must be one of 'geodesic', 'flow', 'thread', 'straight', 'energy', or a record like"
    with pytest.raises(ValueError, match=message):
        toolkit.path(RoundSphere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1, method=method)


def test_ones_own_record_draws_as_well():
    @dataclass(frozen=True)
    class Halfway:
        default_nodes = 4

        def draw(self, pairs, n_nodes, progress=None):
            return Path.through(torch.lerp(pairs.start, pairs.end, 0.5)[:, None].repeat(1, n_nodes, 1))

    path = toolkit.path(RoundSphere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1, method=Halfway())
    assert path.numpy().tolist() == [[[0.5, 0.5, 0.0]] * 4]


def test_a_field_without_a_default_scale_needs_one():
    with pytest.raises(ValueError, match="bandwidth must be given for a field that has no default scale"):
        toolkit.path(RoundSphere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]])


class Known(DataField):
    """A sphere that knows samples of itself and its scales, and sees a point as an image of 1 × 1 × 3 pixels."""

    bandwidth, bandwidth_range, device, verbose = 0.1, (0.04, 1.0), torch.device("cpu"), False

    def __init__(self, samples):
        self.field, self.known, self.asked = RoundSphere(), samples, []

    @property
    def dim(self):
        return self.field.dim

    def accept(self, points, *, name="points", single=False):
        given = points if isinstance(points, torch.Tensor) else np.asarray(points)
        given = given[None] if single and given.ndim in (1, 3) else given
        if given.ndim == 2:
            return as_points(given, dim=3, name=name)
        flat = as_points(given.reshape(len(given), -1), dim=3, name=name)
        return Points(flat.tensor, flat.is_array, (1, 1, 3))

    def scale_at(self, bandwidth, points):
        return as_bandwidth(self.bandwidth if bandwidth is None else bandwidth, points)

    def sample_graph(self, bandwidth):
        self.asked.append(bandwidth)
        return toolkit.sample_graph(self.field, self.known, bandwidth)

    def samples(self):
        self.asked.append("samples")
        return self.known


@pytest.fixture
def known(rng):
    return Known(Sphere(2).sample(80, generator=rng))


def test_a_field_that_knows_its_data_gives_scale_and_samples(known):
    """At one scale the graph that it keeps, at several the samples; the curves are those of a field that is told."""
    start, end = torch.eye(3, dtype=torch.float64)[:2], torch.eye(3, dtype=torch.float64)[[2, 0]]
    path = toolkit.path(known, start, end, n_nodes=9)
    told = toolkit.path(known.field, start, end, 0.1, method=Geodesic(samples=known.known), n_nodes=9)
    assert known.asked == [0.1]
    assert torch.equal(path.nodes, told.nodes)
    sigma = torch.tensor([0.1, 0.2], dtype=torch.float64)
    path = toolkit.path(known, start, end, sigma, n_nodes=9)
    told = toolkit.path(known.field, start, end, sigma, method=Geodesic(samples=known.known), n_nodes=9)
    assert known.asked == [0.1, "samples"]
    assert torch.equal(path.nodes, told.nodes)
    distances = toolkit.distances(known, start, n_nodes=9)
    assert known.asked == [0.1, "samples", 0.1]
    torch.testing.assert_close(distances, math.pi / 2 * (1 - torch.eye(2).double()), rtol=1e-4, atol=0)


def test_the_finest_scale_of_a_thread_is_the_smallest_that_was_trained_on(known):
    start, end = torch.eye(3, dtype=torch.float64)[:2], torch.eye(3, dtype=torch.float64)[[2, 0]]
    sigma = torch.tensor([0.02, 0.2], dtype=torch.float64)
    path = toolkit.path(known, start, end, sigma, method="thread")
    told = toolkit.path(known.field, start, end, sigma, method=Thread(finest=sigma.clamp_max(0.04)))
    assert torch.equal(path.nodes, told.nodes)


def test_images_and_single_points_are_taken_and_vectors_come_back_as_images(known):
    east, north = np.array([[[1.0, 0.0, 0.0]]]), np.array([[[0.0, 1.0, 0.0]]])
    path = toolkit.path(known, east, north, n_nodes=9)
    assert isinstance(path.nodes, torch.Tensor)
    assert path.nodes.shape == (1, 9, 3)
    vector = toolkit.logarithm(known, east, north, n_nodes=9)
    assert vector.shape == (1, 1, 1, 3)
    np.testing.assert_allclose(vector[0, 0, 0], [0.0, math.pi / 2, 0.0], atol=1e-3)
    quarter = toolkit.exponential(known, east[None], vector, n_steps=8)
    np.testing.assert_allclose(quarter.numpy()[0, -1], [0.0, 1.0, 0.0], atol=1e-3)
    carried = toolkit.transport(known, path, vector)
    assert carried.shape == (1, 9, 1, 1, 3)
    np.testing.assert_allclose(carried[0, -1, 0, 0], [-math.pi / 2, 0.0, 0.0], atol=1e-3)
    assert toolkit.distance_from_data(known, 2 * east[None]).shape == (1,)


# Straight lines.


def test_a_straight_line_shares_a_single_start():
    end = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    path = toolkit.path(RoundSphere(), [[0.0, 0.0, 0.2]], end, 0.1, method="straight", n_nodes=5)
    np.testing.assert_allclose(path.numpy()[:, 2], [[0.5, 0.0, 0.1], [0.0, 1.0, 0.1]])


def test_a_straight_line_knows_whether_it_leaves_the_data():
    """The chord of a right angle is 1 − 1/√2 below the sphere in its middle: 2.93σ at σ = 0.1, 5.86σ at half of it."""
    start, end = [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0], [math.cos(0.2), math.sin(0.2), 0.0]]
    path = toolkit.path(RoundSphere(), start, end, 0.05, method=Straight())
    assert path.connected.tolist() == [False, True]
    assert float(path.strayed[0]) == pytest.approx((1 - 0.5**0.5) / 0.05, rel=0.01)
    assert path.reasons == ("leaves the data, by up to 5.9σ. Use method='geodesic'", "")


# Flows.


def test_the_flow_on_a_sphere_arrives_along_the_great_circle(rng):
    """It stays in the plane of its ends, and off the sphere by ½(1/α − 1)η²|v|² at most, |v| ≤ 1 [THEORY §4.6]."""
    sphere = Sphere(2)
    start, end = sphere.sample(20, generator=rng), sphere.sample(20, generator=rng)
    path = flow(RoundSphere(), start, end, 0.1, step=0.1, landing=0.5)
    assert path.arrived.all()
    assert path.connected.all()
    assert torch.equal(path.nodes[:, 0], start)
    assert torch.equal(path.nodes[:, -1], end)
    normal = torch.nn.functional.normalize(torch.linalg.cross(start, end), dim=-1)
    assert float(torch.einsum("pnd,pd->pn", path.nodes, normal).abs().max()) < 1e-12
    assert float(sphere.distance(path.nodes.flatten(0, 1)).max()) < 0.1**2 / 2
    assert path.reasons == ("",) * 20


@pytest.mark.slow
def test_the_flow_stops_between_the_sheets_of_a_swiss_roll_and_says_so():
    """From t = 6.28 towards t = 12.88 it stands still at t = 6.67 [THEORY §4.6]."""
    roll = SwissRoll()
    points = [[t * math.cos(t), 10.0, t * math.sin(t)] for t in (6.28, 12.88)]
    path = flow(ExactField(roll), points[:1], points[1:], 0.3)
    assert not path.arrived.any()
    assert path.connected.all()
    assert "stuck at 87% of the initial distance" in path.reasons[0]
    assert float(path.nodes[0, -1, [0, 2]].norm()) == pytest.approx(6.67, abs=0.01)


def test_without_landing_the_flow_drifts_off():
    """By about ηκ∫|v|ds/2 = 0.05θ²/4 [THEORY §4.6], here for θ = 1."""
    start, end = torch.tensor([[[1.0, 0.0, 0.0]], [[math.cos(1.0), math.sin(1.0), 0.0]]]).double()
    options = {"step": 0.1, "tolerance": 0.02, "max_steps": 60}
    drift = Sphere(2).distance
    landed = flow(RoundSphere(), start, end, 0.05, landing=1.0, **options)
    free = flow(RoundSphere(), start, end, 0.05, landing=0.0, **options)
    assert float(drift(landed.nodes[0]).max()) < 2e-3
    assert 0.01 < float(drift(free.nodes[0, :-1]).max()) < 0.05


def test_arrays_of_single_precision_and_kernels_are_welcome(rng):
    samples = Sphere(1).sample(300, generator=rng, dtype=torch.float32)
    path = flow(KernelField(samples), samples[:5].numpy(), samples[5:10].numpy(), 0.15)
    assert path.nodes.dtype == torch.float32
    assert path.arrived.all()


def test_a_path_that_needs_more_steps_says_so():
    path = flow(ExactField(Sphere(1)), [[1.0, 0.0]], [[0.0, 1.0]], 0.1, max_steps=3)
    assert not path.arrived.any()
    assert "after max_steps=3" in path.reasons[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -0.1}, "step must lie between 0 and 2"),
        ({"shortcut": 2.0}, "shortcut must lie between 0 and 1"),
        ({"landing": -1.0}, "landing must lie between 0 and 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"tolerance": 0.0}, "tolerance must lie between 0 and 1"),
        ({"n_nodes": 1}, "n_nodes must be at least 2"),
        ({"start": [[1.0, 0.0, 0.0]]}, "start must have 2 columns"),
        ({"end": [[math.nan, 0.0]]}, "end must be finite"),
        (
            {"start": [[1.0, 0.0]] * 2, "end": [[0.0, 1.0]] * 3},
            "end must be as many as start, 2, or one for all; got 3",
        ),
    ],
)
def test_bad_input_of_a_flow_is_named(options, message):
    given = {"start": [[1.0, 0.0]], "end": [[0.0, 1.0]], "max_steps": 2, **options}
    with pytest.raises(ValueError, match=message):
        flow(ExactField(Sphere(1)), given.pop("start"), given.pop("end"), 0.1, **given)


def test_where_a_field_knows_nothing_a_path_says_so():
    class Nowhere(RoundSphere):
        def denoise(self, points, bandwidth):
            return points * math.nan

    for method in ("flow", "thread", "straight"):
        path = toolkit.path(Nowhere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1, method=method)
        assert not path.connected.any()
        assert "NaN or infinite" in path.reasons[0]


# Threads.


@pytest.fixture
def arcs(rng):
    """A right angle, and two at random, on the 2-sphere."""
    sphere = Sphere(2)
    start = torch.cat([torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), sphere.sample(2, generator=rng)])
    end = torch.cat([torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64), sphere.sample(2, generator=rng)])
    return start, end


def test_a_thread_on_a_sphere_is_the_great_circle_inside_by_the_bias_of_the_denoiser(arcs):
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


def test_a_thread_starts_and_ends_where_it_should_also_off_the_data(arcs):
    start, end = arcs
    path = thread(ExactField(Sphere(2)), 1.2 * start, 0.9 * end, 0.2, finest=0.05)
    assert torch.equal(path.nodes[:, 0], 1.2 * start)
    assert torch.equal(path.nodes[:, -1], 0.9 * end)
    assert float((path.nodes[:, 8].norm(dim=-1) - 1).abs().max()) < 0.06


@pytest.mark.slow
def test_a_thread_agrees_with_the_geodesic_on_a_flat_torus(rng):
    torus = CliffordTorus([1.0, 1.0])
    start = torus.sample(1, generator=rng)
    turned = torch.tensor([[math.cos(0.9), -math.sin(0.9)], [math.sin(0.9), math.cos(0.9)]], dtype=torch.float64)
    end = torch.cat([start[:, :2] @ turned.T, start[:, 2:]], 1)
    field = ExactField(torus)
    drawn = thread(field, start, end, 0.1, max_sweeps=200, tolerance=1e-4)
    shortest = toolkit.path(field, start, end, 0.1, n_nodes=17)
    torch.testing.assert_close(drawn.length(), shortest.length(), rtol=0.02, atol=0)


def test_metric_and_denoiser_are_asked_at_the_finest_scale_at_the_ends_and_the_bandwidth_between(arcs):
    seen = []

    class Spy(ExactField):
        def _denoise(self, points, bandwidth):
            seen.append(bandwidth)
            return super()._denoise(points, bandwidth)

        def _metric(self, points, bandwidth):
            seen.append(bandwidth)
            return super()._metric(points, bandwidth)

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


def test_one_sweep_of_a_thread_is_its_formula_and_spaces_nodes_evenly():
    """From the line y = 1, tension is nothing and landing α takes α/2 off the inner nodes; then they are spaced."""
    path = thread(Shrinking(), [[0.0, 1.0]], [[4.0, 1.0]], 0.1, landing=0.4, max_sweeps=1, n_nodes=5)
    inner = torch.tensor([[0.0, 1.0], [1.0, 0.8], [2.0, 0.8], [3.0, 0.8], [4.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(path.nodes, Path.through(inner).resample(5).nodes)
    gaps = path.nodes.diff(dim=1).norm(dim=-1)
    torch.testing.assert_close(gaps, gaps.mean().expand_as(gaps), rtol=1e-3, atol=0)


def test_a_thread_says_when_it_was_not_given_the_time(arcs):
    path = thread(ExactField(Sphere(2)), *arcs, 0.1, max_sweeps=2)
    assert not path.arrived.any()
    assert "still moving after max_sweeps=2" in path.reasons[0]


def test_each_thread_is_drawn_as_if_it_were_alone(arcs):
    start, end = arcs
    field = ExactField(Sphere(2))
    together = thread(field, start, end, 0.1)
    alone = thread(field, start[1:2], end[1:2], 0.1)
    torch.testing.assert_close(together.nodes[1:2], alone.nodes)


def test_two_nodes_of_a_thread_are_the_ends(arcs):
    path = thread(ExactField(Sphere(2)), *arcs, 0.1, n_nodes=2)
    assert torch.equal(path.nodes, torch.stack(arcs, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"finest": 0.3}, "finest must be at most the bandwidth"),
        ({"finest": -0.1}, "finest must be positive"),
        ({"finest": "a"}, "finest must be numeric"),
        ({"slope": 0.0}, "slope must be a positive number"),
        ({"slope": math.inf}, "slope must be a finite number"),
        ({"landing": 0.0}, "landing must be a positive number"),
        ({"landing": "a"}, "landing must be a finite number"),
        ({"landing": 1.5}, "landing must be at most 1"),
        ({"tolerance": -1.0}, "tolerance must be a positive number"),
        ({"tolerance": None}, "tolerance must be a finite number"),
        ({"max_sweeps": 0}, "max_sweeps must be at least 1"),
        ({"n_nodes": 1}, "n_nodes must be at least 2"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_options_of_a_thread_are_named(arcs, options, message):
    with pytest.raises(ValueError, match=message):
        thread(ExactField(Sphere(2)), *arcs, 0.1, **options)
