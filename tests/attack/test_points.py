"""Attack: arrays of every kind, at every place where the library takes points, samples, vectors, values or σ."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

import carre
from carre import Geometry, KernelField, Path, ScoreField, SteinField
from carre.data import ImageDataset, Table, write_table
from carre.data.image_dataset import SYMMETRIC
from carre.fitting import accept_samples
from carre.neighbors import build_index
from carre.plots.panels import as_array
from carre.report._inputs import as_column
from carre.toolkit import choose_kernel, estimate_noise, path, project
from carre.toolkit.bridges import DiffusionCarreDuChamp
from tests.attack.arrays import ARRAYS, FRAMES, TENSORS, Kind, in_silence
from tests.attack.kit import Ledger, Verdict

# Of a cube of side 1, so that no number is anything but 0 or 1; as many samples as tools need at least.
CORNERS = np.tile(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=float), (4, 1))
SIGMA = np.ones(len(CORNERS))


class Door(NamedTuple):
    """A place where numbers come in.

    Attributes:
        name: What it is called.
        ask: Makes numbers of what is given.
        names: What a sentence calls the argument.
    """

    name: str
    ask: Callable[[Any], Any]
    names: tuple[str, ...]


@functools.cache
def geometry() -> Geometry:
    """A network that was trained for a moment, on points of a cube."""
    samples = np.random.default_rng(0).uniform(size=(120, 3))
    return carre.fit(samples, max_steps=5, width=16, bandwidth=0.5, random_state=0, verbose=False)


@functools.cache
def samples() -> torch.Tensor:
    return torch.rand(60, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def plane(points: torch.Tensor, bandwidth: torch.Tensor) -> torch.Tensor:
    return points * points.new_tensor([1.0, 1.0, 0.5])


@functools.cache
def pictures() -> Geometry:
    """A geometry of images of one row of three pixels."""
    field = KernelField(samples().float())
    return Geometry(field, 0.5, (0.1, 2.0), landmarks=field.samples, rank=3, sample_shape=(1, 1, 3))


def _as_images(x: Any) -> Any:
    try:
        return x.reshape(-1, 1, 1, 3)
    except (AttributeError, RuntimeError, TypeError, ValueError, NotImplementedError):
        return x


def _numbers(answer: Any) -> np.ndarray:
    if isinstance(answer, (pd.Series, pd.DataFrame)):
        return answer.to_numpy()
    return np.asarray(answer.detach().cpu() if isinstance(answer, torch.Tensor) else answer, dtype=np.float64)


def _signless(bases: Any) -> np.ndarray:
    found = _numbers(bases)
    return found @ found.swapaxes(-1, -2)


def doors() -> list[Door]:
    """The places that take points, samples or vectors, shape (20, 3)."""
    g, s = geometry(), samples()
    kernel, stein, score = KernelField(s), SteinField(plane, 3), ScoreField(plane, 3)
    points = ("points",)
    return [
        Door("at(X).eigenvalues", lambda x: g.at(x).eigenvalues, points),
        Door("at(X).metric", lambda x: g.at(x).metric.dense(), points),
        Door("at(X).tangent_basis", lambda x: _signless(g.at(x).tangent_basis(2)), points),
        Door("at(X).denoised", lambda x: g.at(x).denoised, points),
        Door("dimension", g.dimension, points),
        Door("gradient", lambda x: g.gradient(lambda y: y.sum(1), x, dimension=2), points),
        Door("project points", lambda x: g.project(x, CORNERS, dimension=2), points),
        Door("project vectors", lambda x: g.project(CORNERS, x, dimension=2), ("vectors",)),
        Door("tangent_angles", lambda x: g.tangent_angles(CORNERS, x, dimension=2), ("others",)),
        Door("distances", lambda x: g.distances(x, CORNERS[:1], max_sweeps=2, n_nodes=5, dimension=2), points),
        Door("path", lambda x: g.path(x, CORNERS[0], method="straight", n_nodes=5).nodes, ("start",)),
        Door("path, end", lambda x: g.path(CORNERS, x, method="straight", n_nodes=5).nodes, ("end",)),
        Door("exponential", lambda x: g.exponential(CORNERS, x, n_steps=2, dimension=2).nodes, ("velocities",)),
        Door("images", lambda x: pictures().at(_as_images(x)).eigenvalues, points),
        Door("score", lambda x: 0 * g.score(x), points),
        Door("check", lambda x: g.check(x).distance, points),
        Door(
            "gradient_of_values",
            lambda x: g.gradient_of_values(x, SIGMA, CORNERS, dimension=1, n_neighbors=4),
            ("samples",),
        ),
        Door("minimize", lambda x: g.minimize(lambda y: y.square().sum(1), x, max_steps=1).points, ("starts",)),
        Door("fit", lambda x: accept_samples(x).values, ("X",)),
        Door("estimator", _estimated, ("X",)),
        Door("KernelField", lambda x: KernelField(x).metric(CORNERS, 1.0).dense(), ("samples",)),
        Door("KernelField.metric", lambda x: kernel.metric(x, 1.0).dense(), points),
        Door("KernelField.denoise", lambda x: kernel.denoise(x, 1.0), points),
        Door("SteinField.metric", lambda x: stein.metric(x, 1.0).dense(), points),
        Door("SteinField.score", lambda x: stein.score(x, 1.0), points),
        Door("ScoreField.metric", lambda x: score.metric(x, 1.0).dense(), points),
        Door("tool of a field", lambda x: project(kernel, x, CORNERS, 1.0, dimension=2), points),
        Door(
            "path of a field", lambda x: path(kernel, x, CORNERS, 1.0, method="straight", n_nodes=5).nodes, ("start",)
        ),
        Door("choose_kernel", lambda x: choose_kernel(x, bandwidths=[1.0]).bandwidth, ("samples",)),
        Door("estimate_noise", lambda x: estimate_noise(x).value, ("samples",)),
        Door("build_index", lambda x: build_index(x).search(CORNERS, 2).squared_distances, ("samples",)),
        Door("search", lambda x: build_index(s).search(x, 2).squared_distances, ("queries",)),
    ]


def _estimated(x: Any) -> Any:
    return accept_samples(carre.MetricMatching()._validated(x, reset=True)).values


def scales() -> list[Door]:
    """The places that take σ, one for each of these points."""
    g, kernel, named = geometry(), KernelField(samples()), ("bandwidth",)
    return [
        Door("at(X, σ)", lambda sigma: g.at(CORNERS, sigma).eigenvalues, named),
        Door("denoise(X, σ)", lambda sigma: g.denoise(CORNERS, sigma), named),
        Door("KernelField.metric(X, σ)", lambda sigma: kernel.metric(CORNERS, sigma).dense(), named),
        Door("path(a, b, σ)", lambda sigma: path(kernel, CORNERS, CORNERS[:1], sigma, method="straight").nodes, named),
        Door("tool(X, σ)", lambda sigma: project(kernel, CORNERS, CORNERS, sigma, dimension=2), named),
    ]


def judge(ledger: Ledger, door: Door, kind: Kind, plain: np.ndarray, expected: np.ndarray) -> None:
    """Hand over a kind of array: the answer must be the plain array's, or a sentence that names the argument."""
    with in_silence():
        try:
            given = kind.build(plain)
        except (ImportError, NotImplementedError):
            return

        def verdict(answer: Any) -> Verdict:
            try:
                found = _numbers(answer)
            except (RuntimeError, TypeError):
                return Verdict.WRONG
            if not np.isfinite(found.astype(float)).all():
                return Verdict.INFINITE
            is_same = found.shape == expected.shape and np.allclose(found, expected, rtol=2e-3, atol=2e-3)
            return Verdict.RIGHT if is_same and not kind.must_refuse else Verdict.WRONG

        ledger.ask(f"{door.name} ← {kind.name}", lambda: door.ask(given), names=door.names, verdict=verdict)


