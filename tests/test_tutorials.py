"""The tutorials run with shortened fits, write the pictures that their text shows, and are right about the geometry."""

import re
import runpy
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
NAMES = ("noisy_curve", "digits", "alanine_dipeptide", "geometers_shape", "denoiser")

pytestmark = pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning", "ignore:rank .* is too small")


def run(name: str, figures: Path) -> dict:
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context():
        patch.setenv("CARRE_QUICK", "1")
        patch.setenv("CARRE_FIGURES", str(figures))
        patch.delenv("CARRE_ALANINE", raising=False)
        return runpy.run_path(str(TUTORIALS / f"{name}.py"))


def pictures_of(name: str) -> set[str]:
    text = (TUTORIALS / f"{name}.py").read_text(encoding="utf-8")
    return set(re.findall(r"\(\.\./images/tutorials/([a-z_]+\.png)\)", text))


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_of_the_text_is_there_and_none_is_left_over(name):
    stored = {path.name for path in (TUTORIALS.parent / "images" / "tutorials").glob(f"{name}_*.png")}
    assert pictures_of(name) == stored
    assert all((TUTORIALS.parent / "images" / "tutorials" / file).stat().st_size <= 150_000 for file in stored)


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_begins_with_its_title_and_alternates_text_and_code(name):
    text = (TUTORIALS / f"{name}.py").read_text(encoding="utf-8")
    kinds = re.findall(r"^# %%(.*)$", text, re.MULTILINE)
    assert set(kinds) == {"", " [markdown]"}
    assert re.search(r'^"""[^"]+"""\n\n# %% \[markdown\]\n# # \S', text)
    assert len(text.splitlines()) <= 300


@pytest.mark.slow
def test_the_noisy_curve_has_its_dimensions_its_tangents_and_its_paths(tmp_path):
    found = run("noisy_curve", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == pictures_of("noisy_curve")
    assert found["right"] > 0.9
    assert np.median(found["tangent_error"]) < 5
    assert found["errors"]["intrinsic"] < 0.25 * found["errors"]["Euclidean"]
    # The third path runs beside a gap that a short fit does not see.
    away = found["path"][:2].resample(101).distance_to(found["X"]).max().item()
    assert away < 0.4 * found["line_away"]
    below_noise = found["shares"][found["scales"][0]]
    assert below_noise[0] < 0.1, "below the noise the arm is a surface"


@pytest.mark.slow
def test_the_geometry_of_digits_knows_where_digits_are(tmp_path):
    found = run("digits", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == pictures_of("digits")
    shares = found["removed"][found["sigma"]]
    assert shares["Carré"] > shares["kernel"]
    assert found["found"]["thread"]["distance"] < found["found"]["straight"]["distance"]

    # A step along the data comes nearer to other digits than a step of the same length at random.
    geometry, test, train = found["geometry"], found["test"][:100], found["train"]
    along = geometry.tangent_basis(test, dimension=1)[:, :, 0]
    astray = np.random.default_rng(0).standard_normal(test.shape)
    astray /= np.linalg.norm(astray, axis=1, keepdims=True)

    def nearest(step: np.ndarray) -> float:
        moved = test + 4 * found["sigma"] * step
        return float(np.linalg.norm(moved[:, None] - train[None], axis=2).min(1).mean())

    assert max(nearest(along), nearest(-along)) < nearest(astray)


@pytest.mark.slow
def test_the_two_angles_of_the_toy_molecule_are_found(tmp_path):
    found = run("alanine_dipeptide", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == pictures_of("alanine_dipeptide")
    assert found["estimate"].value == 2
    assert (np.median(found["learned"], axis=0) < [10, 20]).all()
    assert (np.median(found["chance"], axis=0) > 60).all()
    worst = {name: found["stretched"](points[1:-1]).max() for name, points in found["ways"].items()}
    assert worst["along the data"] < 0.6 * worst["straight"]


@pytest.mark.slow
def test_a_learned_sphere_answers_like_the_sphere(tmp_path):
    found = run("geometers_shape", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == pictures_of("geometers_shape")
    assert found["estimate"].value == 2
    for name, (answer, exact) in found["answers"].items():
        assert answer == pytest.approx(exact, rel=0.08), name
    assert found["off"].max() < 0.02
    np.testing.assert_allclose(found["eigen"].values[1:], found["levels"][1:], rtol=0.03)
    assert found["left"] < 0.05


@pytest.mark.slow
def test_the_torsions_of_the_toy_are_those_that_were_drawn():
    """Atoms attached with a twist have that twist: the oracle of the tutorial does not depend on the learner."""
    text = (TUTORIALS / "alanine_dipeptide.py").read_text(encoding="utf-8")
    names: dict = {}
    exec(text[: text.index("if DATA:")], names)
    drawn = np.array([[-150.0, 150.0], [-75.0, -20.0], [60.0, 40.0]])
    center = [np.tile(place, (3, 1)) for place in ([0.0, 0, 0], [0.147, 0, 0], [0.203, 0.143, 0])]
    atoms = dict.fromkeys(names["ATOMS"], center[0]) | dict(zip(("N", "CA", "C"), center, strict=True))
    atoms["C'"] = names["attach"](atoms["C"], atoms["CA"], atoms["N"], 0.133, 122, drawn[:, 0])
    atoms["N'"] = names["attach"](atoms["N"], atoms["CA"], atoms["C"], 0.133, 116, drawn[:, 1])
    np.testing.assert_allclose(names["torsions"](np.stack(list(atoms.values()), axis=1)), drawn, atol=1e-9)


@pytest.mark.slow
def test_a_diffusion_model_lends_its_geometry(tmp_path):
    """Trained for a moment, all three know digits a little, and the two of the same denoiser agree with it."""
    found = run("denoiser", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == pictures_of("denoiser")
    assert found["by_factor"] < found["by_products"]
    assert all(share < 0.8 for share in found["left"].values())
    images = found["test"][:5]
    lent = found["geometry"].denoise(images, 0.4)
    torch.testing.assert_close(lent, found["borrowed"].denoise(images, 0.4), rtol=1e-3, atol=1e-3)
