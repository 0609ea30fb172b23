"""Interpolation arrives where nothing is in its way, and says so where something is."""

import math

import numpy as np
import pytest
import torch

from carre.fields import ExactField, KernelField
from carre.manifolds import Sphere, SwissRoll
from carre.toolkit.interpolation import interpolate, lerp
from tests.toolkit.round_sphere import RoundSphere


def test_lerp_is_straight_and_shares_a_single_start():
    path = lerp([[0.0, 0.0]], np.array([[1.0, 0.0], [0.0, 2.0]]), 5)
    np.testing.assert_allclose(path.numpy()[:, 2], [[0.5, 0.0], [0.0, 1.0]])


def test_lerp_knows_whether_it_leaves_the_data_only_where_a_field_is_given():
    """The chord of a right angle is 1 − 1/√2 below the sphere in its middle: 2.93σ at σ = 0.1, 5.86σ at half of it."""
    start, end = [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0], [math.cos(0.2), math.sin(0.2), 0.0]]
    blind = lerp(start, end)
    assert blind.strayed.isnan().all()
    assert blind.reasons == ("not examined: give a field and a bandwidth",) * 2
    seeing = lerp(start, end, field=RoundSphere(), bandwidth=0.05)
    assert torch.equal(seeing.nodes, blind.nodes)
    assert seeing.connected.tolist() == [False, True]
    assert float(seeing.strayed[0]) == pytest.approx((1 - 0.5**0.5) / 0.05, rel=0.01)
    assert "leaves the data, by up to 5.9σ" in seeing.reasons[0]
    assert seeing.reasons[1] == ""


@pytest.mark.parametrize(
    ("options", "missing"), [({"bandwidth": 0.1}, "field"), ({"field": RoundSphere()}, "bandwidth")]
)
def test_lerp_needs_a_field_and_its_bandwidth_together(options, missing):
    with pytest.raises(ValueError, match=f"{missing} must be given together"):
        lerp([[0.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]], **options)


def test_the_flow_on_a_sphere_arrives_along_the_great_circle(rng):
    """It stays in the plane of its ends, and off the sphere by ½(1/α − 1)η²|v|² at most, |v| ≤ 1 [THEORY §4.6]."""
    sphere = Sphere(2)
    start, end = sphere.sample(20, generator=rng), sphere.sample(20, generator=rng)
    path = interpolate(RoundSphere(), start, end, 0.1, step=0.1, landing=0.5)
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
    path = interpolate(ExactField(roll), points[:1], points[1:], 0.3)
    assert not path.arrived.any()
    assert path.connected.all()
    assert "stuck at 87% of the initial distance" in path.reasons[0]
    assert float(path.nodes[0, -1, [0, 2]].norm()) == pytest.approx(6.67, abs=0.01)


def test_without_landing_the_flow_drifts_off():
    """By about ηκ∫|v|ds/2 = 0.05θ²/4 [THEORY §4.6], here for θ = 1."""
    start, end = torch.tensor([[[1.0, 0.0, 0.0]], [[math.cos(1.0), math.sin(1.0), 0.0]]]).double()
    options = {"step": 0.1, "tolerance": 0.02, "max_steps": 60}
    drift = Sphere(2).distance
    landed = interpolate(RoundSphere(), start, end, 0.05, landing=1.0, **options)
    free = interpolate(RoundSphere(), start, end, 0.05, landing=0.0, **options)
    assert float(drift(landed.nodes[0]).max()) < 2e-3
    assert 0.01 < float(drift(free.nodes[0, :-1]).max()) < 0.05


def test_arrays_of_single_precision_and_kernels_are_welcome(rng):
    samples = Sphere(1).sample(300, generator=rng, dtype=torch.float32)
    path = interpolate(KernelField(samples), samples[:5].numpy(), samples[5:10].numpy(), 0.15)
    assert path.nodes.dtype == torch.float32
    assert path.arrived.all()


def test_a_path_that_needs_more_steps_says_so():
    path = interpolate(ExactField(Sphere(1)), [[1.0, 0.0]], [[0.0, 1.0]], 0.1, max_steps=3)
    assert not path.arrived.any()
    assert "after max_steps=3" in path.reasons[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -0.1}, "step must lie between 0 and 2"),
        ({"ridge": 2.0}, "ridge must lie between 0 and 1"),
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
def test_bad_input_is_named(options, message):
    given = {"start": [[1.0, 0.0]], "end": [[0.0, 1.0]], "max_steps": 2, **options}
    with pytest.raises(ValueError, match=message):
        interpolate(ExactField(Sphere(1)), given.pop("start"), given.pop("end"), 0.1, **given)
