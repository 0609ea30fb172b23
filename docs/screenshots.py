"""Take the pictures of the page on the report: `python docs/screenshots.py` writes docs/images/report/*.png.

Chromium is taken from PATH. Digits, nuclei and wine ship with scikit-learn, the pictures are drawn here, and the single
cells are those of a source distribution, which `pip download --no-deps --no-binary :all: palantir==1.4.2` fetches: give
the folder it lies in by `--cells`, or they are left out. Fits are kept in `--work`, and reports are written anew.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

import carre

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "images"
# So much of a page is shown, of a window so wide.
WINDOWS = {"1280": (1280, 2300), "360": (360, 2400)}
LARGEST = 200_000
N_CELLS, N_COMPONENTS, N_GENES = 2000, 20, 1500


def digits() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """What `carre demo` shows."""
    train, test, _, labels = train_test_split(
        *load_digits(return_X_y=True), test_size=0.2, stratify=load_digits().target, random_state=0
    )
    shown = {"X": test, "labels": labels, "image_shape": (8, 8), "title": "The geometry of handwritten digits"}
    return train, {"rank": 40, "max_steps": 1000, "width": 128}, shown


def nuclei() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The other page of `carre demo`: three measures of one size."""
    data = load_breast_cancer()
    columns = [0, 2, 3]
    table = carre.Table(data.data[:, columns], names=tuple(data.feature_names[columns].tolist()))
    shown = {"columns": {"tumor": data.target_names[data.target]}, "labels": "tumor"}
    settings = {"scale": "standardize", "max_steps": 400, "width": 64, "bandwidth": 0.15}
    return table, settings, shown | {"title": "The size of the nuclei of 569 tumors"}


def wine() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A table with a column that names the rows, and one of classes."""
    found = load_wine(as_frame=True)
    beside = {"id": [f"w{row:03d}" for row in range(len(found.data))], "cultivar": found.target_names[found.target]}
    shown = {"X": found.data, "columns": beside, "labels": "cultivar", "title": "178 wines"}
    return found.data, {"scale": "standardize", "max_steps": 500}, shown


def pictures() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Soft dots of any hue anywhere on a ring: pictures of 8 × 8 pixels in color, of two dimensions."""
    rng, n, size = np.random.default_rng(0), 1000, 8
    angle, hue = rng.uniform(0, 2 * np.pi, (2, n, 1, 1))
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    share = np.exp(-((x - 1.8 * np.cos(angle)) ** 2 + (y - 1.8 * np.sin(angle)) ** 2) / 8)
    color = 0.5 + 0.45 * np.cos(hue[:, None] + 2 * np.pi / 3 * np.arange(3)[:, None, None])
    images = share[:, None] * color + (1 - share[:, None]) * 0.92
    half = np.where(np.sin(angle).ravel() > 0, "below", "above")
    shown = {"columns": {"half": half, "hue": hue.ravel()}, "labels": "half", "title": "1,000 dots in color"}
    return images.reshape(n, -1), {"max_steps": 1200}, shown | {"image_shape": (3, size, size)}


def cells(folder: Path) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Bone marrow: counts, log-normalized, along their leading principal axes."""
    import anndata  # noqa: PLC0415

    with tarfile.open(next(folder.glob("palantir-*.tar.gz"))) as archive, tempfile.NamedTemporaryFile() as file:
        (name,) = (name for name in archive.getnames() if name.endswith("marrow_sample_scseq_counts.h5ad"))
        file.write(archive.extractfile(name).read())
        table = anndata.read_h5ad(file.name)
    counts = table.X.toarray()
    counts = np.log1p(1e4 * counts / counts.sum(1, keepdims=True))
    most = np.argsort(-counts.var(0))[:N_GENES]
    axes = PCA(N_COMPONENTS, random_state=0).fit_transform(counts[:, most].astype(float))
    some = np.random.default_rng(0).permutation(len(axes))[:N_CELLS]
    genes = {gene: counts[some, table.var_names.get_loc(gene)] for gene in ("CD34", "MPO", "GATA1", "IRF8")}
    beside = {"cell": table.obs_names[some].to_numpy(), **genes}
    components = carre.Table(axes[some], names=tuple(f"PC{k + 1}" for k in range(N_COMPONENTS)))
    return components, {"max_steps": 800}, {"columns": beside, "title": "2,000 cells of bone marrow"}


def report(name: str, work: Path, data: tuple[Any, dict[str, Any], dict[str, Any]]) -> Path:
    """Fit once, and write the page."""
    X, settings, shown = data
    if not (work / name).is_dir():
        carre.save(carre.fit(X, random_state=0, **settings), work / name)
    return carre.write_report(carre.load(work / name), **{"X": X, **shown}, path=work / f"{name}.html")


def compact(screenshot: Path, height: int, path: Path) -> None:
    """Keep the top of a picture, in so many colors as fit."""
    image = Image.open(screenshot).convert("RGB")
    image = image.crop((0, 0, image.width, min(height, image.height)))
    for colors in (256, 128, 64, 32):
        buffer = io.BytesIO()
        image.quantize(colors, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
        if buffer.tell() <= LARGEST:
            break
    path.write_bytes(buffer.getvalue())
    print(f"{path.relative_to(ROOT)}: {buffer.tell():,} bytes")


def main() -> None:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="digits, nuclei, wine, pictures, cells; all if left out")
    parser.add_argument("--cells", type=Path, help="folder with the source distribution of palantir")
    parser.add_argument("--work", type=Path, default=ROOT / "demo" / "screenshots", help="folder for fits and pages")
    given = parser.parse_args()
    kinds: dict[str, Callable[[], Any]] = {
        "digits": digits,
        "nuclei": nuclei,
        "wine": wine,
        "pictures": pictures,
    }
    if given.cells is not None:
        kinds["cells"] = lambda: cells(given.cells)
    sys.path.insert(0, str(ROOT))
    from tests.report.browser import Browser  # noqa: PLC0415

    (OUT / "report").mkdir(exist_ok=True)
    given.work.mkdir(parents=True, exist_ok=True)
    for name in given.names or kinds:
        page, whole = report(name, given.work, kinds[name]()), given.work / "whole.png"
        browser = Browser()
        for width, size in WINDOWS.items():
            browser.open(page, size=(size[0], 900))
            browser.screenshot(whole, whole=True)
            compact(whole, size[1], OUT / "report" / f"{name}-{width}.png")
        if name == "digits":
            browser.open(page, size=(1280, 900))
            browser.screenshot(whole, whole=True)
            compact(whole, 1320, OUT / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
