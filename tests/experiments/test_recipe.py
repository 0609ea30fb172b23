"""The recipe, ingredient by ingredient."""

import json
from pathlib import Path

import pytest
import torch

from experiments.recipe.run import VARIANTS, kernel_by_labels, main
from experiments.recipe.shapes import SHAPES
from experiments.recipe.table import defaults_table, summary


@pytest.mark.parametrize("name", SHAPES)
def test_tangents_are_orthonormal_and_those_of_the_shape(name):
    """Neighbors of a point lie along its tangent space, to first order: the nearest of many."""
    shape, n = SHAPES[name], 20_000
    points, bases = shape.draw(n, torch.Generator().manual_seed(0))
    assert bases.shape[1:] == (points.shape[1], shape.dimension)
    gram = bases[:50].mT @ bases[:50]
    torch.testing.assert_close(gram, torch.eye(shape.dimension).expand_as(gram), atol=1e-4, rtol=0)
    distances = torch.cdist(points[:50], points)
    steps = points[distances.topk(4, largest=False).indices[:, 1:]] - points[:50, None]
    across = steps - torch.einsum("nDd,nEd,nkE->nkD", bases[:50], bases[:50], steps)
    assert (across.norm(dim=-1) / steps.norm(dim=-1)).median() < 0.5


def test_a_quick_run_measures_every_ingredient_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("experiments.recipe.run.N_TEST", 40)
    monkeypatch.setattr("experiments.recipe.run.N_RANGE_FINDER", 10)
    monkeypatch.setattr("carre.fitting._fit._N_SELECTION", 16)
    monkeypatch.setattr("carre.fitting._fit._FEWEST_SELECTION", 16)
    options = ["--quick", "--device", "cpu", "--steps", "3", "--shapes", "s2:120", "--out", str(tmp_path)]
    results = main(options)
    assert [row["variant"] for row in results["rows"]] == list(VARIANTS)
    first = results["rows"][0]
    assert first["steps"] == 3
    assert {"0.0625", "0.125", "0.5"} == set(first["G"])
    assert json.loads((tmp_path / "results.json").read_text()) == results
    table = (tmp_path / "tables.md").read_text()
    assert all(f"| {variant} | 1 |" in table for variant in VARIANTS)
    assert table.count("**") == 2
    capsys.readouterr()
    assert main(options) == results
    assert capsys.readouterr().out == "", "what is there is not measured again"


def test_the_rival_is_a_local_pca_with_the_neighbors_that_are_best():
    """On a plane with a little noise, the more neighbors the better: its error is far below that of few."""
    generator = torch.Generator().manual_seed(0)

    def draw(n):
        flat = torch.randn(n, 2, generator=generator)
        noise = 0.02 * torch.randn(n, 1, generator=generator)
        return torch.cat([flat, noise], 1), torch.eye(3)[:, :2].expand(n, 3, 2)

    found = kernel_by_labels(draw(600)[0], draw(30), draw(30))
    assert found["n_neighbors"] >= 256
    assert found["at_end"] == (found["n_neighbors"] == 512)
    assert found["error"] < 0.01


def test_the_better_one_stands_in_bold():
    row = {"shape": "s2", "n": 600, "variant": "default", "seed": 0, "steps_each": None, "steps": 9, "ended": "done"}
    row |= {"error": 0.2, "best_error": 0.1, "error_there": 0.2, "range_finder": 0.4, "seconds": 3.0, "hardware": "CPU"}
    table = defaults_table([row | {"kernel": {"error": 0.1, "at_end": True}}])
    assert "| 0.2000 | 0.1000 | **0.1000**† | 0.50 |" in table
    assert "**0.2000** | 0.1000 | 0.3000 |" in defaults_table([row | {"kernel": {"error": 0.3, "at_end": False}}])
    assert "**" not in defaults_table([row])


def test_defaults_are_measured_until_they_are_done(tmp_path, capsys):
    results = main(
        [
            "--device",
            "cpu",
            "--only",
            "defaults",
            "--seeds",
            "1",
            "--shapes",
            "s2:60",
            "--out",
            str(tmp_path),
            "--steps",
            "2",
        ]
    )
    assert [row["variant"] for row in results["rows"]] == ["default"]
    for wrong in (
        ["--shapes", "cube:100"],
        ["--shapes", "s2:0"],
        ["--shapes", "s2"],
        ["--seeds", "0"],
        ["--jobs", "0"],
        ["--steps", "-5"],
    ):
        with pytest.raises(SystemExit):
            main([*wrong, "--device", "cpu", "--out", str(tmp_path)])
        said = capsys.readouterr().err
        assert f"{wrong[0]} must be" in said
        assert wrong[1] in said


def test_the_tables_are_those_of_the_results():
    from experiments.recipe.run import tables  # noqa: PLC0415
    from tests.experiments.conftest import EXPERIMENTS  # noqa: PLC0415

    folder = EXPERIMENTS / "recipe"
    assert (folder / "tables.md").read_text(encoding="utf-8") == tables(
        json.loads((folder / "results.json").read_text())
    )


def test_the_table_of_the_front_page_is_that_of_the_results_and_marks_the_best():
    root = Path(__file__).parents[2]
    results = json.loads((root / "experiments/recipe/results.json").read_text(encoding="utf-8"))
    table = summary(results)
    assert table in (root / "README.md").read_text(encoding="utf-8")
    methods = [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in table.splitlines()[3:]]
    for column in zip(*methods, strict=True):
        errors = [float(cell.strip("*")) if cell != "–" else float("inf") for cell in column]
        assert [cell.startswith("**") for cell in column] == [error == min(errors) for error in errors]
