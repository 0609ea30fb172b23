import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from carre.report import figure_of, plot_image_rows, plot_path_strip


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.uniform(0, 1, (4, 6, 5)) for name in ("straight", "curved", "shortest")}


def test_rows_of_images_keep_their_places_in_the_mosaic(rows):
    (axes,) = plot_image_rows({"pair": rows}, title="Paths", ends=("start", "end"))
    mosaic = axes.images[0].get_array()
    assert mosaic.shape == (3 * 7, 4 * 6)
    for place, images in enumerate(rows.values()):
        for column, image in enumerate(images):
            cell = mosaic[place * 7 : place * 7 + 6, column * 6 : column * 6 + 5]
            np.testing.assert_array_equal(cell, image)
    assert axes.images[0].get_clim() == (0, 1)


def test_rows_and_ends_are_named_at_the_middle_of_their_cells(rows):
    (axes,) = plot_image_rows({"pair": rows}, title="Paths", ends=("start", "end"))
    assert [label.get_text() for label in axes.get_yticklabels()] == list(rows)
    np.testing.assert_allclose(axes.get_yticks(), [3, 10, 17])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["start", "end"]
    assert axes.get_title() == "pair"


def test_an_odd_group_leaves_its_neighbor_empty(rows):
    panels = plot_image_rows({str(k): rows for k in range(3)}, title="Paths")
    figure = figure_of(panels)
    assert len(panels) == 3
    assert [len(axes.images) for axes in figure.axes] == [1, 1, 1, 0]
    assert not figure.axes[3].axison
    assert figure.get_suptitle() == "Paths"


def test_rows_of_different_shapes_are_named(rows):
    with pytest.raises(ValueError, match="the rows of 'pair' must have one shape"):
        plot_image_rows({"pair": rows | {"other": np.ones((2, 6, 5))}}, title="")
    with pytest.raises(ValueError, match="groups must hold at least one group of rows"):
        plot_image_rows({}, title="")


def test_groups_are_drawn_into_given_axes(rows):
    panels = Figure().subplots(1, 2)
    assert list(plot_image_rows({"a": rows, "b": rows}, axes=panels)) == list(panels)
    assert [axes.get_title() for axes in panels] == ["a", "b"]


def test_a_strip_has_a_row_per_path_between_the_smallest_and_the_largest_value(rows):
    images = 16 * np.stack(list(rows.values()))
    axes = plot_path_strip(torch.as_tensor(images))
    mosaic = axes.images[0].get_array()
    assert mosaic.shape == (3 * 7, 4 * 6)
    np.testing.assert_array_equal(mosaic[7:13, 18:23], images[1, 3])
    assert axes.images[0].get_clim() == (images.min(), images.max())
    assert [label.get_text() for label in axes.get_xticklabels()] == ["start", "end"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]


def test_a_strip_takes_names_limits_and_axes(rows):
    axes = Figure().subplots()
    assert plot_path_strip(rows, limits=(0.0, 2.0), ends=None, axes=axes) is axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(rows)
    assert axes.images[0].get_clim() == (0, 2)
    assert not axes.get_xticklabels()


def test_strips_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"images must have shape \(paths, nodes, height, width\); got \(3, 9, 64\)"):
        plot_path_strip(np.ones((3, 9, 64)))
    with pytest.raises(ValueError, match="images must have one shape"):
        plot_path_strip({"a": np.ones((3, 8, 8)), "b": np.ones((4, 8, 8))})
    with pytest.raises(ValueError, match="limits must be the values of white and black, ascending"):
        plot_path_strip(np.ones((1, 3, 8, 8)), limits=(1.0, 0.0))
