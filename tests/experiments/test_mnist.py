"""The MNIST experiment measures what it says, on curves and fields that are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import Sphere
from carre.metric import LowRankMetric
from carre.neighbors import TorchIndex
from carre.toolkit import Flow, path


@pytest.fixture
def judge(mnist, strokes):
    torch.manual_seed(0)
    return mnist.paths.Judge(TorchIndex(strokes.train), mnist.classifier.Classifier(4).eval())


class Flat:
    """The Euclidean metric times a number, with a denoiser that changes nothing."""

    dim = 2

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def metric(self, points, bandwidth):
        return LowRankMetric(math.sqrt(self.speed) * torch.eye(2, dtype=points.dtype).expand(len(points), 2, 2))

    def denoise(self, points, bandwidth):
        return points


def ends(dtype=torch.float64):
    start = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]], dtype=dtype)
    return start, torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]], dtype=dtype)


# Digits and pairs.


def test_strokes_are_images_of_four_classes_and_the_same_for_the_same_seed(mnist, strokes):
    assert strokes.train.shape == (80, 784)
    assert strokes.classes == [0, 1, 2, 3]
    assert 0 <= strokes.pictures(strokes.test).min() < strokes.pictures(strokes.test).max() <= 1
    again = mnist.data.draw_strokes(80, 64, torch.device("cpu"))
    np.testing.assert_array_equal(strokes.dataset.pixels, again.dataset.pixels)


def test_pairs_are_of_one_class_and_no_digit_occurs_twice(mnist, strokes):
    sets = mnist.paths.draw_pairs(strokes, (3, 2), seed=0)
    assert [len(pairs) for pairs in sets] == [3 * 4, 2 * 4]
    used = torch.cat([torch.cat([pairs.start, pairs.end]) for pairs in sets])
    assert len(used.unique(dim=0)) == len(used)
    for pairs in sets:
        for points in (pairs.start, pairs.end):
            row = torch.cdist(points, strokes.test).argmin(1)
            assert torch.equal(strokes.test_labels[row], pairs.labels)


def test_pairs_depend_on_the_seed_alone(mnist, strokes):
    first, again, other = (mnist.paths.draw_pairs(strokes, (2, 1), seed)[0].start for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_too_few_digits_of_a_class_are_named(mnist, strokes):
    with pytest.raises(ValueError, match="there must be 200 test digits of class 0; got"):
        mnist.paths.draw_pairs(strokes, (50, 50), seed=0)


# Curves.


def test_the_reach_is_that_of_the_raw_curves_last_point(mnist, judge):
    start, end = torch.zeros(4, 784), torch.zeros(4, 784)
    end[:, 0] = 10.0
    trace = torch.stack([start, end * torch.tensor([[0.0], [0.5], [0.92], [1.0]])], 1)
    curves = mnist.flow.Curves.of(trace, start, end, 5)
    torch.testing.assert_close(curves.left, torch.tensor([1.0, 0.5, 0.08, 0.0]))
    assert mnist.paths.measure(curves, torch.zeros(4, dtype=torch.long), judge)["reached"] == 0.5


def test_a_completed_curve_pays_for_the_leg_to_its_given_end(mnist):
    start, end = torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])
    corner = torch.tensor([[3.0, 0.0]])
    curves = mnist.flow.Curves.of(torch.stack([start, corner], 1), start, end, 8)
    torch.testing.assert_close(curves.length, torch.tensor([7 / 5]))
    torch.testing.assert_close(curves.nodes[0, :4], torch.tensor([[float(k), 0.0] for k in range(4)]))
    torch.testing.assert_close(curves.nodes[0, 4:], torch.tensor([[3.0, float(k)] for k in range(1, 5)]))
    torch.testing.assert_close(curves.raw[:, -1], corner)


def test_the_flow_is_that_of_the_toolkit(mnist):
    """Before it arrives: from there on `Flow` puts the given end, and the flow goes on."""
    start, end = ends()
    method = mnist.settings.Method(bandwidth=0.1, step=0.2, ridge=0.01, landing=0.3, max_steps=4)
    field = ExactField(Sphere(2))
    known = path(field, start, end, 0.1, method=Flow(0.2, 0.01, 0.3, max_steps=4), n_nodes=9)
    assert not bool(known.arrived.any())
    torch.testing.assert_close(mnist.flow.join(field, start, end, method, 9).raw, known.nodes)


@pytest.mark.slow
def test_what_is_said_of_interpolate_is_never_nearer_than_the_flow_was(mnist):
    start, end = ends()
    end = 1.1 * end
    method = mnist.settings.Method(bandwidth=0.1, landing=0.5, max_steps=60)
    field = ExactField(Sphere(2))
    flow = mnist.flow.join(field, start, end, method, 9)
    known = mnist.flow.join(field, start, end, replace(method, kind="interpolate"), 9)
    torch.testing.assert_close(known.raw[:, -1], end)
    assert bool((flow.left > 0.05).all())
    assert bool((known.left >= flow.left).all())


def test_a_landing_of_its_own_scale_changes_the_flow_and_the_same_scale_does_not(mnist):
    start, end = ends()
    field, method = ExactField(Sphere(2)), mnist.settings.Method(bandwidth=0.2, max_steps=5)
    plain, same, finer = (
        mnist.flow.trajectory(field, start, end, replace(method, landing_bandwidth=sigma)) for sigma in (None, 0.2, 0.1)
    )
    torch.testing.assert_close(plain, same)
    assert not torch.allclose(plain, finer)


@pytest.mark.parametrize("speed", [0.0, 1.0])
def test_a_metric_that_goes_straight_or_nowhere_completes_to_the_straight_line(mnist, speed):
    start, end = torch.zeros(3, 2), torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    straight = mnist.flow.join(Flat(speed), start, end, mnist.settings.Method(kind="lerp"), 7)
    curves = mnist.flow.join(Flat(speed), start, end, mnist.settings.Method(landing=0.0), 7)
    torch.testing.assert_close(curves.nodes, straight.nodes)
    torch.testing.assert_close(curves.length, torch.ones(3))
    # The flow stops at one hundredth of the way, from above; or it never moves.
    assert bool((curves.left <= 0.01).all()) if speed else bool((curves.left == 1).all())


def test_a_flow_that_blows_up_stays_where_it_was(mnist):
    start, end = torch.zeros(1, 2), torch.ones(1, 2)
    trace = mnist.flow.trajectory(Flat(math.inf), start, end, mnist.settings.Method(landing=0.0, max_steps=3))
    assert torch.equal(trace, torch.zeros_like(trace))


def test_an_unknown_kind_is_named(mnist):
    with pytest.raises(
        ValueError, match="kind must be 'lerp', 'flow', 'thread', 'interpolate' or 'geodesic'; got 'jump'"
    ):
        mnist.flow.join(Flat(1.0), torch.zeros(1, 2), torch.ones(1, 2), mnist.settings.Method(kind="jump"), 3)


# What is measured.


def test_the_figures_of_straight_lines_are_those_of_a_direct_computation(mnist, strokes, judge):
    pairs, _ = mnist.paths.draw_pairs(strokes, (2, 1), seed=0)
    (row,) = mnist.paths.compare(None, pairs, {"LERP": mnist.settings.Method(kind="lerp")}, judge, 5).values()
    times = torch.linspace(0, 1, 5)[:, None]
    distance, right, confidence = [], [], []
    for a, b, label in zip(pairs.start, pairs.end, pairs.labels, strict=True):
        nodes = (1 - times) * a + times * b
        chances = judge.classifier(nodes).softmax(-1)
        distance.append((nodes[:, None] - strokes.train).square().sum(-1).sqrt().amin(1))
        right.append((chances.argmax(-1) == label).float())
        confidence.append(chances[:, label])
    distance, right, confidence = (torch.stack(values).detach() for values in (distance, right, confidence))
    for place, columns in (("inner", slice(1, 4)), ("all", slice(0, 5)), ("midpoint", slice(2, 3))):
        found = row[place]
        assert found["distance"] == pytest.approx(float(distance[:, columns].mean()), rel=1e-5)
        assert found["right"] == pytest.approx(float(right[:, columns].mean()), abs=1e-6)
        assert found["confidence"] == pytest.approx(float(confidence[:, columns].mean()), rel=1e-4)
        ratio = distance[:, columns].mean() / distance[:, 2].mean()
        assert found["distance_over_lerp_midpoint"] == pytest.approx(float(ratio), rel=1e-5)
    assert row["reached"] == 1
    assert row["length_over_chord"] == pytest.approx(1)
    assert row["raw_inner"]["distance"] == pytest.approx(row["inner"]["distance"], rel=1e-5)


def test_the_rule_takes_the_nearest_of_those_that_get_there_and_keep_the_class(mnist):
    def row(reached, right, distance):
        return {"reached": reached, "inner": {"right": right, "distance": distance}}

    rows = [row(0.5, 0.99, 1.0), row(0.96, 0.98, 3.0), row(0.97, 0.97, 2.0), row(1.0, 0.9, 1.0)]
    assert mnist.paths.choose(rows) is rows[2]
    assert mnist.paths.choose(rows[3:]) is rows[3]
    assert mnist.paths.choose([row(1.0, 0.8, 1.0), row(1.0, 0.9, 2.0)])["inner"]["right"] == 0.9
    assert mnist.paths.choose([rows[0], row(0.4, 1.0, 0.0)]) is rows[0]


def test_what_was_searched_is_what_is_measured(mnist):
    settings, method = mnist.settings.QUICK, mnist.settings.Method(bandwidth=3.0, landing=0.1, landing_bandwidth=1.0)
    chosen = {"chosen": {"learned": vars(method)}}
    methods = mnist.paths.chosen_methods(settings, chosen)
    assert methods["learned"] == method
    assert methods["no metric, as a thread"] == replace(method, metric="stein", strength=0.0)
    assert methods["learned, σ = 2"] == replace(method, bandwidth=2.0)
    assert methods["LERP"].kind == "lerp"
    assert settings.methods["learned"] != method


def test_the_search_draws_threads_in_steins_metric_like_ours(mnist, strokes, judge):
    settings = replace(mnist.settings.QUICK, searched={"landing": (0.25,), "bandwidth": (1.0, 2.0), "strength": (3.0,)})
    _, pairs = mnist.paths.draw_pairs(strokes, (2, 1), seed=0)
    lines: list[str] = []
    found = mnist.paths.search(_Nearest(strokes.train), pairs, settings, judge, lines.append)
    assert len(found["rows"]) == 2 + 3 + 1
    stein = found["chosen"]["Stein, as a thread"]
    assert (stein["metric"], stein["landing"], stein["strength"]) == ("stein", 0.25, 3.0)
    assert found["chosen"]["Stein, as published"]["landing"] == 0
    assert sum(line.startswith("BEST") for line in lines) == 3


def test_errors_over_pairs_are_those_of_leaving_one_out(mnist, rng):
    """A ratio of means over the same pairs: its error to first order agrees with the jackknife."""
    straight = 10 + torch.randn(200, generator=rng, dtype=torch.float64)
    distance = 0.7 * straight + 0.5 * torch.randn(200, generator=rng, dtype=torch.float64)
    found = mnist.paths._ratio(distance, straight)
    others = ~torch.eye(200, dtype=torch.bool)
    ratios = torch.stack([distance[keep].mean() / straight[keep].mean() for keep in others])
    jackknife = float((199 / 200 * (ratios - ratios.mean()).square().sum()).sqrt())
    assert found["distance_over_lerp_midpoint_error"] == pytest.approx(jackknife, rel=0.02)
    assert mnist.paths.standard_error(straight) == pytest.approx(float(straight.std()) / 200**0.5)


def test_differences_from_the_learned_thread_are_paired(mnist, strokes, judge):
    pairs, _ = mnist.paths.draw_pairs(strokes, (2, 1), seed=0)
    line = mnist.settings.Method(kind="lerp")
    rows = mnist.paths.compare(None, pairs, {"LERP": replace(line, step=0.2), "learned": line}, judge, 5)
    assert rows["LERP"]["minus_learned"] == {
        **dict.fromkeys(("distance", "right", "confidence"), 0.0),
        **dict.fromkeys(("distance_error", "right_error", "confidence_error"), 0.0),
    }


def test_without_a_metric_a_flow_goes_straight_but_for_the_landing(mnist):
    start, end = ends()
    field, method = ExactField(Sphere(2)), mnist.settings.Method(metric="none", bandwidth=0.2, max_steps=1, step=0.25)
    sigma = start.new_full((len(start),), 0.2)
    straight = start + 0.25 * (mnist.flow.land(field, end, sigma) - start)
    moved = mnist.flow.trajectory(field, start, end, method)[:, -1]
    torch.testing.assert_close(moved, straight + method.landing * mnist.flow.pull(field, straight, sigma))
    assert not torch.allclose(moved, straight)


class _Nearest:
    """One tangent direction, and a denoiser that shrinks: cheap, and no geometry."""

    dim = 784

    def __init__(self, samples) -> None:
        self.center = samples.mean(0)

    def metric(self, points, bandwidth):
        return LowRankMetric(torch.nn.functional.normalize(points - self.center, dim=-1)[:, None])

    def denoise(self, points, bandwidth):
        return self.center + 0.9 * (points - self.center)


def test_the_spectrum_is_described_by_class(mnist):
    values = torch.tensor([[1.04, 0.6, 0.1], [1.1, 0.2, 0.0], [0.9, 0.8, 0.7]])
    found = mnist.spectra.describe(values, torch.tensor([0, 0, 1]), 2.0)
    assert found["share_in_range"] == pytest.approx(2 / 3)
    assert found["largest"] == pytest.approx(1.1)
    assert found["count_by_class"] == {"0": 1.5, "1": 3.0}
    assert found["trace_by_class"] == pytest.approx({"0": (1.74 + 1.3) / 2, "1": 2.4})


def test_eigenvectors_are_counted_from_one_and_those_beyond_the_rank_left_out(mnist):
    numbers, vectors, values = mnist.spectra.eigenvectors(ExactField(Sphere(2)), ends()[0], 0.1, (1, 3, 50))
    assert numbers == (1, 3)
    assert vectors.shape == (2, 2, 3)
    # The last of three directions is the normal one.
    torch.testing.assert_close((vectors[:, 1] * ends()[0]).sum(-1).abs(), torch.ones(2, dtype=torch.float64))
    assert bool((values[:, 0] > 0.9).all() and (values[:, 1] < 0.1).all())


# Figures.


def test_spectra_are_summed_up_for_every_class_and_end_at_the_whole(mnist):
    values = {"0": np.array([1.0, 0.5, 0.5]), "1": np.array([1.0, 0.25, 0.0])}
    left, right = mnist.figures.plot_class_spectra(values).axes
    sums = {line.get_label(): line.get_ydata() for line in left.lines}
    np.testing.assert_allclose(sums["0"], [1.0, 1.5, 2.0])
    np.testing.assert_allclose(sums["1"], [1.0, 1.25, 1.25])
    assert all(line.get_ydata()[-1] == 1 for line in right.lines)
    np.testing.assert_array_equal(left.lines[0].get_xdata(), [1, 2, 3])


def test_ten_classes_look_different(mnist):
    left, right = mnist.figures.plot_class_spectra({str(k): np.array([1.0, 0.1 * k]) for k in range(10)}).axes
    looks = {(line.get_color(), line.get_linestyle()) for line in left.lines}
    assert len(looks) == 10
    assert [text.get_text() for text in right.get_legend().get_texts()] == [str(k) for k in range(10)]


def test_an_odd_group_of_pictures_leaves_its_neighbor_empty(mnist):
    rows = {name: np.random.default_rng(0).uniform(0, 1, (4, 6, 5)) for name in ("straight", "curved")}
    figure = mnist.figures.plot_image_rows({str(k): rows for k in range(3)}, title="Paths")
    assert [len(axes.images) for axes in figure.axes] == [1, 1, 1, 0]
    assert [axes.get_title() for axes in figure.axes] == ["0", "1", "2", ""]
    assert not figure.axes[3].axison
    assert figure.get_suptitle() == "Paths"
