import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from carre.report import (
    plot_denoised_images,
    plot_dimension_by_class,
    plot_scale_profile,
    plot_tangent_images,
    plot_training,
)
from carre.toolkit import ScaleProfile
from carre.training import Evaluation, History


@pytest.fixture
def profile() -> ScaleProfile:
    sigma = np.geomspace(0.1, 10.0, 5)
    eigenvalues = np.linspace(1.0, 0.2, 5)[:, None] * np.array([[1.0, 0.7, 0.1]])
    return ScaleProfile(
        sigma, eigenvalues, np.linspace(0.1, 0.5, 5), np.full(5, 0.6), np.linspace(0.4, 0.1, 5), 2, "because"
    )


@pytest.fixture
def history() -> History:
    evaluations = [Evaluation(step, 0.1 * step, 1.0 / step, -1.0, -2.0, (0.1, 0.2 * step)) for step in (10, 20, 30)]
    return History((0.5, 2.0), (0.3, 0.4), evaluations)


def images_in(figure: Figure) -> int:
    return sum(len(axes.images) for axes in figure.axes)


def test_the_scale_profile_has_a_curve_per_eigenvalue_and_marks_the_chosen_scale(profile):
    top, bottom = plot_scale_profile(profile).axes
    curves = [line for line in top.lines if len(line.get_xdata()) == len(profile.bandwidth)]
    assert len(curves) == profile.eigenvalues.shape[1]
    assert any("σ = 1" in text.get_text() for text in top.texts)
    for panel in (top, bottom):
        assert any(np.allclose(line.get_xdata(), profile.bandwidth[profile.chosen]) for line in panel.lines)
    assert bottom.get_xscale() == "log"
    assert "σ" in bottom.get_xlabel()


def test_an_uncalibrated_profile_is_drawn_without_that_curve(profile):
    uncalibrated = ScaleProfile(
        profile.bandwidth, profile.eigenvalues, profile.idempotency, profile.gap, np.full(5, np.nan), 0, "none"
    )
    _, bottom = plot_scale_profile(uncalibrated).axes
    labels = [text.get_text() for text in bottom.get_legend().get_texts()]
    assert len(labels) == 2
    assert not any("calibration" in label for label in labels)


def test_dimensions_are_counted_by_class_with_their_means():
    dimension, labels = np.array([1, 1, 2, 4, 4, 4]), np.array(["a", "a", "a", "b", "b", "b"])
    (panel,) = plot_dimension_by_class(dimension, labels).axes
    assert [label.get_text() for label in panel.get_xticklabels()] == ["a", "b"]
    assert {"1.3", "4.0"} <= {text.get_text() for text in panel.texts}
    *dots, means = panel.collections
    assert [len(group.get_offsets()) for group in dots] == [2, 1]
    np.testing.assert_allclose(means.get_offsets()[:, 1], [4 / 3, 4])


def test_training_shows_losses_over_steps_and_gain_over_scales(history):
    left, right, below = plot_training(history).axes
    for panel in (left, right):
        np.testing.assert_array_equal(panel.lines[0].get_xdata(), [10, 20, 30])
    curves = {line.get_label(): line for line in below.lines}
    np.testing.assert_allclose(curves["this network"].get_ydata(), [0.1, 6.0])
    np.testing.assert_allclose(curves["kernel on the training samples"].get_ydata(), [0.3, 0.4])
    np.testing.assert_allclose(curves["this network"].get_xdata(), [0.5, 2.0])


def test_tangent_images_show_every_direction_on_symmetric_limits_with_its_eigenvalue():
    images, directions = np.eye(4)[None].repeat(2, 0), np.random.default_rng(0).standard_normal((2, 3, 4, 4))
    eigenvalues = np.array([[1.0, 0.5, 0.25], [0.9, 0.8, 0.7]])
    figure = plot_tangent_images(images, directions, eigenvalues)
    assert images_in(figure) == 2 * (1 + 3)
    titles = [axes.get_title() for axes in figure.axes[:8]]
    assert titles == ["image", "λ = 1.00", "λ = 0.50", "λ = 0.25", "", "λ = 0.90", "λ = 0.80", "λ = 0.70"]
    limits = {figure.axes[k].images[0].get_clim() for k in (1, 2, 3, 5, 6, 7)}
    assert len(limits) == 1
    assert sum(limits.pop()) == 0


def test_denoised_images_have_a_named_row_each_on_common_limits():
    clean = np.random.default_rng(0).uniform(0, 16, (3, 5, 5))
    figure = plot_denoised_images(clean, clean + 1, {"linear": clean, "kernel": clean})
    assert images_in(figure) == 4 * 3
    assert [axes.get_ylabel() for axes in figure.axes[::3]] == ["original", "with noise", "linear", "kernel"]
    assert {axes.images[0].get_clim() for axes in figure.axes} == {(clean.min(), clean.max())}


def test_curves_can_be_drawn_into_part_of_a_larger_figure(profile, history):
    figure = Figure()
    left, right = figure.subfigures(1, 2)
    assert plot_scale_profile(profile, axes=list(left.subplots(2))) is figure
    assert plot_training(history, axes=list(right.subplots(3))) is figure
    assert plot_dimension_by_class(np.ones(2), np.arange(2), axes=figure.add_axes((0.5, 0.5, 0.1, 0.1))) is figure


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="labels must be one per dimension, 3; got 2"):
        plot_dimension_by_class(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="images, directions and eigenvalues must have shapes"):
        plot_tangent_images(np.ones((2, 4, 4)), np.ones((2, 3, 4, 4)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="'kernel' must have the shape of the clean images"):
        plot_denoised_images(np.ones((2, 4, 4)), np.ones((2, 4, 4)), {"kernel": np.ones((2, 4, 5))})
    with pytest.raises(ValueError, match="history must hold at least one evaluation"):
        plot_training(History())


@pytest.mark.slow
def test_importing_the_library_does_not_import_matplotlib():
    code = "import sys, carre; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
