import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from carre.report import plot_dimension_map, plot_paths, plot_scalar_field
from carre.toolkit import Path

POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0], [3.0, 1.0]])


def test_every_point_is_drawn_once_in_the_color_of_its_dimension():
    axes = plot_dimension_map(POINTS, torch.tensor([2, 1, 2, 2]))
    one, two = axes.collections
    np.testing.assert_array_equal(one.get_offsets(), POINTS[1:2])
    np.testing.assert_array_equal(two.get_offsets(), POINTS[[0, 2, 3]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["1 (1)", "2 (3)"]


def test_a_dimension_has_the_same_color_whatever_else_there_is():
    alone = plot_dimension_map(POINTS, np.full(4, 2)).collections[0].get_facecolor()
    among = plot_dimension_map(POINTS, [0, 1, 2, 3]).collections
    np.testing.assert_array_equal(among[2].get_facecolor(), alone)
    assert len({tuple(group.get_facecolor()[0]) for group in among}) == 4


def test_many_dimensions_get_many_colors():
    places = np.random.default_rng(0).standard_normal((20, 2))
    groups = plot_dimension_map(places, np.arange(20)).collections
    assert len({tuple(group.get_facecolor()[0]) for group in groups}) == 20


def test_a_scalar_field_has_its_values_and_a_named_bar():
    axes = plot_scalar_field(torch.as_tensor(POINTS), torch.arange(4.0), label="height")
    (dots,) = axes.collections
    np.testing.assert_array_equal(dots.get_array(), [0, 1, 2, 3])
    assert dots.colorbar.ax.get_ylabel() == "height"


def test_paths_run_from_their_starts_to_their_ends_over_the_samples():
    nodes = np.array([[[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [[0.0, 1.0], [1.0, 2.0], [2.0, 1.0]]])
    axes = plot_paths(Path.through(nodes), points=POINTS)
    first, second, starts, ends = axes.lines
    np.testing.assert_array_equal(first.get_xydata(), nodes[0])
    np.testing.assert_array_equal(second.get_xydata(), nodes[1])
    np.testing.assert_array_equal(starts.get_xydata(), nodes[:, 0])
    np.testing.assert_array_equal(ends.get_xydata(), nodes[:, -1])
    np.testing.assert_array_equal(axes.collections[0].get_offsets(), POINTS)
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
        plot_dimension_map(POINTS, np.ones(4), axes=axes),
        plot_scalar_field(POINTS, np.ones(4), axes=axes),
        plot_paths(POINTS, axes=axes),
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
        plot_dimension_map(POINTS, np.ones(3))
    with pytest.raises(ValueError, match="dimension must hold whole numbers"):
        plot_dimension_map(POINTS, np.full(4, 1.5))
    with pytest.raises(ValueError, match="values must be finite"):
        plot_scalar_field(POINTS, [0, 1, 2, np.nan])
    with pytest.raises(ValueError, match="points must be finite"):
        plot_scalar_field(np.full((4, 2), np.inf), np.ones(4))
    with pytest.raises(ValueError, match="paths must hold at least one path"):
        plot_paths({})
    with pytest.raises(ValueError, match=r"paths\['a'\] must be finite, .* got shape \(1, 2\)"):
        plot_paths({"a": np.ones((1, 2))})
