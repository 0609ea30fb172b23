import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from carre.plots import figure_of, plot_denoised_images, plot_path_strip, plot_tangent_images


def test_tangent_images_show_every_direction_on_symmetric_limits_with_its_eigenvalue():
    images, directions = np.eye(4)[None].repeat(2, 0), np.random.default_rng(0).standard_normal((2, 3, 4, 4))
    eigenvalues = np.array([[1.0, 0.5, 0.25], [0.9, 0.8, 0.7]])
    panels = plot_tangent_images(images, directions, eigenvalues)
    assert panels.shape == (2, 1 + 3)
    titles = [axes.get_title() for axes in panels.flat]
    assert titles == ["image", "λ = 1.00", "λ = 0.50", "λ = 0.25", "", "λ = 0.90", "λ = 0.80", "λ = 0.70"]
    limits = {axes.images[0].get_clim() for axes in panels[:, 1:].flat}
    assert len(limits) == 1
    assert sum(limits.pop()) == 0


def test_denoised_images_have_a_named_row_each_on_common_limits():
    clean = np.random.default_rng(0).uniform(0, 16, (3, 5, 5))
    panels = plot_denoised_images(clean, clean + 1, {"linear": clean, "kernel": clean})
    assert panels.shape == (4, 3)
    assert [axes.get_ylabel() for axes in panels[:, 0]] == ["original", "with noise", "linear", "kernel"]
    assert {axes.images[0].get_clim() for axes in panels.flat} == {(clean.min(), clean.max())}


def test_directions_carry_the_numbers_of_their_eigenvectors():
    images, directions = np.eye(4)[None], np.ones((1, 2, 4, 4))
    panels = plot_tangent_images(images, directions, np.array([[0.9, 0.1]]), numbers=(1, 50))
    assert [axes.get_title() for axes in panels[0]] == ["image", "λ1 = 0.90", "λ50 = 0.10"]
    with pytest.raises(ValueError, match="numbers must be one per direction, 2; got 1"):
        plot_tangent_images(images, directions, np.array([[0.9, 0.1]]), numbers=(1,))


def test_images_are_drawn_into_given_axes_which_keep_their_figure_free_of_titles():
    figure, images = Figure(), np.eye(4)[None]
    grid = figure.subplots(1, 3)
    assert plot_tangent_images(images, np.ones((1, 2, 4, 4)), np.ones((1, 2)), axes=grid).tolist() == [grid.tolist()]
    assert figure.get_suptitle() == ""
    column = Figure().subplots(3, 1)
    plot_denoised_images(images, images, {"kernel": images}, axes=column)
    assert [len(axes.images) for axes in column] == [1, 1, 1]
    assert figure_of(column).get_suptitle() == ""


def test_images_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="images, directions and eigenvalues must have shapes"):
        plot_tangent_images(np.ones((2, 4, 4)), np.ones((2, 3, 4, 4)), np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"directions must have shape \(n, k, height, width\); got \(2, 3, 16\)"):
        plot_tangent_images(np.ones((2, 4, 4)), np.ones((2, 3, 16)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="denoised, 'kernel', must have the shape of the clean images"):
        plot_denoised_images(np.ones((2, 4, 4)), np.ones((2, 4, 4)), {"kernel": np.ones((2, 4, 5))})
    with pytest.raises(ValueError, match=r"clean must have shape \(n, height, width\); got \(2, 16\)"):
        plot_denoised_images(np.ones((2, 16)), np.ones((2, 16)), {})
    with pytest.raises(ValueError, match=r"axes must be 3 × 2 matplotlib Axes to draw into; got shape \(2, 2\)"):
        plot_denoised_images(*np.ones((2, 2, 4, 4)), {"k": np.ones((2, 4, 4))}, axes=Figure().subplots(2, 2))


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.uniform(0, 1, (4, 6, 5)) for name in ("straight", "curved", "shortest")}


def test_rows_of_images_keep_their_places_in_the_mosaic(rows):
    axes = plot_path_strip(rows, limits=(0.0, 1.0), title="pair")
    mosaic = axes.images[0].get_array()
    assert mosaic.shape == (3 * 7, 4 * 6)
    for place, images in enumerate(rows.values()):
        for column, image in enumerate(images):
            cell = mosaic[place * 7 : place * 7 + 6, column * 6 : column * 6 + 5]
            np.testing.assert_array_equal(cell, image)
    assert axes.images[0].get_clim() == (0, 1)


def test_rows_and_ends_are_named_at_the_middle_of_their_cells(rows):
    axes = plot_path_strip(rows, limits=(0.0, 1.0), title="pair")
    assert [label.get_text() for label in axes.get_yticklabels()] == list(rows)
    np.testing.assert_allclose(axes.get_yticks(), [3, 10, 17])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["start", "end"]
    assert axes.get_title() == "pair"


def test_rows_of_different_shapes_are_named(rows):
    with pytest.raises(ValueError, match="images must have one shape"):
        plot_path_strip(rows | {"other": np.ones((2, 6, 5))})


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
