"""The code in the documentation runs as printed."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_on_the_toolkit_runs():
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "toolkit.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 8
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["estimate"].value == 2
    assert names["check"].valid[:50].mean() > 0.8
    assert not names["check"].valid[50:].any()
    assert bool(names["path"].connected.all())
    assert names["cdc"](names["X"][:300, 0], names["X"][:300]).shape == (300, 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_on_saving_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "saving.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert len(names["small"].landmarks_) == 100
    assert (names["again"].denoise(names["X"]) == names["own"].denoise(names["X"])).all()
    assert "model.safetensors is truncated: 1000 of" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_on_images_runs():
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "images.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["geometry"].sample_shape_ == (1, 8, 8)
    assert names["directions"].shape == (6, 3, 1, 8, 8)
    assert names["weights"].shape == (6, 3)
    assert names["film"].shape == (1, 5, 1, 8, 8)
    assert 0 <= names["film"].min() <= names["film"].max() <= 1


def test_what_the_index_of_equations_names_exists():
    tests = Path(__file__).parent
    named = set(re.findall(r"`([a-z_/]+\.py)`", (DOCS / "equations.md").read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (tests / name).exists()] == []
