"""Attack: fits on samples at the ends of the numbers, without extent, or with a few rows far away."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import carre
from carre import Geometry, KernelField
from carre.fitting import FitSettings, make_plan
from carre.toolkit import choose_kernel, estimate_noise
from tests.attack.kit import Ledger, Verdict, is_sentence

TINY: dict[str, Any] = {
    "max_steps": 3,
    "width": 16,
    "n_blocks": 1,
    "random_state": 0,
    "verbose": False,
    "batch_size": 32,
}


def sheet(n: int = 60) -> np.ndarray:
    """A bent sheet of size 1."""
    found = np.random.default_rng(0).uniform(size=(n, 3))
    found[:, 2] = found[:, 0] ** 2
    return found


def fitted(samples: Any, **options: Any) -> Geometry:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return carre.fit(samples, **{**TINY, **options})


def answers(geometry: Geometry, samples: Any) -> dict[str, np.ndarray]:
    """Ask a geometry at some of its samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        local = geometry.at(samples[:4])
        found = {"eigenvalues": local.eigenvalues, "denoised": local.denoised, "dimension": local.dimension}
        found |= {"basis": local.tangent_basis(1), "σ": geometry.bandwidth, "score": geometry.score(samples)}
        found |= {"gradient": geometry.gradient(lambda y: y.sum(1), samples[:4])}
        found |= {"check": geometry.check(samples[:4]).distance}
    return {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}


def degenerate() -> dict[str, np.ndarray]:
    """Samples that have no shape, or hardly one."""
    x = sheet()
    return {
        "a constant column": x * [1, 0, 1],
        "a huge constant column": x * [1, 0, 1] + [0, 1e15, 0],
        "constant columns but one": x * [1, 0, 0],
        "all the same": np.ones((30, 3)),
        "all zero": np.zeros((30, 3)),
        "one sample": x[:1],
        "two samples": x[:2],
        "two samples, twice": x[:2].repeat(20, 0),
        "three samples": x[:3],
        "duplicates only": x[:10].repeat(5, 0),
        "mostly one point": np.concatenate([np.zeros((40, 3)), x[:20]]),
        "one column": x[:, :1],
        "one column, two values": np.repeat([[0.0], [1.0]], 20, 0),
        "more columns than samples": np.random.default_rng(1).normal(size=(25, 60)),
        "offsets of 1e8 spreads": x + 1e8,
        "offsets of 1e12 spreads": x + 1e12,
        "offsets of 1e17 spreads": x + 1e17,
        "columns of 1e-8 and 1e8": x * [1e-8, 1, 1e8],
        "columns of 1e-30 and 1": x * [1e-30, 1, 1],
        "two clusters far apart": x + 1e9 * (np.arange(60) % 2)[:, None],
        "one row at 1e6": _with_far_rows(1e6),
        "one row at 1e9": _with_far_rows(1e9),
        "one row at 1e14": _with_far_rows(1e14),
    }


def _with_far_rows(distance: float, n: int = 1) -> np.ndarray:
    found = sheet(600)
    found[5 : 5 + n] *= distance
    return found


