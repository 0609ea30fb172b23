import numpy as np
import pytest
import torch
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure

from carre.metric import LowRankMetric
from carre.report import plot_overview
from carre.toolkit import lerp

SEGMENT = np.stack([np.linspace(0, 1, 30), np.zeros(30)], axis=1)


class Line:
    """A geometry of the first coordinate axis: all that the picture asks for."""

    def __init__(self):
        self.scales = set()

    def metric(self, X, bandwidth):
        self.scales.add(bandwidth)
        return LowRankMetric(torch.tensor([[[1.0, 0.0]]], dtype=torch.float64).repeat(len(X), 1, 1))

    def dimension(self, X, bandwidth):
        self.scales.add(bandwidth)
        return np.ones(len(X), dtype=int)

    def gradient(self, function, X, bandwidth):
        self.scales.add(bandwidth)
        return np.ones((len(X), 1)) * np.array([[1.0, 0.0]])

    def geodesic(self, start, end, bandwidth):
        self.scales.add(bandwidth)
        return lerp(start, end, 5)


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
        plot_overview(None, np.ones((4, 3)), total, (np.ones((1, 3)), np.ones((1, 3))))
    with pytest.raises(ValueError, match=r"pairs\[1\] must have 2 columns"):
        plot_overview(None, SEGMENT, total, (SEGMENT[:1], np.ones((1, 3))))
