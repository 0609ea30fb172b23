"""The page on cells runs as printed, on a made-up tree, and finds what the tree was made of; so does the experiment."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from experiments.cells.marrow import ENDS, MARKERS, START, half
from experiments.cells.run import main
from experiments.cells.tables import METHODS, PAIRED, TABLES, fill, velocity_table
from experiments.cells.velocities import local_pca, shares
from tests.docs.pages import run

FOLDER = Path(__file__).parents[2] / "experiments" / "cells"
# Which genes rise along which fate; those of the stem cell fall along all.
RISING = {"erythroid": ("GATA1", "KLF1", "HBB", "CA1"), "monocyte": ("MPO", "ELANE", "CSF1R"), "dendritic": ("IRF8",)}


def counts_of_a_tree(n_cells=240, n_others=250):
    """Counts of genes along three branches that leave one stem, and names of cells and genes."""
    rng = np.random.default_rng(0)
    genes = [*MARKERS, *(f"G{k}" for k in range(n_others))]
    fate, way = np.arange(n_cells) % len(ENDS), rng.uniform(size=n_cells)
    way[:4] = 0.0, 1.0, 1.0, 1.0
    fate[1:4] = range(3)
    rates = np.tile(rng.uniform(0.2, 1.0, len(genes)), (n_cells, 1))
    turns = rng.normal(size=(len(ENDS) + 1, n_others))
    for k, risen in enumerate(RISING.values()):
        for gene in risen:
            rates[:, genes.index(gene)] += 8 * np.where(fate == k, way, 0)
    for gene in ("AVP", "CD34"):
        rates[:, genes.index(gene)] += 8 * (1 - way)
    rates[:, len(MARKERS) :] *= np.exp(0.5 * way[:, None] * turns[fate])
    names = np.array([f"cell{k}" for k in range(n_cells)], dtype=object)
    names[:4] = START, *ENDS.values()
    return sparse.csr_matrix(rng.poisson(3 * rates).astype(np.float32)), names, genes


@pytest.fixture
def file(tmp_path):
    anndata = pytest.importorskip("anndata")
    counts, names, genes = counts_of_a_tree()
    cells = anndata.AnnData(counts)
    cells.obs_names, cells.var_names = names, genes
    cells.write_h5ad(tmp_path / "marrow_sample_scseq_counts.h5ad")
    return tmp_path / "marrow_sample_scseq_counts.h5ad"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("file", "brief_fits")
def test_the_page_finds_the_genes_of_the_tree(capsys):
    names = run("tutorials/cells.md")
    assert set(names["change"].index[-8:]) >= {"HBB", "GATA1"}
    assert "AVP" in names["change"].index[:8]
    assert names["rising"].index[0] in RISING["monocyte"]
    assert names["genes"]["HBB"].iloc[-1] > names["genes"]["HBB"].iloc[0]
    assert "dimension" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_experiment_runs_from_files_and_writes_results_and_pictures(file, tmp_path):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 120)
    circle, onwards = (np.stack([f(angle), g(angle)], 1) for f, g in ((np.cos, np.sin), (np.sin, np.cos)))
    onwards[:, 0] *= -1
    stored = {"pcs": circle @ np.eye(2, 4), "velocity": onwards @ np.eye(2, 4), "time": np.arange(120) % 5}
    np.savez(tmp_path / "bodies.npz", **stored)
    told = ["--embryoid", str(tmp_path / "bodies.npz"), "--components", "4", "--seeds", "1", "--steps", "60"]
    assert main([*told, "--marrow", str(file), "--out", str(tmp_path / "out")]) == 0
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"results.json", "tree.png", "scale.png", "paths.png", "velocities.png"}


def test_shares_and_local_pca_of_a_circle_are_exact():
    angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    circle, onwards = np.stack([np.cos(angle), np.sin(angle)], 1), np.stack([-np.sin(angle), np.cos(angle)], 1)
    found = shares(local_pca(circle, 9, 2), 3 * onwards)
    np.testing.assert_allclose(found, 1, atol=1e-6)
    np.testing.assert_allclose(shares(local_pca(circle, 9, 2), circle)[:, 0], 0, atol=1e-6)


def test_the_best_is_bold_whoever_it_is():
    means = dict.fromkeys(METHODS, [0.2] * 10)
    found = {"means": means | {"local PCA": [0.9] * 10}, **dict.fromkeys(PAIRED, [[-0.7, 0.01]] * 10)}
    found |= {"bandwidths": [[1.0] * 10], "neighbors": [30] * 10, "default": [0.5]}
    rows = velocity_table({"bodies": {"6": found}}).splitlines()
    assert [row.split("|")[2].strip() for row in rows if "**" in row] == ["local PCA"]


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_those_of_the_results(name):
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert fill(text, name, TABLES[name](results)) == text


def test_what_the_pages_say_of_the_first_fit_is_so():
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    marrow, within = results["marrow"]["seeds"][0], results["bodies"]["30"]
    ways = marrow["paths"]["scale of the tree"]
    assert marrow["scales"][0]["valid"] == 0
    assert max(marrow["scales"], key=lambda one: one["valid"])["bandwidth"] == marrow["tree"]
    for kind in ("half", "half, cells around"):
        order = ways["erythroid"][kind]
        assert order["GATA1"] <= order["KLF1"] < order["HBB"] - 0.2
    assert max(ways["dendritic"]["genes"]["MPO"]) > ways["dendritic"]["genes"]["MPO"][-1] + 0.5
    assert all(way["nearest cell, path"] < 0.6 * way["nearest cell, line"] for way in ways.values())
    assert all(gap - half > 0.03 for gap, half in within["without labels"])
    assert all(gap > 0 for gap, _ in within["learned − local PCA"])


def test_half_of_a_rise_is_where_it_last_was_below():
    assert half(np.array([1.0, 0.9, 0.2, 0.0, 0.0])) == 0.25
