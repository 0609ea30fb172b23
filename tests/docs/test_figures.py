"""The pictures of the page on concepts are those that their script draws."""

import importlib.util

import matplotlib as mpl
import numpy as np
import pytest

from tests.docs.pages import DOCS

PICTURES = DOCS / "images" / "concepts"
SHOWN = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("concepts.md", "how_to/eigenfunctions.md"))


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("docs_figures", DOCS / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_drawn_by_the_script_and_shown(figures):
    assert {path.stem for path in PICTURES.glob("*.png")} == set(figures.FIGURES)
    assert [name for name in figures.FIGURES if f"images/concepts/{name}.png" not in SHOWN] == []


def test_pictures_are_small():
    assert [path.name for path in PICTURES.glob("*.png") if path.stat().st_size > 100_000] == []


@pytest.mark.slow
def test_the_dimension_of_the_noisy_curve_is_two_then_one_then_none(figures):
    with mpl.rc_context():
        axes = figures.draw_dimension().axes[0]
    assert [text.get_text() for text in axes.texts if "-D" in text.get_text()] == ["2-D", "1-D", "0-D"]
    # The second eigenvalue is one half where σ is the deviation of the noise: τ²/(σ² + τ²), nearly.
    scales, second = axes.lines[1].get_data()
    assert np.interp(np.log(figures.NOISE), np.log(scales), second) == pytest.approx(0.5, abs=0.05)
