"""Parallel transport is an isometry, and knows the curvature that a loop encloses."""

import math

import numpy as np
import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import CliffordTorus, Sphere
from carre.toolkit.geodesic import geodesic
from carre.toolkit.path import Path
from carre.toolkit.transport import _check_path, parallel_transport, polar_factor
from tests.toolkit.round_sphere import RoundSphere


def latitude(colatitude, n_steps):
    turn = torch.linspace(0, 2 * math.pi, n_steps + 1, dtype=torch.float64)
    ring = [math.sin(colatitude) * turn.cos(), math.sin(colatitude) * turn.sin(), math.cos(colatitude) + 0 * turn]
    return Path.through(torch.stack(ring, 1))


def test_holonomy_around_a_latitude_is_the_area_of_its_cap_to_second_order():
    """2π(1 − cos θ). The polygon of great arcs encloses less, by (π³/3)·sin²θ cos θ·2/n² to leading order."""
    theta = math.pi / 3
    south = torch.tensor([[math.cos(theta), 0.0, -math.sin(theta)]], dtype=torch.float64)
    for n_steps in (50, 100, 200):
        carried = parallel_transport(RoundSphere(), latitude(theta, n_steps), south, 0.1, dim=2)[0, -1]
        angle = math.atan2(float(carried[1]), float(carried @ south[0])) % (2 * math.pi)
        missing = 2 / 3 * math.pi**3 * math.sin(theta) ** 2 * math.cos(theta) / n_steps**2
        assert abs(angle - 2 * math.pi * (1 - math.cos(theta))) == pytest.approx(missing, rel=0.02)


def test_lengths_and_angles_stay(rng):
    sphere = Sphere(3)
    field = ExactField(sphere)
    path = geodesic(field, sphere.sample(4, generator=rng), sphere.sample(4, generator=rng), 0.1, n_nodes=9)
    basis = sphere.tangent_basis(path.nodes[:, 0])
    carried = torch.stack([parallel_transport(field, path, v, 0.1, dim=3) for v in basis.unbind(-1)], -1)
    gram = carried.mT @ carried
    torch.testing.assert_close(gram, torch.eye(3).double().expand_as(gram), rtol=0, atol=1e-9)


def test_along_a_geodesic_the_velocity_is_carried_along():
    end = [[math.cos(2.0), math.sin(2.0), 0.0]]
    path = geodesic(RoundSphere(), [[1.0, 0.0, 0.0]], end, 0.1)
    carried = parallel_transport(RoundSphere(), path, np.array([[5.0, 1.0, 0.0]]), 0.1)
    assert isinstance(carried, np.ndarray)
    np.testing.assert_allclose(carried[0, -1], [-math.sin(2.0), math.cos(2.0), 0.0], atol=1e-4)


def test_a_flat_torus_has_no_holonomy():
    turn = torch.linspace(0, 2 * math.pi, 41, dtype=torch.float64)
    loop = torch.stack([turn.cos(), turn.sin(), 0.5 * (2 * turn).cos(), 0.5 * (2 * turn).sin()], 1)
    vector = torch.tensor([[0.0, 1.0, 0.0, -2.0]], dtype=torch.float64)
    carried = parallel_transport(ExactField(CliffordTorus([1.0, 0.5])), Path.through(loop), vector, 0.1)
    torch.testing.assert_close(carried[:, -1], vector, rtol=0, atol=1e-9)


def test_the_polar_factor_is_the_nearest_rotation_and_keeps_zeros(rng):
    matrices = torch.randn(10, 3, 3, generator=rng, dtype=torch.float64)
    rotations = polar_factor(matrices)
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(3).double().expand(10, 3, 3))
    symmetric = rotations.mT @ matrices
    torch.testing.assert_close(symmetric, symmetric.mT)
    assert torch.equal(polar_factor(torch.zeros(2, 2)), torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[0.0, 1.0, 0.0]] * 2, "vectors must be one per path, 1; got 2"),
        ([[0.0, 1.0]], "vectors must have 3 columns"),
        ([[0.0, math.nan, 0.0]], "vectors must be finite"),
    ],
)
def test_bad_input_is_named(vectors, message):
    with pytest.raises(ValueError, match=message):
        parallel_transport(RoundSphere(), latitude(1.0, 10), vectors, 0.1)


def test_a_path_in_another_space_is_named():
    with pytest.raises(ValueError, match="path must run in the field's space, dimension 3; got 2"):
        parallel_transport(RoundSphere(), Path.through([[0.0, 1.0], [1.0, 0.0]]), [[0.0, 1.0, 0.0]], 0.1)


def test_what_is_not_a_path_is_named():
    """Asked of the check itself, since the type checker of the tests would be first."""
    with pytest.raises(ValueError, match=r"path must be a Path; got Tensor. Path.through\(nodes\) makes one"):
        _check_path(torch.zeros(4, 3), 3)
