"""Exponential and logarithm are inverse to one another, geodesics go straight on, and transport is an isometry."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from carre.fields import ExactField, KernelField
from carre.manifolds import Box, CliffordTorus, Embedded, Interval, Sphere, TorusOfRevolution, Union
from carre.toolkit import Path, exponential, logarithm, path, transport
from tests.toolkit.round_sphere import RoundSphere

FLAT = CliffordTorus([1.0, 0.5])


def tangents(manifold, points, rng, length):
    basis = manifold.tangent_basis(points)
    coordinates = torch.randn(len(points), basis.shape[-1], generator=rng, dtype=points.dtype)
    return length * torch.einsum("nda,na->nd", basis, normalize(coordinates, dim=-1))


@pytest.mark.parametrize("bandwidth", [0.05, 0.2])
def test_the_exponential_on_a_sphere_follows_great_circles_at_constant_speed(rng, bandwidth):
    """By symmetry the tangent spaces are exact at any σ, and so is every step but for its length, to O(h⁴)."""
    points = Sphere(2).sample(8, generator=rng)
    velocities = tangents(Sphere(2), points, rng, 2.5)
    curve = exponential(RoundSphere(), points, velocities, bandwidth, n_steps=20)
    times = torch.linspace(0, 2.5, 21, dtype=torch.float64)[None, :, None]
    circle = points[:, None] * times.cos() + velocities[:, None] / 2.5 * times.sin()
    torch.testing.assert_close(curve.nodes, circle, rtol=0, atol=1e-7)
    torch.testing.assert_close(curve.length(), torch.full((8,), 2.5).double(), rtol=1e-5, atol=0)
    assert curve.connected.all()


@pytest.mark.slow
def test_the_exponential_on_a_torus_keeps_the_constant_of_clairaut(rng):
    """The distance to the axis times the speed around it is constant along geodesics."""
    torus = TorusOfRevolution(n_nodes=256)
    points = torus.sample(4, generator=rng)
    nodes = exponential(ExactField(torus), points, tangents(torus, points, rng, 2.0), 0.1, dimension=2).nodes
    # The area that the axis sees per step.
    clairaut = (nodes[:, :-1, 0] * nodes[:, 1:, 1] - nodes[:, :-1, 1] * nodes[:, 1:, 0]) * 16
    assert float((clairaut / clairaut[:, :1] - 1).abs().max()) < 0.01


@pytest.mark.slow
def test_steps_converge_to_second_order_at_least():
    """On a flat torus of unequal radii, where a geodesic turns in both planes."""
    points, velocity = torch.tensor([[[1.0, 0.0, 0.5, 0.0]], [[0.0, 1.0, 0.0, 1.0]]], dtype=torch.float64)
    truth = torch.tensor([math.cos(1), math.sin(1), math.cos(2) / 2, math.sin(2) / 2], dtype=torch.float64)
    errors = []
    for n_steps in (4, 8):
        curve = exponential(ExactField(FLAT), points, velocity, 0.02, n_steps=n_steps)
        errors.append(float((curve.nodes[0, -1] - truth).norm()))
    assert errors[0] / errors[1] > 3.5


@pytest.mark.parametrize(
    ("field", "manifold"),
    [
        pytest.param(RoundSphere(), Sphere(2), id="sphere"),
        pytest.param(ExactField(Sphere(5)), Sphere(5), id="S5", marks=pytest.mark.slow),
        pytest.param(ExactField(FLAT), FLAT, id="flat torus", marks=pytest.mark.slow),
    ],
)
def test_the_exponential_of_the_logarithm_is_the_other_point(rng, field, manifold):
    points, others = manifold.sample(6, generator=rng), manifold.sample(6, generator=rng)
    vectors = logarithm(field, points, others, 0.05, n_nodes=17)
    ends = exponential(field, points, vectors, 0.05, n_steps=16).nodes[:, -1]
    assert float(((ends - others).norm(dim=-1) / vectors.norm(dim=-1)).max()) < 1e-3


@pytest.mark.slow
def test_the_logarithm_of_the_exponential_is_the_vector(rng):
    torus = TorusOfRevolution(n_nodes=256)
    points = torus.sample(3, generator=rng)
    vectors = tangents(torus, points, rng, 0.8)
    field = ExactField(torus)
    ends = exponential(field, points, vectors, 0.1, dimension=2).nodes[:, -1]
    back = logarithm(field, points, ends, 0.1, dimension=2, n_nodes=17)
    torch.testing.assert_close(back, vectors, rtol=0, atol=0.008)


def test_only_the_tangent_part_of_a_velocity_counts():
    curve = exponential(ExactField(Sphere(1)), np.array([[1.0, 0.0]]), np.array([[7.0, 1.0]]), 0.1, n_steps=8)
    np.testing.assert_allclose(curve.numpy()[0, -1], [math.cos(1.0), math.sin(1.0)], atol=1e-4)


def test_no_velocity_is_no_motion():
    curve = exponential(ExactField(Sphere(1)), [[1.0, 0.0]], [[0.0, 0.0]], 0.1, n_steps=3)
    np.testing.assert_allclose(curve.numpy()[0], np.tile([1.0, 0.0], (4, 1)), atol=1e-4)


def test_a_geodesic_that_runs_over_an_edge_says_so():
    basis = torch.eye(3, 2, dtype=torch.float64)
    field = ExactField(Embedded(Box([0.0, 0.0], [1.0, 1.0]), basis))
    points, velocities = torch.tensor([[[0.5, 0.5, 0.0]], [[0.0, 1.5, 0.0]]], dtype=torch.float64)
    curve = exponential(field, points, velocities, 0.05, n_steps=12)
    assert not curve.connected.any()
    assert "edge" in curve.reasons[0]
    assert exponential(field, points, 0.2 * velocities, 0.05, n_steps=4).connected.all()


def test_the_logarithm_between_components_is_not_a_number():
    shift = torch.tensor([6.0], dtype=torch.float64)
    field = ExactField(Union([Interval(0.0, 1.0), Embedded(Interval(0.0, 1.0), torch.eye(1).double(), shift)]))
    assert np.isnan(logarithm(field, [[0.5]], [[6.5]], 0.1, n_nodes=9)).all()


def test_logarithms_of_curves_that_are_still_shortening_are_warned_of(rng):
    points, samples = torch.eye(3, dtype=torch.float64), Sphere(2).sample(60, generator=rng)
    with pytest.warns(UserWarning, match="3 of 3 pairs were still shortening after max_sweeps=1"):
        logarithm(RoundSphere(), points, points.roll(1, 0), 0.1, samples=samples, n_nodes=9, max_sweeps=1)


def test_kernels_in_single_precision_invert_within_three_percent(rng):
    samples = Sphere(1).sample(400, generator=rng, dtype=torch.float32)
    field = KernelField(samples)
    points, others = samples[:4], samples[4:8]
    vectors = logarithm(field, points, others, 0.15, samples=samples, n_nodes=17)
    ends = exponential(field, points, vectors, 0.15, n_steps=16).nodes[:, -1]
    assert vectors.dtype == torch.float32
    assert float(((ends - others).norm(dim=-1) / vectors.norm(dim=-1)).max()) < 0.03


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"velocities": [[0.0, 1.0]] * 2}, "velocities must be as many as the points, 1; got 2"),
        ({"velocities": [[0.0, math.inf]]}, "velocities must be finite"),
        ({"points": [[1.0, 0.0, 0.0]]}, "points must have 2 columns"),
        ({"n_steps": 0}, "n_steps must be at least 1"),
        ({"dimension": 5}, "dimension must lie between 1 and 2"),
    ],
)
def test_bad_input_of_the_exponential_is_named(options, message):
    given = {"points": [[1.0, 0.0]], "velocities": [[0.0, 1.0]], **options}
    with pytest.raises(ValueError, match=message):
        exponential(ExactField(Sphere(1)), given.pop("points"), given.pop("velocities"), 0.1, **given)


def latitude(colatitude, n_steps):
    turn = torch.linspace(0, 2 * math.pi, n_steps + 1, dtype=torch.float64)
    ring = [math.sin(colatitude) * turn.cos(), math.sin(colatitude) * turn.sin(), math.cos(colatitude) + 0 * turn]
    return Path.through(torch.stack(ring, 1))


def test_holonomy_around_a_latitude_is_the_area_of_its_cap_to_second_order():
    """2π(1 − cos θ). The polygon of great arcs encloses less, by (π³/3)·sin²θ cos θ·2/n² to leading order."""
    theta = math.pi / 3
    south = torch.tensor([[math.cos(theta), 0.0, -math.sin(theta)]], dtype=torch.float64)
    for n_steps in (50, 100, 200):
        carried = transport(RoundSphere(), latitude(theta, n_steps), south, 0.1, dimension=2)[0, -1]
        angle = math.atan2(float(carried[1]), float(carried @ south[0])) % (2 * math.pi)
        missing = 2 / 3 * math.pi**3 * math.sin(theta) ** 2 * math.cos(theta) / n_steps**2
        assert abs(angle - 2 * math.pi * (1 - math.cos(theta))) == pytest.approx(missing, rel=0.02)


def test_lengths_and_angles_stay(rng):
    sphere = Sphere(3)
    field = ExactField(sphere)
    curve = path(field, sphere.sample(4, generator=rng), sphere.sample(4, generator=rng), 0.1, n_nodes=9)
    basis = sphere.tangent_basis(curve.nodes[:, 0])
    carried = torch.stack([transport(field, curve, v, 0.1, dimension=3) for v in basis.unbind(-1)], -1)
    gram = carried.mT @ carried
    torch.testing.assert_close(gram, torch.eye(3).double().expand_as(gram), rtol=0, atol=1e-9)


def test_along_a_geodesic_the_velocity_is_carried_along():
    end = [[math.cos(2.0), math.sin(2.0), 0.0]]
    curve = path(RoundSphere(), [[1.0, 0.0, 0.0]], end, 0.1)
    carried = transport(RoundSphere(), curve, np.array([[5.0, 1.0, 0.0]]), 0.1)
    assert isinstance(carried, np.ndarray)
    np.testing.assert_allclose(carried[0, -1], [-math.sin(2.0), math.cos(2.0), 0.0], atol=1e-4)


def test_a_flat_torus_has_no_holonomy():
    turn = torch.linspace(0, 2 * math.pi, 41, dtype=torch.float64)
    loop = torch.stack([turn.cos(), turn.sin(), 0.5 * (2 * turn).cos(), 0.5 * (2 * turn).sin()], 1)
    vector = torch.tensor([[0.0, 1.0, 0.0, -2.0]], dtype=torch.float64)
    carried = transport(ExactField(CliffordTorus([1.0, 0.5])), Path.through(loop), vector, 0.1)
    torch.testing.assert_close(carried[:, -1], vector, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[0.0, 1.0, 0.0]] * 2, "vectors must be one per path, 1; got 2"),
        ([[0.0, 1.0]], "vectors must have 3 columns"),
        ([[0.0, math.nan, 0.0]], "vectors must be finite"),
    ],
)
def test_vectors_that_do_not_fit_are_named(vectors, message):
    with pytest.raises(ValueError, match=message):
        transport(RoundSphere(), latitude(1.0, 10), vectors, 0.1)


def test_a_path_in_another_space_is_named():
    with pytest.raises(ValueError, match="path must run in the field's space, dimension 3; got 2"):
        transport(RoundSphere(), Path.through([[0.0, 1.0], [1.0, 0.0]]), [[0.0, 1.0, 0.0]], 0.1)


def test_what_is_not_a_path_is_named(unchecked):
    with pytest.raises(ValueError, match=r"path must be a Path; got Tensor .* Path.through\(nodes\) makes one"):
        transport(RoundSphere(), torch.zeros(4, 3), [[0.0, 1.0, 0.0]], 0.1)
