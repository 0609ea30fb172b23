import io

import numpy as np
import pytest
import torch
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from carre import Geometry, KernelField
from carre.metric import LowRankMetric
from carre.plots import (
    figure_of,
    plot_coordinates,
    plot_dimension_map,
    plot_eigenfunction,
    plot_metric_ellipses,
    plot_overview,
    plot_paths,
    plot_scalar_field,
    plot_tangents,
    plot_vectors,
)
from carre.plots.panels import spread_out
from carre.toolkit import Path, eigenfunctions

PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0], [3.0, 1.0]])


def test_every_point_is_drawn_once_in_the_color_of_its_dimension():
    axes = plot_dimension_map(PLACES, torch.tensor([2, 1, 2, 2]))
    one, two = axes.collections
    np.testing.assert_array_equal(one.get_offsets(), PLACES[1:2])
    np.testing.assert_array_equal(two.get_offsets(), PLACES[[0, 2, 3]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["1 (1)", "2 (3)"]


def test_a_dimension_has_the_same_color_whatever_else_there_is():
    alone = plot_dimension_map(PLACES, np.full(4, 2)).collections[0].get_facecolor()
    among = plot_dimension_map(PLACES, [0, 1, 2, 3]).collections
    np.testing.assert_array_equal(among[2].get_facecolor(), alone)
    assert len({tuple(group.get_facecolor()[0]) for group in among}) == 4


def test_many_dimensions_get_many_colors():
    places = np.random.default_rng(0).standard_normal((20, 2))
    groups = plot_dimension_map(places, np.arange(20)).collections
    assert len({tuple(group.get_facecolor()[0]) for group in groups}) == 20


def test_a_scalar_field_has_its_values_and_a_named_bar():
    axes = plot_scalar_field(torch.as_tensor(PLACES), torch.arange(4.0), label="height")
    (dots,) = axes.collections
    np.testing.assert_array_equal(dots.get_array(), [0, 1, 2, 3])
    assert dots.colorbar.ax.get_ylabel() == "height"


def test_paths_run_from_their_starts_to_their_ends_over_the_samples():
    nodes = np.array([[[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [[0.0, 1.0], [1.0, 2.0], [2.0, 1.0]]])
    axes = plot_paths(Path.through(nodes), points=PLACES)
    first, second, starts, ends = axes.lines
    np.testing.assert_array_equal(first.get_xydata(), nodes[0])
    np.testing.assert_array_equal(second.get_xydata(), nodes[1])
    np.testing.assert_array_equal(starts.get_xydata(), nodes[:, 0])
    np.testing.assert_array_equal(ends.get_xydata(), nodes[:, -1])
    np.testing.assert_array_equal(axes.collections[0].get_offsets(), PLACES)
    assert axes.get_legend() is None


def test_named_paths_have_a_color_and_a_line_of_the_legend_each():
    bent = np.array([[[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [[0.0, 1.0], [1.0, 2.0], [2.0, 1.0]]])
    axes = plot_paths({"bent": bent, "straight": bent[:, ::2]})
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["bent", "straight"]
    colors = [line.get_color() for line in axes.lines[:4]]
    assert colors[0] == colors[1] != colors[2] == colors[3]


def test_maps_are_drawn_into_given_axes_with_one_unit_for_both_directions():
    figure = Figure()
    axes = figure.subplots()
    for drawn in (
        plot_dimension_map(PLACES, np.ones(4), axes=axes),
        plot_scalar_field(PLACES, np.ones(4), axes=axes),
        plot_paths(PLACES, axes=axes),
    ):
        assert drawn is axes
    assert axes.get_aspect() == 1


def test_points_of_more_columns_are_refused_with_the_ways_out():
    with pytest.raises(ValueError, match=r"points must have 2 columns .* got 3\. .*points\[:, :2\], or an embedding"):
        plot_dimension_map(np.ones((4, 3)), np.ones(4))
    with pytest.raises(ValueError, match=r"points must have 2 columns .*PCA\(2\)\.fit_transform\(points\)"):
        plot_scalar_field(np.ones((4, 64)), np.ones(4))
    with pytest.raises(ValueError, match=r"paths must lie in the plane, with 2 columns; got 3\. .* the embedding"):
        plot_paths(np.ones((1, 4, 3)))


def test_values_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"dimension must be finite, one per point, shape \(4,\); got shape \(3,\)"):
        plot_dimension_map(PLACES, np.ones(3))
    with pytest.raises(ValueError, match="dimension must hold whole numbers"):
        plot_dimension_map(PLACES, np.full(4, 1.5))
    with pytest.raises(ValueError, match="values must be finite"):
        plot_scalar_field(PLACES, [0, 1, 2, np.nan])
    with pytest.raises(ValueError, match="points must be finite"):
        plot_scalar_field(np.full((4, 2), np.inf), np.ones(4))
    with pytest.raises(ValueError, match="paths must hold at least one path"):
        plot_paths({})
    with pytest.raises(ValueError, match=r"paths\['a'\] must be finite, .* got shape \(1, 2\)"):
        plot_paths({"a": np.ones((1, 2))})


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


def test_directions_that_do_not_fit_are_named():
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


SEGMENT = np.stack([np.linspace(0, 1, 30), np.zeros(30)], axis=1)


class Axis:
    """The field of the first coordinate axis."""

    dim = 2

    def metric(self, points, bandwidth):
        return LowRankMetric(points.new_tensor([[[1.0, 0.0]]]).repeat(len(points), 1, 1))

    def denoise(self, points, bandwidth):
        return points * points.new_tensor([1.0, 0.0])


class Line(Geometry):
    """The geometry of a segment of that axis, which notes at which scales it is asked."""

    def __init__(self):
        landmarks = torch.as_tensor(SEGMENT)
        super().__init__(Axis(), bandwidth=0.1, bandwidth_range=(0.05, 0.5), landmarks=landmarks, rank=1)
        object.__setattr__(self, "scales", set())

    def scale_at(self, bandwidth, points):
        self.scales.add(bandwidth)
        return super().scale_at(bandwidth, points)


def total(x):
    return x.sum(1)


def test_the_five_panels_show_what_the_geometry_says():
    metric, function, dimension, gradient, paths = plot_overview(
        Line(), SEGMENT, total, (SEGMENT[:1], SEGMENT[-1:]), n_shown=10
    )
    (ellipses,) = [child for child in metric.collections if isinstance(child, EllipseCollection)]
    assert 5 < len(ellipses.get_widths()) <= 10
    assert np.allclose(ellipses.get_heights(), 0)
    np.testing.assert_allclose(function.collections[0].get_array(), SEGMENT.sum(1))
    assert [text.get_text() for text in dimension.get_legend().get_texts()] == ["1 (30)"]
    assert np.allclose(gradient.collections[-1].V, 0)
    np.testing.assert_allclose(paths.lines[0].get_xydata()[[0, -1]], SEGMENT[[0, -1]])


def test_every_question_is_asked_at_the_given_scale():
    geometry = Line()
    plot_overview(geometry, SEGMENT, total, (SEGMENT[:1], SEGMENT[-1:]), bandwidth=0.25)
    assert geometry.scales == {0.25}


def test_it_is_drawn_into_given_axes():
    panels = Figure().subplots(1, 5)
    drawn = plot_overview(Line(), SEGMENT, total, (SEGMENT[:1], SEGMENT[-1:]), axes=panels)
    assert list(drawn) == list(panels)


def test_data_of_more_columns_are_refused_before_anything_is_asked():
    with pytest.raises(ValueError, match="X must have 2 columns to be drawn in the plane; got 3"):
        plot_overview(Line(), np.ones((4, 3)), total, (np.ones((1, 3)), np.ones((1, 3))))
    with pytest.raises(ValueError, match=r"pairs\[1\] must have 2 columns"):
        plot_overview(Line(), SEGMENT, total, (SEGMENT[:1], np.ones((1, 3))))


@pytest.mark.filterwarnings("ignore:eigenvalues")
def test_an_eigenfunction_is_drawn_around_zero_with_its_eigenvalue():
    line = np.linspace(0, 2, 150)[:, None] * np.array([1.0, 0.0])
    found = eigenfunctions(KernelField(line), line, 3, 0.05)
    axes = plot_eigenfunction(line, found, 2)
    (dots,) = axes.collections
    np.testing.assert_array_equal(dots.get_array(), found.functions[:, 2])
    low, high = dots.get_clim()
    assert low == -high
    assert axes.get_title() == f"Eigenfunction 2, λ = {found.values[2]:.2g}"
    assert found.values[2] == pytest.approx(np.pi**2, rel=0.05)  # (2π/L)² on an interval of length 2
    with pytest.raises(
        ValueError, match="number must be an integer between 0 and 2, one of the functions found; got 3"
    ):
        plot_eigenfunction(line, found, 3)
    with pytest.raises(ValueError, match="found must be finite, one per point"):
        plot_eigenfunction(line[:9], found)


def test_coordinates_are_drawn_plain_or_in_the_color_of_a_value():
    (plain,) = plot_coordinates(PLACES).collections
    np.testing.assert_array_equal(plain.get_offsets(), PLACES)
    (colored,) = plot_coordinates(PLACES, np.arange(4.0)).collections
    np.testing.assert_array_equal(colored.get_array(), np.arange(4))
