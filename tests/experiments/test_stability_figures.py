"""The pictures of the stability experiment show what was measured."""

import numpy as np
import pytest

from experiments.stability.figures import plot_bandwidths, plot_stability

RADII, SIGMAS = [1.0, 2.0, 4.0], [0.5, 1.0]


def row(setting, mean, n=4):
    shifts = np.outer(RADII, np.full(n, mean))
    return {
        "setting": setting,
        "n_images": n,
        "mean": shifts.mean(1).tolist(),
        "deviation": [0.1] * 3,
        "low": (shifts.mean(1) - 0.02).tolist(),
        "high": (shifts.mean(1) + 0.02).tolist(),
        "of_images": shifts.tolist(),
    }


def entry(means, n=4, **setting):
    grid = [row({"bandwidth": s} | setting, mean, n) for s, mean in zip(SIGMAS, means, strict=True)]
    return {"grid": grid, "chosen": grid[0]["setting"], "test": grid[0]}


@pytest.fixture
def results():
    stein = entry([1.9, 1.8], strength=1.0)
    stein["grid"] += entry([1.7, 1.95], strength=10.0)["grid"]
    alone = row({}, 2.0)
    methods = {
        "random directions": {"grid": [alone], "chosen": {}, "test": alone},
        "metric matching": entry([1.0, 1.2]),
        "Stein score": stein,
        "score Jacobian, full": entry([1.5, 1.4], n=2),
        "something new": entry([0.9, 1.4]),
    }
    paired = {
        name: {
            "difference": [-0.5, -1.0, -2.0],
            "low": [-0.6, -1.2, -2.4],
            "high": [-0.4, -0.8, -1.6],
            "n_images": methods[name]["test"]["n_images"],
        }
        for name in methods
        if name != "metric matching"
    }
    settings = {"radii": RADII, "bandwidths": SIGMAS, "n_draws": 3}
    part = {"methods": methods, "paired": paired, "settings": settings, "source": {"features": "wavelets"}}
    return {"mnist": part, "cifar10": part, "cost": {"rows": []}}


def test_there_is_a_curve_for_every_method_and_a_column_for_every_dataset(results):
    figure = plot_stability(results)
    above, below = figure.axes[:2], figure.axes[2:]
    assert [axes.get_title(loc="left").strip() for axes in above] == ["MNIST", "CIFAR-10"]
    curves = {line.get_label(): line for line in above[0].lines if not line.get_label().startswith("_")}
    assert list(curves) == list(results["mnist"]["methods"])
    np.testing.assert_allclose(curves["metric matching"].get_xdata(), RADII)
    np.testing.assert_allclose(curves["metric matching"].get_ydata(), RADII)
    assert len(below) == 2
    assert "wavelets" in above[0].texts[0].get_text()


def test_differences_are_in_percent_of_ours_and_point_up_where_ours_is_better(results):
    below = plot_stability(results).axes[2]
    curves = [line for line in below.lines if len(line.get_xdata()) == len(RADII)]
    assert len(curves) == 4
    # Ours moves features by the radius itself: half of it is 50 percent.
    np.testing.assert_allclose(curves[0].get_ydata(), [50.0, 50.0, 50.0])
    (bars,) = (part.get_segments() for part in below.collections[:1])
    np.testing.assert_allclose(bars[0][:, 1], [40.0, 60.0])


def test_every_radius_has_a_panel_over_the_scales(results):
    figure = plot_bandwidths(results)
    assert len(figure.axes) == 2 * len(RADII)
    first = figure.axes[0]
    curves = {line.get_label(): line.get_ydata() for line in first.lines if not line.get_label().startswith("_")}
    np.testing.assert_allclose(curves["metric matching"], [0.5, 0.6])
    np.testing.assert_allclose(curves["random directions"], [1.0, 1.0])
    # The best strength at each scale.
    np.testing.assert_allclose(curves["Stein score"], [0.85, 0.9])
    np.testing.assert_allclose(curves["score Jacobian, full"], [0.75, 0.7])


@pytest.mark.parametrize("plot", [plot_stability, plot_bandwidths])
def test_the_legend_names_methods_that_only_one_dataset_has(results, plot):
    first, second = results["mnist"], dict(results["cifar10"])
    name = "metric matching, uncentered"
    second["methods"] = second["methods"] | {name: entry([1.1, 1.3])}
    second["paired"] = second["paired"] | {name: second["paired"]["Stein score"]}
    (legend,) = plot({"mnist": first, "cifar10": second}).legends
    assert [text.get_text() for text in legend.get_texts()] == [*first["methods"], name]


def test_what_is_not_complete_is_left_out(results):
    begun = {"grid": results["mnist"]["methods"]["Stein score"]["grid"][:1]}
    results["mnist"]["methods"] = results["mnist"]["methods"] | {"Stein score": begun}
    assert "Stein score" not in [line.get_label() for line in plot_stability(results).axes[0].lines]
    assert "Stein score" in [line.get_label() for line in plot_bandwidths(results).axes[0].lines]


def test_results_without_a_dataset_are_refused():
    with pytest.raises(ValueError, match="results must hold at least one dataset"):
        plot_stability({"cost": {"rows": []}})
