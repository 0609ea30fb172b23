"""The code in the documentation runs as printed, and answers what the pages say.

Default fits are cut short (`brief_fits`), so what is asserted here is what a fit of five seconds already knows.
"""

import numpy as np
import pytest
import torch

from tests.docs.pages import DOCS, blocks, pages, run

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning")]

WITH_CODE = [page for page in pages() if blocks(page)]
# Pages that are run by tests of their own.
RUN_ELSEWHERE = {
    "command_line.md": "cli/test_page.py",
    "report.md": "report/test_report_docs.py",
    "tutorials/cells.md": "docs/test_cells.py",
}
# Blocks that are shown and not run, by page: they need a cluster.
NOT_RUN: dict[str, int] = {"how_to/large_data.md": 2}


def dimension(names):
    assert names["estimate"].value == 2
    assert names["estimate"].interval == (2, 2)
    assert (names["local"] == 2).mean() > 0.9


def tangents(names):
    radial = np.einsum("nd,ndk->nk", names["X"][:10], names["basis"])
    assert np.abs(radial).max() < 0.3
    assert (names["share"] <= 1 + 1e-6).all()
    assert np.abs(names["shares"] - (1 - names["X"][:10] ** 2)).to_numpy().max() < 0.2
    np.testing.assert_array_equal(names["basis_there"].loc[3], names["basis"][3])


def denoise(names):
    assert names["after"].mean() < 0.5 * names["before"].mean()


def gradient(names):
    # The last of the three is the projection of (0, 0, 2z); on the unit sphere that is (0, 0, 2z) − 2z²·x.
    x = names["X"][:10]
    exact = names["euclidean"] - (names["euclidean"] * x).sum(1, keepdims=True) * x
    assert np.abs(names["slope"] - exact).max() < 0.2


def optimize(names):
    assert names["way"].shape == (5, 21, 3)
    assert np.linalg.norm(names["best"] - [0, 0, -1]) < 0.2


def paths(names):
    assert bool(names["path"].connected.all())
    great_circle = np.arccos(names["X"][0] @ names["X"][1])
    assert float(names["path"].length()) == pytest.approx(great_circle, rel=0.03)
    assert names["distances"].shape == (4, 3)
    assert np.abs(names["arrived"].numpy() - names["X"][3:6]).max() < 0.2


def curvature(names):
    assert names["curvature"].scalar.mean() == pytest.approx(2, abs=0.4)
    assert ((names["curvature"].mean * names["points"]).sum(1) < 0).all()  # inwards


def eigenfunctions(names):
    np.testing.assert_allclose(names["found"].values[1:], [2, 2, 2, 6, 6, 6, 6, 6], rtol=0.1)
    # On a sphere the first three coordinates are the point itself, turned, at √(3/2) of its length.
    np.testing.assert_allclose(np.linalg.norm(names["coordinates"], axis=1), 1.5**0.5, rtol=0.15)
    assert names["model"].score(names["X"], names["X"][:, 2] ** 3) > 0.5


def validity(names):
    assert names["check"].valid[:50].mean() > 0.8
    assert not names["check"].valid[50:].any()


def kernel(names):
    assert (names["dimension"] == 2).mean() > 0.9


def images(names):
    assert names["film"].shape == (1, 5, 1, 28, 28)
    assert names["directions"].shape == (2, 5, 1, 28, 28)
    assert names["normalized"].shape == (5, 1, 28, 28)


def large_data(names):
    assert names["done"].n_rows == 1000
    assert (names["answers"].values[:, 1] == names["geometry"].dimension(names["X"][500:])).all()
    assert set(names["answered"]) == {"id", "point", "dimension"}


def save(names):
    assert (names["again"].denoise(names["X"]) == names["geometry"].denoise(names["X"])).all()
    assert names["tensor"].shape == names["dense"].shape == (10, 3, 3)


def scale_and_rank(names):
    assert names["known"].bandwidth == 0.15
    assert (names["fine"] == 2).mean() > 0.9


