"""A path is a value: its measures are those of the polygon, or of the smooth curve that it samples."""

import math

import numpy as np
import pytest
import torch

from carre.boundary import checked_integer
from carre.fields import ExactField
from carre.manifolds import Embedded, Sphere, Union
from carre.toolkit.path import Path, examine
from carre.toolkit.tangent import polar_factor


def arc(n_nodes: int, angle: float = 2.0) -> torch.Tensor:
    times = torch.linspace(0, angle, n_nodes, dtype=torch.float64)
    return torch.stack([times.cos(), times.sin()], 1)


def test_the_polygon_is_a_second_order_length_and_that_of_a_circle_is_exact():
    """A chord of angle φ is short of its arc by φ²/24, relatively; the correction leaves O(φ⁴)."""
    for n_segments in (8, 16, 32):
        path = Path.through(arc(n_segments + 1))
        angle = 2.0 / n_segments
        assert float(path.polygon_length()) == pytest.approx(2.0 * (1 - angle**2 / 24), rel=angle**4 / 100)
        assert float(path.length()) == pytest.approx(2.0, rel=1e-12), "a circle is its own circle of curvature"


def test_the_length_of_a_curve_that_bends_more_and_less_is_of_fourth_order():
    """An ellipse with axes 1 and ½: four times closer nodes are 256 times nearer, but for the ends."""
    errors = []
    for n_segments in (16, 64):
        times = torch.linspace(0, math.pi, n_segments + 1, dtype=torch.float64)
        path = Path.through(torch.stack([times.cos(), 0.5 * times.sin()], 1))
        errors.append(abs(float(path.length()) / 2.4221120551 - 1))
    assert errors[0] < 2e-3
    assert errors[1] < errors[0] / 100


def test_repeated_nodes_do_not_change_the_arc_length():
    assert float(Path.through([[0.0], [1.0], [1.0], [2.0]]).length()) == 2.0
    nodes = arc(9)
    repeated = [0, 0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 6, 7, 8, 8]
    torch.testing.assert_close(Path.through(nodes[repeated]).length(), Path.through(nodes).length())
    # Two nodes that differ by rounding only have no direction either.
    assert float(Path.through([[0.0, 0.0], [1.0, 0.0], [1.0, 1e-16], [2.0, 0.0]]).length()) == 2.0
    assert float(Path.through([[0.0], [0.0], [1.0]]).length()) == 1.0


def test_curves_that_no_field_was_asked_about_say_so():
    path = Path.through([[0.0], [1.0]])
    assert path.strayed.isnan().all()
    assert path.reasons == ("not examined: no field was asked",)
    assert "connected=unknown" in repr(path)


def test_energy_is_half_the_squared_length_exactly_where_nodes_are_evenly_spaced():
    uneven = Path.through([[0.0], [0.1], [0.7], [2.0]])
    assert float(uneven.energy()) > 2.0
    torch.testing.assert_close(uneven.resample(7).energy(), torch.tensor([2.0]).double())


def test_time_runs_evenly_along_the_polygon():
    path = Path.through(torch.tensor([[[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]], [[0.0, 0.0], [0.0, 0.0], [0.0, 4.0]]]))
    torch.testing.assert_close(path([0.0, 0.75, 1.0])[0], torch.tensor([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]]))
    torch.testing.assert_close(
        path.evaluate(torch.tensor([[0.5], [0.25]]))[:, 0], torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    )


def test_resampling_keeps_the_ends_to_the_last_bit_and_places_nodes_evenly(rng):
    nodes = torch.randn(5, 9, 4, generator=rng, dtype=torch.float64)
    path = Path.through(nodes).resample(400)
    assert torch.equal(path.nodes[:, [0, -1]], nodes[:, [0, -1]])
    steps = path.nodes.diff(dim=1).norm(dim=-1)
    # Only the eight segments that contain a corner are cut short.
    assert (((steps - steps.amax(1, keepdim=True)).abs() < 1e-10).sum(1) >= 399 - 8).all()


def test_a_curve_without_length_stays_where_it_is():
    path = Path.through(torch.ones(1, 4, 2))
    torch.testing.assert_close(path(0.3), torch.ones(1, 1, 2))
    assert float(path.length()) == 0.0
    assert float(path.start_velocity().norm()) == 0.0


def test_paths_are_selected_reversed_and_read_as_arrays():
    path = Path.through(np.arange(24.0).reshape(3, 4, 2))
    assert [len(part) for part in (path[0], path[1:], path[[0, 2]], path[torch.tensor([True, False, True])])] == [
        1,
        2,
        2,
        2,
    ]
    assert len(list(path)) == 3
    np.testing.assert_array_equal(np.asarray(path[-1])[0], path.numpy()[2])
    torch.testing.assert_close(path.reversed().nodes[0, 0], path.nodes[0, -1])
    torch.testing.assert_close(path.start_velocity().norm(dim=-1), path.length())
    assert path.strayed.isnan().all()


def test_the_distance_to_samples_is_that_of_the_nearest():
    path = Path.through([[0.0, 0.0], [1.0, 0.0]])
    torch.testing.assert_close(
        path.distance_to([[0.0, 3.0], [5.0, 0.0]]), torch.tensor([[3.0, math.sqrt(10)]]).double()
    )


def test_a_jump_is_seen_also_where_its_middle_is_as_far_from_both_sides():
    """Halfway between two spheres the denoiser answers with the middle itself; at a quarter it does not."""
    basis, shift = torch.eye(2).double(), torch.tensor([4.0, 0.0]).double()
    field = ExactField(Union([Sphere(1), Embedded(Sphere(1), basis, shift)]))
    jump = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [3.0, 0.0]]]).double()
    stay = arc(30)[None]
    connected, strayed, ends_off = examine(field, jump, torch.tensor([0.1]).double())
    assert not connected
    assert float(strayed) == pytest.approx(5.0, rel=0.1)
    assert float(ends_off.max()) < 0.02
    connected, strayed, _ = examine(field, stay, torch.tensor([0.1]).double())
    assert connected
    assert float(strayed) < 0.02


def test_the_polar_factor_is_the_nearest_rotation_and_keeps_zeros(rng):
    matrices = torch.randn(10, 3, 3, generator=rng, dtype=torch.float64)
    rotations = polar_factor(matrices)
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(3).double().expand(10, 3, 3))
    symmetric = rotations.mT @ matrices
    torch.testing.assert_close(symmetric, symmetric.mT)
    assert torch.equal(polar_factor(torch.zeros(2, 2)), torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Path.through([[0.0, 1.0]]), "at least 2 nodes"),
        (lambda: Path.through([[0.0], [math.nan]]), "nodes must be finite"),
        (lambda: Path.through([[0.0], [1.0]])(1.5), "times must lie between 0"),
        (lambda: Path.through([[0.0], [1.0]])(math.nan), "times must lie between 0"),
        (lambda: Path.through([[0.0], [1.0]])(torch.zeros(3, 2)), "times must have shape"),
        (lambda: Path.through([[0.0], [1.0]]).resample(1), "n_nodes must be at least 2"),
        (lambda: checked_integer(5.5, name="n_nodes", least=2), r"n_nodes must be an integer; got 5\.5"),
        (lambda: checked_integer(0, name="max_sweeps", least=1), "max_sweeps must be at least 1; got 0"),
        (lambda: Path.through([[0.0], [1.0]]).distance_to([[0.0, 1.0]]), "samples must have 1 columns"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
