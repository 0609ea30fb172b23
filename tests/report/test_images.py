import numpy as np
import pytest

from carre.report import plot_image_rows, plot_tangent_images


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.uniform(0, 1, (4, 6, 5)) for name in ("straight", "curved", "shortest")}


def test_rows_of_images_keep_their_places_in_the_mosaic(rows):
    (axes,) = plot_image_rows({"pair": rows}, title="Paths", ends=("start", "end")).axes
    mosaic = axes.images[0].get_array()
    assert mosaic.shape == (3 * 7, 4 * 6)
    for place, images in enumerate(rows.values()):
        for column, image in enumerate(images):
            cell = mosaic[place * 7 : place * 7 + 6, column * 6 : column * 6 + 5]
            np.testing.assert_array_equal(cell, image)
    assert axes.images[0].get_clim() == (0, 1)


def test_rows_and_ends_are_named_at_the_middle_of_their_cells(rows):
    (axes,) = plot_image_rows({"pair": rows}, title="Paths", ends=("start", "end")).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(rows)
    np.testing.assert_allclose(axes.get_yticks(), [3, 10, 17])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["start", "end"]
    assert axes.get_title(loc="left") == "pair"


def test_an_odd_group_leaves_its_neighbor_empty(rows):
    figure = plot_image_rows({str(k): rows for k in range(3)}, title="Paths")
    assert [len(axes.images) for axes in figure.axes] == [1, 1, 1, 0]
    assert not figure.axes[3].axison
    assert figure.get_suptitle() == "Paths"


def test_rows_of_different_shapes_are_named(rows):
    with pytest.raises(ValueError, match="the rows of 'pair' must have one shape"):
        plot_image_rows({"pair": rows | {"other": np.ones((2, 6, 5))}}, title="")
    with pytest.raises(ValueError, match="groups must hold at least one group of rows"):
        plot_image_rows({}, title="")


def test_directions_carry_the_numbers_of_their_eigenvectors():
    images, directions = np.eye(4)[None], np.ones((1, 2, 4, 4))
    figure = plot_tangent_images(images, directions, np.array([[0.9, 0.1]]), numbers=(1, 50))
    assert [axes.get_title() for axes in figure.axes[:3]] == ["image", "λ1 = 0.90", "λ50 = 0.10"]
    with pytest.raises(ValueError, match="numbers must be one per direction, 2; got 1"):
        plot_tangent_images(images, directions, np.array([[0.9, 0.1]]), numbers=(1,))