def own_parts(names):
    # 1/(1 + σ²) is ᾱ of that step.
    exact = torch.stack([names["alphas_cumprod"][300], torch.zeros((), dtype=torch.float64)])
    torch.testing.assert_close(names["values"], exact.expand(5, 2), rtol=1e-9, atol=1e-9)
    assert isinstance(names["pca"], names["MetricField"])
    assert bool(names["path"].connected.all())
    assert torch.isfinite(names["mean_loss"] + names["metric_loss"]).all()
    assert names["geometry"].field is names["field"]


def getting_started(names):
    assert names["tangent"].shape == (5, 3, 2)
    assert names["again"].bandwidth == names["geometry"].bandwidth


def toolkit(names):
    assert names["estimate"].value == 2
    assert names["check"].valid[:50].mean() > 0.8
    assert not names["check"].valid[50:].any()
    assert bool(names["path"].connected.all())
    assert names["cdc"](names["X"][:300, 0], names["X"][:300]).shape == (300, 5)


def saving(names):
    assert len(names["small"].landmarks) == 100
    assert (names["again"].denoise(names["X"]) == names["own"].denoise(names["X"])).all()
    assert "model.safetensors is truncated: 1000 of" in names["printed"]


def image_guide(names):
    assert names["geometry"].sample_shape == (1, 8, 8)
    assert names["directions"].shape == (6, 3, 1, 8, 8)
    assert names["weights"].shape == (6, 3)
    assert names["film"].shape == (1, 5, 1, 8, 8)
    assert 0 <= names["film"].min() <= names["film"].max() <= 1


# What each page should have found, beyond running.
FINDINGS = {
    "how_to/dimension.md": dimension,
    "how_to/tangents.md": tangents,
    "how_to/denoise.md": denoise,
    "how_to/gradient.md": gradient,
    "how_to/optimize.md": optimize,
    "how_to/paths.md": paths,
    "how_to/curvature.md": curvature,
    "how_to/eigenfunctions.md": eigenfunctions,
    "how_to/validity.md": validity,
    "how_to/kernel.md": kernel,
    "how_to/images.md": images,
    "how_to/large_data.md": large_data,
    "how_to/save.md": save,
    "scale_and_rank.md": scale_and_rank,
    "own_parts.md": own_parts,
    "getting_started.md": getting_started,
    "toolkit.md": toolkit,
    "saving.md": saving,
    "images.md": image_guide,
}


@pytest.mark.slow
@pytest.mark.usefixtures("brief_fits")
@pytest.mark.parametrize("page", [page for page in WITH_CODE if page not in RUN_ELSEWHERE])
def test_the_code_of_a_page_runs_and_finds_what_it_says(page, capsys):
    names = run(page)
    names["printed"] = capsys.readouterr().out
    FINDINGS.get(page, lambda _: None)(names)


@pytest.mark.parametrize("page", RUN_ELSEWHERE)
def test_pages_that_are_run_elsewhere_are_run_there(page):
    text = (DOCS.parent / "tests" / RUN_ELSEWHERE[page]).read_text(encoding="utf-8")
    assert page in text
    assert "exec(" in text or "run(" in text


def test_pages_with_findings_exist():
    assert sorted(set(FINDINGS) - set(WITH_CODE)) == []


def test_blocks_that_are_not_run_are_marked_and_counted():
    marks = {page: [mark for mark, _ in blocks(page)] for page in WITH_CODE}
    assert {mark for found in marks.values() for mark in found} <= {"", "no-run"}
    assert {page: found.count("no-run") for page, found in marks.items() if "no-run" in found} == NOT_RUN


def test_how_to_pages_begin_with_the_lines_that_their_index_shows():
    (_, shown), *_ = blocks("how_to/index.md")
    own_start = {"how_to/index.md", "how_to/images.md", "how_to/stability.md"}
    for page in WITH_CODE:
        if page.startswith("how_to/") and page not in own_start:
            assert blocks(page)[0][1].replace("  # a sphere, in place of your table", "") == shown
