import io

import numpy as np
import pytest
import torch
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from carre.metric import LowRankMetric
from carre.report import figure_of, plot_metric_ellipses, plot_tangents, plot_vectors
from carre.report.plane import spread_out

POINTS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0]])


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def found(axes, kind):
    (collection,) = [child for child in axes.collections if isinstance(child, kind)]
    return collection


def test_the_half_axes_of_ellipses_are_roots_of_eigenvalues_along_eigenvectors():
    turn = rotation(np.pi / 6)
    metric = np.stack([turn @ np.diag([1.0, 0.25]) @ turn.T, np.eye(2), np.diag([0.0, 1.0])])
    ellipses = found(plot_metric_ellipses(POINTS, metric, size=0.5), EllipseCollection)
    np.testing.assert_allclose(ellipses.get_widths(), [1, 1, 1], atol=1e-12)
    np.testing.assert_allclose(ellipses.get_heights(), [0.5, 1, 0], atol=1e-7)
    np.testing.assert_allclose(ellipses.get_angles()[[0, 2]] % 180, [30, 90])
    np.testing.assert_array_equal(ellipses.get_offsets(), POINTS)


def test_metrics_of_a_geometry_are_drawn_as_they_are():
    factor = torch.tensor([[[3.0, 0.0]], [[0.0, 2.0]], [[1.0, 0.0]]], dtype=torch.float64)
    ellipses = found(plot_metric_ellipses(POINTS, LowRankMetric(factor), size=1.0), EllipseCollection)
    np.testing.assert_allclose(ellipses.get_widths(), [6, 4, 2])
    np.testing.assert_allclose(ellipses.get_angles() % 180, [0, 90, 0])


def test_the_longest_arrow_has_the_given_length_and_the_others_their_share():
    vectors = np.array([[0.0, 10.0], [5.0, 0.0], [0.0, 0.0]])
    axes = plot_vectors(POINTS, vectors, size=2.0)
    arrows = found(axes, Quiver)
    lengths = np.hypot(arrows.U, arrows.V) / arrows.scale
    np.testing.assert_allclose(lengths, [2, 1, 0])
    assert (arrows.angles, arrows.scale_units) == ("xy", "xy")


def test_arrows_lie_within_the_view():
    axes = plot_vectors(POINTS, np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), size=3.0)
    (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert low <= 0
    assert high >= 7
    assert bottom <= 0
    assert top >= 5


def test_vectors_that_are_all_zero_are_drawn():
    arrows = found(plot_vectors(POINTS, np.zeros((3, 2))), Quiver)
    assert np.isfinite(arrows.scale)


def test_dashes_lie_along_every_column_of_the_basis():
    basis = np.stack([rotation(0.0), rotation(np.pi / 2), rotation(0.3)])
    dashes = np.array(found(plot_tangents(POINTS, basis, size=0.5), LineCollection).get_segments())
    assert dashes.shape == (6, 2, 2)
    np.testing.assert_allclose(dashes.mean(1), POINTS.repeat(2, axis=0), atol=1e-12)
    np.testing.assert_allclose(dashes[0], [[-0.5, 0], [0.5, 0]], atol=1e-12)
    np.testing.assert_allclose(dashes[3, 1] - dashes[3, 0], [-1, 0], atol=1e-12)


def test_of_many_points_some_are_shown_and_all_are_dots():
    points = np.random.default_rng(0).uniform(size=(500, 2))
    axes = plot_vectors(points, np.ones((500, 2)), n_shown=40)
    dots, arrows = axes.collections
    assert len(dots.get_offsets()) == 500
    assert 30 <= len(arrows.U) <= 40


def test_points_that_are_shown_keep_their_distance():
    points = np.random.default_rng(0).uniform(size=(500, 2))
    chosen = points[spread_out(points, 40)]
    apart = np.linalg.norm(chosen[:, None] - chosen[None], axis=-1)[np.triu_indices(len(chosen), 1)]
    # 40 discs in the unit square, packed as loosely as can be: radius half of √(1/(40·2√3)).
    assert apart.min() > np.sqrt(1 / (40 * 2 * np.sqrt(3)))


def test_few_points_are_all_shown():
    assert spread_out(POINTS, 5).tolist() == [0, 1, 2]
    assert spread_out(np.zeros((7, 2)), 3).tolist() == [0]


def test_directions_are_drawn_into_given_axes():
    axes = Figure().subplots()
    assert plot_metric_ellipses(POINTS, np.ones((3, 2, 2)), axes=axes) is axes
    assert plot_vectors(POINTS, POINTS, axes=axes) is axes
    assert plot_tangents(POINTS, np.ones((3, 2, 1)), axes=axes) is axes
    assert len(axes.collections) == 3


def test_panels_that_share_their_axes_can_be_drawn():
    panels = Figure().subplots(1, 2, sharex=True, sharey=True)
    for axes in panels:
        plot_vectors(POINTS, POINTS, axes=axes)
    figure_of(panels).savefig(io.BytesIO())


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"metric must hold finite matrices of shape \(3, 2, 2\).*got \(3, 3, 3\)"):
        plot_metric_ellipses(POINTS, np.ones((3, 3, 3)))
    with pytest.raises(ValueError, match=r"points must have 2 columns .* got 5"):
        plot_metric_ellipses(np.ones((3, 5)), np.ones((3, 5, 5)))
    with pytest.raises(ValueError, match="vectors must be one per point, 3; got 2"):
        plot_vectors(POINTS, np.ones((2, 2)))
    with pytest.raises(ValueError, match="vectors must have 2 columns"):
        plot_vectors(POINTS, np.ones((3, 4)))
    with pytest.raises(ValueError, match=r"basis must be finite, of shape \(3, 2, dim\).*got \(3, 2\)"):
        plot_tangents(POINTS, np.ones((3, 2)))
    with pytest.raises(ValueError, match="size must be a positive length in units of the points; got -1"):
        plot_vectors(POINTS, POINTS, size=-1.0)
    with pytest.raises(ValueError, match="n_shown must be a positive integer, or None for all; got 0"):
        plot_vectors(POINTS, POINTS, n_shown=0)
