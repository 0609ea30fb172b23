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


def test_the_table_of_the_readme_is_that_of_the_results():
    results = json.loads((ROOT / "experiments/core/results.json").read_text(encoding="utf-8"))
    assert load(ROOT / "experiments/core/table.py").table(results) in README


def test_every_link_of_the_documentation_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "experiments").glob("*/README.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


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
    assert len(code.strip().splitlines()) <= 13
    scope = {}
    exec(code, scope)
    assert "[2 2 2 2 2]" in capsys.readouterr().out
    assert scope["tangent"].shape == (2000, 3, 2)
    assert (scope["geometry"].dimension(scope["X"]) == 2).mean() > 0.95
    tools = re.search(r"On the metric stands a\s+\[toolkit\].*?```python\n(.*?)```", README, re.DOTALL).group(1)
    exec(tools, scope)
    assert "dimension 2" in capsys.readouterr().out
    assert bool(scope["path"].connected.all())
    exec(re.search(r"\(\[the report\]\(.*?```python\n(.*?)```", README, re.DOTALL).group(1), scope)
    assert "2 dimensions, at scale" in (tmp_path / "roll.html").read_text(encoding="utf-8")
