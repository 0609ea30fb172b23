"""Every method is tuned and compared on the same images, a broken run goes on, and the tables say what was found."""

import dataclasses
import json

import pytest
import torch

from carre.fields import IsotropicField, NoDenoiserError, SteinField
from experiments.measures import compare_stability, feature_stability
from experiments.stability.comparison import run_stability
from experiments.stability.methods import methods_on
from experiments.stability.settings import StabilitySettings
from experiments.stability.tables import stability_tables
from tests.experiments.stability_runs import FEATURES, NAMES, SIDE, TINY, blobs, field, run


@pytest.fixture(scope="module")
def results():
    return run(source={"model": "exact"})


def without_times(results):
    """Take out what differs from run to run."""
    text = json.loads(json.dumps(results))
    for entry in text["methods"].values():
        for row in [entry, *entry["grid"], entry["test"]]:
            row.pop("seconds"), row.pop("metric_seconds_per_image", None)
    return text


def test_every_method_is_measured_on_the_same_images_or_the_first_of_them(results):
    assert list(results["methods"]) == NAMES
    for name, entry in results["methods"].items():
        few = name == "score Jacobian, full"
        assert entry["test"]["n_images"] == (TINY.n_full if few else TINY.n_images)
        assert {row["n_images"] for row in entry["grid"]} == {TINY.n_full_validation if few else TINY.n_validation}
    assert len(results["methods"]["Stein score"]["grid"]) == 4
    assert len(results["methods"]["random directions"]["grid"]) == 1
    assert json.loads(json.dumps(results)) == results


def test_a_method_takes_the_setting_with_the_least_shift_relative_to_random_directions(results):
    random = torch.tensor(results["methods"]["random directions"]["grid"][0]["of_images"])
    for name, entry in results["methods"].items():
        relative = [
            float((torch.tensor(row["of_images"]).mean(1) / random[:, : row["n_images"]].mean(1)).mean())
            for row in entry["grid"]
        ]
        best = entry["grid"][relative.index(min(relative))]
        # To the six digits that are kept.
        assert best["relative"] == pytest.approx(min(relative), rel=1e-5), name
        assert entry["chosen"] == entry["test"]["setting"] == best["setting"]


def test_comparisons_are_those_of_the_measure_itself(results):
    test = blobs(10, seed=2).images[: TINY.n_images]
    ours, theirs = (results["methods"][name]["chosen"] for name in ("metric matching", "Stein score"))
    stein = SteinField(field(), strength=theirs["strength"])
    options = {"radii": TINY.radii, "n_draws": TINY.n_draws, "seed": TINY.seed, "batch_size": TINY.batch_size}
    first, second = (
        feature_stability(some, test, FEATURES, bandwidth=setting["bandwidth"], **options)
        for some, setting in ((field(), ours), (stein, theirs))
    )
    expected, found = compare_stability(first, second, level=TINY.level), results["paired"]["Stein score"]
    for name in ("difference", "low", "high", "ratio", "share"):
        torch.testing.assert_close(torch.tensor(found[name]).double(), getattr(expected, name), rtol=1e-4, atol=1e-5)
    assert results["paired"]["score Jacobian, full"]["n_images"] == TINY.n_full


def test_ours_is_compared_at_every_common_scale_and_losses_are_listed(results):
    same = results["same_bandwidth"]
    assert [len(same[name]) for name in NAMES if name != "metric matching"] == [2, 4, 2, 2, 2]
    for rows in same.values():
        assert all(row["theirs"].get("bandwidth", row["ours"]["bandwidth"]) == row["ours"]["bandwidth"] for row in rows)
    comparisons = [*results["paired"].values(), *(row for rows in same.values() for row in rows)]
    assert len(results["beaten"]) == sum(sum(found["loses"]) for found in comparisons)
    assert all(loss["low"] > 0 for loss in results["beaten"])


class Untrained(IsotropicField):
    """A learned metric that has learned nothing."""

    def __init__(self):
        super().__init__(SIDE**2, field())


def test_a_better_method_is_listed_as_such_and_an_equal_one_is_not():
    settings = dataclasses.replace(TINY, bandwidths=(0.4,), strengths=(1.0,))
    beaten = {loss["method"] for loss in run(settings, field=Untrained())["beaten"]}
    assert "true tangent space" in beaten
    assert "random directions" not in beaten


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_was(results):
    saved, lines = [], []

    def break_off(so_far):
        saved.append(json.dumps(so_far))
        if len(saved) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(source={"model": "exact"}, save=break_off)
    # Random directions on both splits, ours at two σ and on the test images.
    resumed = run(source={"model": "exact"}, done=json.loads(saved[-1]), report=lines.append)
    assert not any(line.startswith(("random directions", "metric matching")) for line in lines)
    assert without_times(resumed) == without_times(results)


