"""The comparison runs, its tables say what it measured, and its command explains what is wrong."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from carre.fields import KernelField
from carre.manifolds import Sphere
from experiments.measures.accuracy import tangent_errors
from experiments.sphere import run
from experiments.sphere.comparison import _draw, kernel_rows, run_sphere
from experiments.sphere.settings import QUICK, SphereSettings
from experiments.sphere.step import measure_product_rate, measure_step
from experiments.sphere.tables import sphere_tables
from tests.experiments.commands import invoke

pytestmark = pytest.mark.slow

TINY = dataclasses.replace(
    QUICK,
    dimension=2,
    ambient_dim=5,
    rank=4,
    sizes=(300,),
    bandwidths=(0.125, 0.25, 0.5),
    n_neighbors=(8, 64),
    n_validation=20,
    n_test=30,
    n_timed=16,
    n_timed_learned=64,
    profile_size=300,
    with_hull=True,
    fit={"max_steps": 10, "width": 16, "batch_size": 32},
)


@pytest.fixture(scope="module")
def results():
    lines, saved = [], []
    outcome = run_sphere(TINY, report=lines.append, save=lambda so_far: saved.append(len(so_far["rows"])))
    assert saved == [1, 2, 3, 4, 5, 6, 6]
    assert sum("tangent error" in line for line in lines) == 6
    return outcome


@pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")
def test_every_method_is_measured_on_the_same_data(results):
    methods = [row["method"] for row in results["rows"]]
    assert methods == [
        "learned",
        "learned, in the linear hull",
        "Jacobian of the learned denoiser",
        "Jacobian of the learned denoiser, by random products",
        "kernel, as in the paper",
        "kernel, centered",
    ]
    for row in results["rows"]:
        assert 0 < row["tangent_error"] < 2
        assert row["metric_per_second"] > 0
    json.dumps(results)


def test_settings_of_the_kernel_are_the_best_of_the_grid(results):
    for row in results["rows"][4:]:
        curve = np.array(row["validation_curve"])
        assert curve.shape == (3, 2)
        place = np.unravel_index(curve.argmin(), curve.shape)
        assert (row["bandwidth"], row["n_neighbors"]) == (TINY.bandwidths[place[0]], TINY.n_neighbors[place[1]])


def test_the_error_of_the_kernel_is_that_of_the_field_with_those_settings(rng):
    manifold = Sphere(2).embed(5, generator=rng)
    samples, validation, test = (manifold.sample(n, generator=rng) for n in (300, 20, 30))
    _, row = kernel_rows(samples, manifold, validation, test, TINY)
    field = KernelField(samples, n_neighbors=row["n_neighbors"])
    expected = tangent_errors(field, manifold, test, row["bandwidth"]).mean()
    assert row["tangent_error"] == pytest.approx(float(expected), rel=1e-6)


def test_the_tables_hold_every_method_and_the_ratio_of_speeds(results):
    tables = sphere_tables(results)
    for row in results["rows"]:
        assert f"{row['tangent_error']:.4f}" in tables
    kernel, rows = results["rows"][4], results["rows"]
    assert f"{kernel['metric_per_second']:,.0f} (learned: " in tables.replace("**", "")
    # The best is in bold, whoever it is.
    fastest = max(row["metric_per_second"] for row in rows)
    least = min(row.get("tangent_error_full_precision", row["tangent_error"]) for row in rows)
    least = min(least, *(row["tangent_error"] for row in rows))
    assert f"**{fastest:,.0f}**" in tables
    assert f"**{least:.4f}**" in tables
    assert "λ2" in tables
    assert "training step" in tables


def test_an_uneven_sphere_is_uneven_and_a_sphere(rng):
    manifold = Sphere(2).embed(5, generator=rng)
    points = _draw(manifold, 4000, 1.0, torch.Generator().manual_seed(0))
    assert manifold.distance(points).max() < 1e-5
    variances = (points @ manifold.basis.float()).var(0)
    assert variances[2] > 5 * variances[0]


def test_a_step_is_timed_and_its_arithmetic_counted():
    short = measure_step(32, width=16, dim=5, rank=4, n_blocks=1, repeats=5, match_jacobian=False)
    assert 0 < short["milliseconds"] < 1000
    # Per sample: 5×16 in (4 operations), 16×32 and 16×16 (6), heads 16×(5 + 20); twice σ: 16×16 and 16×64 (6).
    per_sample = 2 * (4 * 80 + 6 * (512 + 256 + 256 + 1024)) + 6 * 16 * 25
    counted = short["operations_per_second"] * short["milliseconds"] / 1e3
    assert counted == pytest.approx(32 * per_sample, rel=1e-6)
    assert measure_product_rate(size=64, device="cpu", dtype=torch.float32) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"dimension": 64}, "dimension must be at least 1 and below ambient_dim"),
        ({"sizes": ()}, "sizes must be at least 100"),
        ({"sizes": (10,)}, "sizes must be at least 100"),
        ({"rank": 3}, "rank must be at least the dimension"),
        ({"bandwidths": (-1.0,)}, "bandwidths must be positive"),
        ({"n_neighbors": (1,)}, "n_neighbors must be at least 2"),
        ({"unevenness": -1.0}, "unevenness must lie between 0 and 3"),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        SphereSettings(**change)


def test_the_command_writes_results_tables_and_figures(monkeypatch, tmp_path, results):
    monkeypatch.setattr(run, "run_sphere", lambda settings, **rest: results)
    outcome = invoke(run.main, "--quick", "--device", "cpu", "--out", str(tmp_path / "new" / "folder"))
    assert outcome.exit_code == 0, outcome.output
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        "results.json",
        "tables.md",
        "scaling.png",
        "eigenvalues.png",
    }
    assert "tangent error" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "many"], "sizes must be whole numbers separated by commas; got 'many'"),
        (["--sizes", "10"], "sizes must be at least 100 samples each"),
        (["--device", "abacus"], "device must be one of torch's"),
        (["--dimension", "99"], "dimension must be at least 1"),
        (["--engines", "annoy", "--sizes", "200"], "engines must be among"),
        (["--sizes", "many", "--device", "cpu"], "error: --sizes must be whole numbers"),
        (["--sizes", "9", "--device", "cpu"], "error: --sizes must be at least 100"),
        (["--engines", "steam", "--device", "cpu"], "error: --engines must be among"),
        (["--uneven", "9", "--device", "cpu"], "error: --uneven must lie between 0 and 3"),
        (["--ambient", "1", "--device", "cpu"], "at least 1 and below --ambient, 1"),
    ],
)
def test_a_wrong_option_is_one_sentence(arguments, message):
    outcome = invoke(run.main, "--quick", *arguments)
    assert outcome.exit_code == 2
    assert message in outcome.output
    assert "Traceback" not in outcome.output


def test_help_has_examples():
    outcome = invoke(run.main, "--help")
    assert outcome.exit_code == 0
    assert "--quick" in outcome.output