def test_points_of_every_kind(ledger: Ledger, dose: Callable[[int, int], int]) -> None:
    """Each kind of array at each place, all in full, a diagonal of them in the small dose."""
    kinds = (*TENSORS, *ARRAYS, *FRAMES)
    every = dose(23, 1)
    for i, door in enumerate(doors()):
        expected = _numbers(door.ask(CORNERS))
        for j, kind in enumerate(kinds):
            if (i + j) % every == 0:
                judge(ledger, door, kind, CORNERS, expected)
    ledger.check(least=dose(200, 4000))


def test_bandwidths_of_every_kind(ledger: Ledger, dose: Callable[[int, int], int]) -> None:
    """One σ for each point, as arrays of each kind."""
    every = dose(7, 1)
    for i, door in enumerate(scales()):
        expected = _numbers(door.ask(SIGMA))
        for j, kind in enumerate((*TENSORS, *ARRAYS)):
            if (i + j) % every == 0:
                judge(ledger, door, kind, SIGMA, expected)
    ledger.check(least=dose(80, 500))


def _masked_elsewhere(values: np.ndarray, folder: pathlib.Path) -> dict[str, Callable[[], Any]]:
    """Give numbers where they are no points: labels, pixels, answers of functions, times, cells of a table."""
    hiding = np.ma.array(values, mask=values > 2)
    pixels = np.ma.array(np.zeros((2, 1, 2, 2), dtype=np.uint8), mask=True)
    plain = np.zeros((2, 1, 2, 2), dtype=np.uint8)
    curve = Path.through(CORNERS[:3])
    kernel = KernelField(samples())
    forms = DiffusionCarreDuChamp(kernel, samples(), 0.5, n_neighbors=10, dimension=2)
    return {
        "labels of images": lambda: ImageDataset(plain, np.ma.array([0, 1], mask=[0, 1])),
        "pixels": lambda: ImageDataset(pixels),
        "pixels, encoded": lambda: SYMMETRIC.encode(np.ma.array(pixels / 255)),
        "images, decoded": lambda: SYMMETRIC.decode(np.ma.array(pixels / 255)),
        "a table": lambda: geometry().at(Table(np.ma.array(CORNERS, mask=CORNERS > 0))),
        "a table, written": lambda: write_table(folder / "x.csv", {"x": hiding}),
        "times of a path": lambda: curve(np.ma.array([0.5], mask=True)),
        "values": lambda: geometry().gradient_of_values(CORNERS, np.ma.array(SIGMA, mask=True), CORNERS, n_neighbors=5),
        "answers": lambda: geometry().minimize(
            lambda y: np.ma.array(y.sum(1), mask=True), CORNERS, gradient="differences", max_steps=1
        ),
        "values of functions": lambda: forms(np.ma.array(np.ones(60), mask=True), np.ones(60)),
    }


def test_masks_hide_nothing_anywhere(ledger: Ledger, tmp_path: pathlib.Path) -> None:
    """A mask that hides something is refused, or what it hides is missing."""
    for case, call in _masked_elsewhere(np.arange(5.0), tmp_path).items():
        ledger.ask(case, call, verdict=lambda answer: Verdict.WRONG)
    column = as_column(np.ma.array([0.5, 1.5, 2.5], mask=[0, 1, 0]), 3, name="x", argument="labels")
    ledger.note("labels of a report", Verdict.RIGHT if np.isnan(column.values[1]) else Verdict.WRONG)
    drawn = as_array(np.ma.array([0.5, 1.5], mask=[0, 1]), "values")
    ledger.note("numbers that are drawn", Verdict.RIGHT if np.isnan(drawn[1]) else Verdict.WRONG)
    ledger.check(least=12)
