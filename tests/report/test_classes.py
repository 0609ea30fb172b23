import numpy as np
import pytest
from matplotlib.figure import Figure

from carre.report import plot_class_spectra, plot_dimension_by_class, plot_dimension_over_scales


def test_dimensions_are_counted_by_class_with_their_means():
    dimension, labels = np.array([1, 1, 2, 4, 4, 4]), np.array(["a", "a", "a", "b", "b", "b"])
    panel = plot_dimension_by_class(dimension, labels)
    assert [label.get_text() for label in panel.get_xticklabels()] == ["a", "b"]
    assert {"1.3", "4.0"} <= {text.get_text() for text in panel.texts}
    *dots, means = panel.collections
    assert [len(group.get_offsets()) for group in dots] == [2, 1]
    np.testing.assert_allclose(means.get_offsets()[:, 1], [4 / 3, 4])


def test_spectra_are_summed_up_for_every_class_and_end_at_the_whole():
    values = {"0": np.array([1.0, 0.5, 0.5]), "1": np.array([1.0, 0.25, 0.0])}
    left, right = plot_class_spectra(values)
    sums = {line.get_label(): line.get_ydata() for line in left.lines}
    np.testing.assert_allclose(sums["0"], [1.0, 1.5, 2.0])
    np.testing.assert_allclose(sums["1"], [1.0, 1.25, 1.25])
    assert all(line.get_ydata()[-1] == 1 for line in right.lines)
    np.testing.assert_array_equal(left.lines[0].get_xdata(), [1, 2, 3])


def test_ten_classes_look_different():
    left, right = plot_class_spectra({str(k): np.array([1.0, 0.1 * k]) for k in range(10)})
    looks = {(line.get_color(), line.get_linestyle()) for line in left.lines}
    assert len(looks) == 10
    assert [text.get_text() for text in right.get_legend().get_texts()] == [str(k) for k in range(10)]


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
    first, second, third, fourth = figure.subplots(4)
    values = {"0": np.array([1.0, 0.5])}
    assert list(plot_class_spectra(values, axes=[first, second])) == [first, second]
    assert plot_dimension_over_scales([1.0], {"0": [2.0]}, axes=third) is third
    assert plot_dimension_by_class([1, 2], [0, 1], axes=fourth) is fourth
    assert len(figure.axes) == 4


def test_classes_that_are_missing_or_too_short_are_named():
    with pytest.raises(ValueError, match="eigenvalues must hold at least one class"):
        plot_class_spectra({})
    with pytest.raises(ValueError, match=r"dimension must hold 2 values, .* wrong: \['b'\]"):
        plot_dimension_over_scales([1.0, 2.0], {"a": [1.0, 2.0], "b": [1.0]})
    with pytest.raises(ValueError, match="labels must be one per dimension, 3; got"):
        plot_dimension_by_class(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="dimension must be one per sample"):
        plot_dimension_by_class(np.ones((3, 2)), np.ones(3))
