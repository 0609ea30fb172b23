"""Who beats whom in the stability benchmark, from the mean shifts at each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from carre.benchmarks.stability_methods import OURS
from carre.evaluation import PairedDifference, Stability, compare_stability

Row = Mapping[str, Any]


def compare_methods(methods: Mapping[str, Any], radii: Sequence[float], level: float) -> dict[str, Any]:
    """Compare our method with every other one, image by image.

    Differences are ours minus theirs: negative where ours moves features less.

    Args:
        methods: What was measured of each method so far.
        radii: The lengths of the perturbations.
        level: The probability with which the intervals of all radii of a comparison hold together.

    Returns:
        Under "paired", each method on the test images, both at their own best settings; under "same_bandwidth", both
        at the same σ on the validation images, for all settings; under "beaten", where another one is better than ours
        beyond chance, on either.
    """
    ours = methods.get(OURS, {})
    paired: dict[str, Any] = {}
    same: dict[str, list[Any]] = {}
    beaten: list[Any] = []
    for name, theirs in methods.items():
        if name == OURS:
            continue
        if "test" in ours and "test" in theirs:
            found = compare_stability(_stability(ours["test"], radii), _stability(theirs["test"], radii), level=level)
            paired[name] = _plain(found)
            sides = {"method": name, "images": "test", "ours": ours["chosen"], "theirs": theirs["chosen"]}
            beaten += [sides | loss for loss in _losses(found)]
        same[name] = []
        for mine, other in _of_same_bandwidth(ours.get("grid", []), theirs["grid"]):
            found = compare_stability(_stability(mine, radii), _stability(other, radii), level=level)
            sides = {"ours": mine["setting"], "theirs": other["setting"]}
            same[name].append(sides | _plain(found))
            beaten += [{"method": name, "images": "validation", **sides, **loss} for loss in _losses(found)]
    return {"paired": paired, "same_bandwidth": same, "beaten": beaten}


def interval_of_mean(row: Row, radii: Sequence[float], level: float) -> dict[str, list[float]]:
    """Compute the confidence interval of the mean shift: that of the difference from a metric that moves nothing."""
    measured = _stability(row, radii)
    nothing = Stability(measured.radii, torch.zeros_like(measured.shifts), measured.images)
    found = compare_stability(measured, nothing, level=level)
    return {"low": rounded(found.low), "high": rounded(found.high)}


def rounded(values: torch.Tensor) -> Any:
    """Turn numbers into lists, to six digits: more is noise, and fills files."""
    if values.ndim == 0:
        return float(f"{float(values):.6g}")
    return [rounded(part) for part in values]


def _of_same_bandwidth(ours: Sequence[Row], theirs: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Pair settings of equal σ; what does not depend on σ is paired with all."""
    return [
        (mine, other)
        for other in theirs
        for mine in ours
        if other["setting"].get("bandwidth", mine["setting"]["bandwidth"]) == mine["setting"]["bandwidth"]
    ]


def _stability(row: Row, radii: Sequence[float]) -> Stability:
    """Take the means at each image for draws: all methods see the same images in the same order, or the first ones."""
    of_images = torch.tensor(row["of_images"], dtype=torch.float64)
    names = tuple(str(place) for place in range(of_images.shape[1]))
    return Stability(tuple(radii), of_images.unsqueeze(-1), names)


def _plain(found: PairedDifference) -> dict[str, Any]:
    return {name: rounded(getattr(found, name)) for name in ("difference", "low", "high", "ratio", "share")} | {
        "wins": found.wins.tolist(),
        "loses": found.loses.tolist(),
        "n_images": found.n_images,
    }


def _losses(found: PairedDifference) -> list[dict[str, float]]:
    """List the radii at which ours is worse beyond chance."""
    return [
        {"radius": found.radii[place]}
        | {name: rounded(getattr(found, name)[place]) for name in ("difference", "low", "high")}
        for place in range(len(found.radii))
        if bool(found.loses[place])
    ]