def finite(found: dict[str, np.ndarray]) -> Verdict:
    """Judge answers that may be anything but infinite."""
    return Verdict.RIGHT if all(np.isfinite(value).all() for value in found.values()) else Verdict.INFINITE


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_fits_on_samples_without_a_shape(ledger: Ledger, kind: Any, dose: Callable[[int, int], int]) -> None:
    """Constant columns, duplicates, two samples, offsets, far rows: a geometry that answers, or a sentence."""
    every = dose(4, 1)
    for case, samples in list(degenerate().items())[::every]:
        x = samples.astype(kind)
        names = ("X", "samples")
        ledger.ask(case, lambda x=x: answers(fitted(x, bandwidth_range=None), x), names=names, verdict=finite)  # type: ignore[misc]
        for tool, name in ((estimate_noise, "noise"), (choose_kernel, "kernel")):
            ledger.ask(f"{case}, {name}", lambda x=x, tool=tool: tool(x), names=names)  # type: ignore[misc]
    ledger.check(least=dose(15, 60))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_fits_at_every_scale(ledger: Ledger, kind: Any, dose: Callable[[int, int], int]) -> None:
    """The geometry of data of size 1e-300 to 1e300 is that of data of size 1, or a sentence says what to do."""
    plain = answers(fitted(sheet().astype(kind)), sheet().astype(kind))
    powers = (
        (-45, -30, -16, -8, 8, 16, 30, 38)
        if kind is np.float32
        else (-320, -160, -140, -100, -30, 30, 100, 140, 160, 300)
    )
    for power in powers[:: dose(3, 1)]:
        x = (sheet() * np.float64(f"1e{power}")).astype(kind)

        def same(found: dict[str, np.ndarray], power: int = power) -> Verdict:
            if finite(found) is not Verdict.RIGHT:
                return Verdict.INFINITE
            scales = {"denoised": 10.0**power, "σ": 10.0**power}
            equal = (
                np.allclose(found[name] / scales.get(name, 1.0), plain[name], rtol=1e-2, atol=1e-2)
                for name in ("eigenvalues", "denoised", "σ", "score", "gradient", "dimension")
            )
            return Verdict.RIGHT if all(equal) else Verdict.WRONG

        ledger.ask(
            f"1e{power}",
            lambda x=x: answers(fitted(x), x),
            names=("X must", "samples must", "bandwidth must"),
            verdict=same,
        )  # type: ignore[misc]
    ledger.check(least=dose(3, 8))


def test_a_bandwidth_whose_square_is_no_number_is_named() -> None:
    """In the precision of the points."""
    field = KernelField(sheet())
    for points, sigma, size in ((sheet().astype(np.float32), 1e-30, "1e-18 and 1e+18"), (sheet(), 1e-200, "1e-150")):
        with pytest.raises(ValueError, match=f"bandwidth must lie between {re.escape(size)}.* Give points in float64"):
            field.metric(points, sigma)


def test_a_kernel_far_from_all_samples_takes_the_nearest() -> None:
    """As in the limit, where squares of distances over σ overflow."""
    pair = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    for n_neighbors in (None, 2):
        field = KernelField(pair, n_neighbors=n_neighbors)
        assert torch.equal(field.denoise(torch.tensor([[3.0, 1e3]]), 1e-18), pair[1:])
        assert field.metric(torch.tensor([[3.0, 1e3]]), 1e-18).trace().item() == 0


def _plan(samples: np.ndarray) -> Any:
    return make_plan(torch.from_numpy(samples), FitSettings(), seed=0, device=torch.device("cpu"))


@pytest.mark.parametrize("distance", [1e6, 1e9, 1e12])
def test_a_row_beside_which_all_others_are_one_point_is_named(distance: float) -> None:
    """Today's answer was the dimension 0, and the advice to train longer."""
    with pytest.raises(ValueError, match=r"X must have no rows .* got 1 row \(5\) up to .* numpy.delete") as caught:
        _plan(_with_far_rows(distance))
    assert is_sentence(caught.value, ("X",))
    with pytest.raises(ValueError, match=r"6 rows \(5, 6, 7, 8, 9, …\)"):
        _plan(_with_far_rows(distance, 6))


def test_rows_that_a_network_copes_with_change_nothing() -> None:
    """A row at 10³ spreads, one in a hundred at 10², most samples in one point, two clusters: as before."""
    for samples in (_with_far_rows(1e3), _with_far_rows(1e2, 6), degenerate()["mostly one point"]):
        assert len(_plan(samples).samples) == len(samples)
    assert _plan(degenerate()["two clusters far apart"]).frame.scale > 1e8


@pytest.mark.slow
def test_a_row_at_a_thousand_spreads_leaves_the_dimension_as_it_is(ledger: Ledger) -> None:
    """Of a closed curve in space."""
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 600)
    curve = np.stack([np.cos(angle), np.sin(angle), 0.3 * np.cos(2 * angle)], 1)
    for distance in (0.0, 1e3):
        x = curve.copy()
        x[5] = x[5] + distance * np.array([0.6, 0.64, 0.48])
        geometry = fitted(x, max_steps=400, width=32, n_blocks=3, batch_size=None)
        right = (geometry.dimension(x[10:40]) == 1).mean() > 0.9
        ledger.note(f"a row at {distance:g} spreads", Verdict.RIGHT if right else Verdict.WRONG)
    ledger.check(least=2)
