import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from carre.plots import (
    figure_of,
    plot_dimension_by_class,
    plot_dimension_over_scales,
    plot_scale_profile,
    plot_spectrum,
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


def test_the_scale_profile_has_a_curve_per_eigenvalue_and_marks_the_chosen_scale(profile):
    top, bottom = plot_scale_profile(profile)
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
    _, bottom = plot_scale_profile(uncalibrated)
    labels = [text.get_text() for text in bottom.get_legend().get_texts()]
    assert len(labels) == 2
    assert not any("calibration" in label for label in labels)


def test_training_shows_losses_over_steps_and_gain_over_scales(history):
    left, right, below = plot_training(history)
    for panel in (left, right):
        np.testing.assert_array_equal(panel.lines[0].get_xdata(), [10, 20, 30])
    curves = {line.get_label(): line for line in below.lines}
    np.testing.assert_allclose(curves["this network"].get_ydata(), [0.1, 6.0])
    np.testing.assert_allclose(curves["kernel on the training samples"].get_ydata(), [0.3, 0.4])
    np.testing.assert_allclose(curves["this network"].get_xdata(), [0.5, 2.0])


def test_curves_can_be_drawn_into_part_of_a_larger_figure(profile, history):
    figure = Figure()
    left, right = figure.subfigures(1, 2)
    two, three, one = left.subplots(2), right.subplots(3), figure.add_axes((0.5, 0.5, 0.1, 0.1))
    assert list(plot_scale_profile(profile, axes=two)) == list(two)
    assert list(plot_training(history, axes=three)) == list(three)
    assert plot_spectrum([1.0, 0.2], axes=one) is one
    assert len(figure.axes) == 6
    assert figure_of(two) is figure_of(one) is figure


def test_the_spectrum_shows_means_quartiles_and_the_threshold():
    values = np.array([[1.0, 0.4], [0.8, 0.2], [0.6, 0.0], [0.6, 0.0], [0.5, 0.0]])
    axes = plot_spectrum(torch.as_tensor(values))
    mean, threshold = axes.lines
    np.testing.assert_allclose(mean.get_ydata(), [0.7, 0.12])
    np.testing.assert_array_equal(mean.get_xdata(), [1, 2])
    assert set(threshold.get_ydata()) == {0.5}
    (band,) = axes.collections
    heights = {round(float(y), 6) for x, y in band.get_paths()[0].vertices if x == 1}
    assert heights == {0.6, 0.8}


def test_one_spectrum_has_no_quartiles():
    axes = plot_spectrum([1.0, 0.2])
    assert not axes.collections
    assert axes.get_legend() is None


def test_a_figure_is_freed_with_its_plot_unless_somebody_looks(monkeypatch):
    matplotlib.use("agg")
    plot_spectrum([1.0, 0.2])
    assert pyplot.get_fignums() == []
    monkeypatch.setattr(matplotlib, "is_interactive", lambda: True)
    axes = plot_spectrum([1.0, 0.2])
    try:
        assert figure_of(axes) is pyplot.gcf()
    finally:
        pyplot.close(figure_of(axes))


def test_many_scales_are_ticks_of_which_some_have_numbers(profile):
    many = np.geomspace(0.1, 10, 17)
    wide = ScaleProfile(many, np.ones((17, 2)), np.ones(17), np.ones(17), np.ones(17), 3, "because")
    for shown, count in ((wide, 9), (profile, 5)):
        _, bottom = plot_scale_profile(shown)
        labels = [label.get_text() for label in bottom.get_xticklabels()]
        assert len(labels) == len(shown.bandwidth)
        assert sum(label != "" for label in labels) == count


def test_a_title_given_afterwards_replaces_the_first_one(profile):
    panels = [plot_spectrum([1.0, 0.2]), *plot_scale_profile(profile)]
    for panel in panels:
        panel.set_title("mine")
        assert [panel.get_title(loc=loc) for loc in ("left", "center", "right")] == ["", "mine", ""]


def test_curves_that_do_not_fit_are_named(profile):
    with pytest.raises(ValueError, match=r"eigenvalues must be finite, of shape \(n, k\).*got shape \(1, 2, 3\)"):
        plot_spectrum(np.ones((1, 2, 3)))
    with pytest.raises(ValueError, match="eigenvalues must be finite"):
        plot_spectrum([[1.0, np.nan]])
    with pytest.raises(ValueError, match="history must hold at least one evaluation"):
        plot_training(History())
    with pytest.raises(ValueError, match=r"axes must be 2 matplotlib Axes .* got shape \(3,\)\. Make them with"):
        plot_scale_profile(profile, axes=Figure().subplots(3))


def test_a_fit_without_a_profile_is_explained(unchecked):
    with pytest.raises(ValueError, match=r"profile must be a ScaleProfile; got None\. .*with a given bandwidth"):
        plot_scale_profile(None)
    with pytest.raises(ValueError, match="axes must be an Axes or None; got "):
        plot_spectrum([1.0], axes=[Figure().subplots()])
    with pytest.raises(TypeError, match="axes must be what a plot function returned; got Figure"):
        figure_of(Figure())


@pytest.mark.slow
def test_importing_the_library_does_not_import_matplotlib():
    code = "import sys, carre; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_dimensions_are_counted_by_class_with_their_means():
    dimension, labels = np.array([1, 1, 2, 4, 4, 4]), np.array(["a", "a", "a", "b", "b", "b"])
    panel = plot_dimension_by_class(dimension, labels)
    assert [label.get_text() for label in panel.get_xticklabels()] == ["a", "b"]
    assert {"1.3", "4.0"} <= {text.get_text() for text in panel.texts}
    *dots, means = panel.collections
    assert [len(group.get_offsets()) for group in dots] == [2, 1]
    np.testing.assert_allclose(means.get_offsets()[:, 1], [4 / 3, 4])


def test_ten_classes_look_different():
    axes = plot_dimension_over_scales([0.5, 1.0], {str(k): [1.0, 0.1 * k] for k in range(10)})
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 10
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [str(k) for k in range(10)]


def test_dimensions_are_drawn_over_a_logarithmic_scale_with_a_name_at_the_higher_end():
    axes = plot_dimension_over_scales([0.5, 1.0, 2.0], {"a": [9.0, 6.0, 3.0], "b": [8.0, 5.0, 2.0]}, label="trace")
    assert axes.get_xscale() == "log"
    assert axes.get_ylabel() == "trace"
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [8, 5, 2])
    assert [(text.get_text(), text.xy) for text in axes.texts] == [("a", (0.5, 9)), ("b", (0.5, 8))]


def test_an_overall_mean_stands_beside_the_classes():
    panel = plot_dimension_by_class([1, 1, 2, 4, 4, 4], list("aaabbb"))
    assert "all: 2.7" in {text.get_text() for text in panel.texts}


def test_classes_are_drawn_into_given_axes():
    figure = Figure()
    first, second = figure.subplots(2)
    assert plot_dimension_over_scales([1.0], {"0": [2.0]}, axes=first) is first
    assert plot_dimension_by_class([1, 2], [0, 1], axes=second) is second
    assert len(figure.axes) == 2


def test_classes_that_are_missing_or_too_short_are_named():
    with pytest.raises(ValueError, match=r"dimension must hold 2 values, .* wrong: \['b'\]"):
        plot_dimension_over_scales([1.0, 2.0], {"a": [1.0, 2.0], "b": [1.0]})
    with pytest.raises(ValueError, match="labels must be one per dimension, 3; got"):
        plot_dimension_by_class(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="dimension must be one per sample"):
        plot_dimension_by_class(np.ones((3, 2)), np.ones(3))
