"""The pictures of the pages are those that their scripts draw."""

import importlib.util

import matplotlib as mpl
import numpy as np
import pytest

from tests.docs.pages import DOCS

# Of each script: the folder of its pictures, and the pages that show them.
SCRIPTS = {
    "figures": ("concepts", ["concepts.md", "how_to/eigenfunctions.md"]),
    "how_to_figures": ("how_to", sorted(DOCS.glob("how_to/*.md"))),
}


def module_of(script):
    spec = importlib.util.spec_from_file_location(f"docs_{script}", DOCS / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_picture_is_drawn_by_its_script_and_shown(script):
    folder, pages = SCRIPTS[script]
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    drawn = set(module_of(script).FIGURES)
    assert {path.stem for path in (DOCS / "images" / folder).glob("*.png")} == drawn
    assert [name for name in drawn if f"images/{folder}/{name}.png" not in text] == []


@pytest.mark.parametrize(("folder", "most"), [("concepts", 100_000), ("how_to", 60_000), ("cells", 60_000)])
def test_pictures_are_small(folder, most):
    files = list((DOCS / "images" / folder).glob("*.png"))
    assert files
    assert [file.name for file in files if file.stat().st_size > most] == []


@pytest.mark.slow
def test_the_dimension_of_the_noisy_curve_is_two_then_one_then_none():
    figures = module_of("figures")
    with mpl.rc_context():
        axes = figures.draw_dimension().axes[0]
    assert [text.get_text() for text in axes.texts if "-D" in text.get_text()] == ["2-D", "1-D", "0-D"]
    # The second eigenvalue is one half where σ is the deviation of the noise: τ²/(σ² + τ²), nearly.
    scales, second = axes.lines[1].get_data()
    assert np.interp(np.log(figures.NOISE), np.log(scales), second) == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_the_pictures_of_paths_and_of_curvature_show_what_their_titles_say():
    figures = module_of("how_to_figures")
    with mpl.rc_context():
        around, between = figures.draw_paths().axes
        curvature = figures.draw_curvature().axes[1]
    said = [text.get_text() for axes in (around, between) for text in axes.get_legend().get_texts()]
    assert ["not connected" in label for label in said[:2]] == [False, True]
    assert said[2] == "connected: False"
    exact, found = curvature.lines[0].get_xydata(), curvature.collections[0].get_offsets()
    assert np.abs(np.interp(found[:, 0], *exact.T) - found[:, 1]).max() < 0.05