def test_results_that_are_gone_on_with_are_left_as_they_were(results):
    done = json.loads(json.dumps(results))
    del done["methods"]["metric matching"]["grid"][1]
    before = json.dumps(done)
    again = run(source={"model": "exact"}, done=done)
    assert len(again["methods"]["metric matching"]["grid"]) == len(TINY.bandwidths)
    assert json.dumps(done) == before


@pytest.mark.parametrize(
    "change", [{"source": {"model": "another"}}, {"settings": dataclasses.replace(TINY, n_draws=1)}]
)
def test_results_of_something_else_are_not_gone_on_with(results, change):
    def stop(line):
        raise InterruptedError(line)

    with pytest.raises(InterruptedError, match="random directions"):
        run(**({"source": {"model": "exact"}} | change), done=results, report=stop)


def test_another_uncentered_model_is_measured_alone(results):
    lines = []
    name = "metric matching, uncentered"
    options = {"uncentered": field(), "done": results, "report": lines.append}
    first = run(source={"model": "exact", name: "one"}, **options)
    assert {line.split(", σ")[0] for line in lines} == {name}
    assert first["paired"][name]["difference"] == [0.0, 0.0]
    lines.clear()
    run(source={"model": "exact", name: "two"}, **(options | {"done": first}))
    assert {line.split(", σ")[0] for line in lines} == {name}


def test_the_tables_hold_every_method_and_who_wins(results):
    tables = stability_tables(results)
    for name, entry in results["methods"].items():
        assert f"| {'**metric matching**' if name == 'metric matching' else name}" in tables
        assert f"{entry['test']['mean'][0]:.3g} ± {entry['test']['deviation'][0]:.2g}" in tables
        for row in entry["grid"]:
            assert f"{row['relative']:.3f}" in tables
    found = results["paired"]["random directions"]
    assert f"{found['difference'][0]:+.3g} [{found['low'][0]:+.3g}, {found['high'][0]:+.3g}]" in tables
    assert results["choice"] in tables
    nobody = stability_tables(results | {"beaten": []})
    assert "No method moves features less than metric matching" in nobody
    assert "Better than metric matching" not in nobody


def test_tables_of_an_interrupted_run_show_what_there_is(results):
    methods = {name: results["methods"][name] for name in ("random directions", "metric matching")}
    begun = {name: value for name, value in methods["metric matching"].items() if name != "test"}
    tables = stability_tables(results | {"methods": methods | {"metric matching": begun}, "paired": {}, "beaten": []})
    assert "| random directions |" in tables
    assert "minus" not in tables


def test_beyond_4096_pixels_there_is_no_full_jacobian():
    names = [[method.name for method in methods_on(IsotropicField(dim), TINY)] for dim in (4096, 4097)]
    assert set(names[0]) - set(names[1]) == {"score Jacobian, full"}


def test_a_field_without_a_denoiser_is_refused():
    with pytest.raises(NoDenoiserError, match="field must have a denoiser, which all methods share"):
        run(field=IsotropicField(SIDE**2))


@pytest.mark.usefixtures("unchecked")
def test_test_images_of_another_shape_are_refused_before_anything_is_measured():
    def never(images):
        raise AssertionError("measured")

    with pytest.raises(
        ValueError, match=r"test must be images of the shape of validation, \(1, 9, 9\); got \(1, 3, 27\)"
    ):
        run_stability(field(), blobs(8).images, blobs(8).images.reshape(8, 1, 3, 27), never, TINY)


def test_features_that_never_move_are_refused():
    with pytest.raises(ValueError, match="features must move along random directions"):
        run(features=lambda x: 0 * x)


def test_too_few_images_are_refused():
    with pytest.raises(ValueError, match="test must be at least 11 images"):
        run(settings=dataclasses.replace(TINY, n_images=11))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radii": ()}, "radii must be different positive numbers"),
        ({"radii": (1.0, 1.0)}, "radii must be different positive numbers"),
        ({"bandwidths": (-1.0,)}, "bandwidths must be different positive numbers"),
        ({"strengths": (float("nan"),)}, "strengths must be different positive numbers"),
        ({"n_images": 1}, "n_images must be a whole number of at least 2; got 1"),
        ({"n_draws": 0}, "n_draws must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        StabilitySettings(**change)


def test_scales_that_no_model_knows_are_refused():
    with pytest.raises(ValueError, match=r"bandwidths must have some within 5 to 6"):
        TINY.within(5.0, 6.0)
