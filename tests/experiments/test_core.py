"""The README says what results.json says, and its quick start runs as printed."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from carre.training import DataScale

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_defaults_is_that_of_the_results():
    results = json.loads((ROOT / "experiments/core/results.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/results/index.md").read_text(encoding="utf-8")
    assert load(ROOT / "experiments/core/table.py").table(results) in page


def test_the_readme_takes_a_screen_and_a_half():
    lines = README.splitlines()
    assert len(lines) <= 90
    assert sum(line.startswith("|---") for line in lines) == 2, "one table of results, one of links"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")
def test_the_experiment_runs_on_a_small_sphere():
    row = load(ROOT / "experiments/core/run.py").fit_sphere(2, 4, 200, seed=1, n_test=20, max_steps=5)
    assert 0 < row["tangent_error"] <= 2
    assert row["best_on_validation"]["tangent_error"] > 0


@pytest.mark.slow
def test_the_quick_start_of_the_readme_runs_as_printed(capsys, tmp_path, monkeypatch, short_reports):
    """As printed, but with a short training of a narrow network, and a report that takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(DataScale, "max_steps", lambda scale, device: 500)
    monkeypatch.setattr(DataScale, "width", lambda scale, device: 64)
    code = re.search(r"## Quick start\n\n```python\n(.*?)```", README, re.DOTALL).group(1)
    assert len(code.strip().splitlines()) <= 15
    scope = {}
    exec(code, scope)
    printed = capsys.readouterr().out
    assert "[2 2 2 2 2]" in printed
    assert "dimension 2" in printed
    assert scope["tangent"].shape == (2000, 3, 2)
    assert (scope["geometry"].dimension(scope["X"]) == 2).mean() > 0.95
    assert bool(scope["path"].connected.all())
    assert "2 dimensions, at scale" in (tmp_path / "roll.html").read_text(encoding="utf-8")
