"""Paths between digits of one class: do they get there, and do they stay among the digits of that class?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import torch
from classifier import Classifier
from flow import Curves, join
from settings import EUCLIDEAN, LEARNED, STEIN, STEIN_THREAD, Method, Settings
from torch import Tensor

from carre.fields import MetricField
from carre.neighbors import TorchIndex
from data import Digits

REACHED = 0.1
WANTED, KEPT = 0.95, 0.97
RULE = (
    f"of the settings that reach {WANTED:.0%} of the validation pairs and keep the class at {KEPT:.0%} of the inner "
    "nodes, the one whose inner nodes are nearest to training digits; if there is none, of those that reach as many as "
    "any (95% are enough), the one that keeps the class at most nodes"
)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of digits of one class.

    Attributes:
        start: Where paths start, shape (pairs, D).
        end: Where they end.
        labels: The class of each pair.
    """

    start: Tensor
    end: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first_of_each_class(self) -> Pairs:
        """Select one pair per class: examples that nobody picked."""
        rows = torch.stack([(self.labels == name).nonzero()[0, 0] for name in self.labels.unique()])
        return Pairs(self.start[rows], self.end[rows], self.labels[rows])


def draw_pairs(digits: Digits, per_class: tuple[int, ...], seed: int) -> list[Pairs]:
    """Draw sets of pairs from the test digits, so many per class; no digit occurs twice, in one set or in two."""
    generator = torch.Generator().manual_seed(seed)
    labels = digits.test_labels.cpu()
    drawn: list[list[Tensor]] = [[] for _ in per_class]
    for name in digits.classes:
        members = (labels == name).nonzero()[:, 0]
        if len(members) < 2 * sum(per_class):
            raise ValueError(f"there must be {2 * sum(per_class)} test digits of class {name}; got {len(members)}")
        members = members[torch.randperm(len(members), generator=generator)]
        parts = members[: 2 * sum(per_class)].split([2 * count for count in per_class])
        for rows, part in zip(drawn, parts, strict=True):
            rows.append(part.reshape(-1, 2))
    indices = [torch.cat(rows).to(digits.test.device) for rows in drawn]
    return [Pairs(digits.test[i], digits.test[j], digits.test_labels[i]) for i, j in (rows.T for rows in indices)]


@dataclass(frozen=True, eq=False)
class Judge:
    """What paths are judged by: the nearest training digit, and a classifier.

    Attributes:
        index: The training digits.
        classifier: The classifier.
    """

    index: TorchIndex
    classifier: Classifier

    def distances(self, points: Tensor) -> Tensor:
        """Compute the distance to the nearest training digit, of points of shape (…, D)."""
        return self.index.search(points.flatten(0, -2), 1).squared_distances[:, 0].sqrt().reshape(points.shape[:-1])

    def verdict(self, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Compute whether the classifier names the right class, and the probability it gives it; (pairs, nodes, D)."""
        probabilities = self.classifier.probabilities(points.flatten(0, -2)).reshape(*points.shape[:-1], -1)
        right = probabilities.argmax(-1) == labels[:, None]
        confidence = probabilities.gather(-1, labels[:, None, None].expand(*points.shape[:-1], 1))[..., 0]
        return right.float(), confidence

    def of_pairs(self, nodes: Tensor, labels: Tensor) -> dict[str, dict[str, Tensor]]:
        """Compute means over the nodes of each pair: inner ones, all, and the middle."""
        right, confidence = self.verdict(nodes, labels)
        values = {"distance": self.distances(nodes), "right": right, "confidence": confidence}
        middle = slice(nodes.shape[1] // 2, nodes.shape[1] // 2 + 1)
        places = {"inner": slice(1, -1), "all": slice(None), "midpoint": middle}
        # In float64: 1,455 of 1,500 are 97%, and not a rounding error less.
        return {
            place: {key: each[:, columns].double().mean(1) for key, each in values.items()}
            for place, columns in places.items()
        }


def measure(curves: Curves, labels: Tensor, judge: Judge, straight: Tensor | None = None) -> dict:
    """Compute everything about curves that is reported; see README.md for what it means.

    Args:
        curves: The curves.
        labels: The class of each pair.
        judge: What they are judged by.
        straight: Distances of the middles of straight lines from the nearest training digit, one per pair, for ratios.
    """
    found = {"reached": float((curves.left <= REACHED).float().mean()), "left": float(curves.left.mean())}
    found |= {"length_over_chord": float(curves.length.mean()), "of_pairs": {}}
    for name, nodes in (("", curves.nodes), ("raw_", curves.raw)):
        for place, values in judge.of_pairs(nodes, labels).items():
            found["of_pairs"][name + place] = values
            means = {key: float(each.mean()) for key, each in values.items()}
            errors = {f"{key}_error": standard_error(each) for key, each in values.items()}
            found[name + place] = means | errors
            if straight is not None:
                found[name + place] |= _ratio(values["distance"], straight)
    return found


def standard_error(values: Tensor) -> float:
    """Compute the standard error of a mean over pairs, which are independent; the nodes of one are not."""
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")


def _ratio(distance: Tensor, straight: Tensor) -> dict[str, float]:
    """Compute a ratio of means over the same pairs, and its error to first order."""
    ratio = distance.mean() / straight.mean()
    error = standard_error(distance - ratio * straight) / float(straight.mean())
    return {"distance_over_lerp_midpoint": float(ratio), "distance_over_lerp_midpoint_error": error}


def run_method(field: MetricField, pairs: Pairs, method: Method, n_nodes: int) -> tuple[Curves, float]:
    """Make the curves of a method, and take the time."""
    _wait(pairs.start)
    begun = time.perf_counter()
    curves = join(field, pairs.start, pairs.end, method, n_nodes)
    _wait(pairs.start)
    return curves, time.perf_counter() - begun


def compare(
    field: MetricField, pairs: Pairs, methods: dict[str, Method], judge: Judge, n_nodes: int
) -> dict[str, dict]:
    """Measure methods on the same pairs; distances also in those of the middles of straight lines."""
    measured: dict[Method, dict] = {}
    straight = judge.distances((pairs.start + pairs.end) / 2).double()
    for method in methods.values():
        if method not in measured:
            curves, seconds = run_method(field, pairs, method, n_nodes)
            measured[method] = measure(curves, pairs.labels, judge, straight)
            measured[method] |= {"seconds": seconds, "settings": asdict(method)}
    of_pairs = {method: row.pop("of_pairs")["inner"] for method, row in measured.items()}
    if LEARNED in methods:
        for method, row in measured.items():
            row["minus_learned"] = _difference(of_pairs[method], of_pairs[methods[LEARNED]])
    return {name: measured[method] for name, method in methods.items()}


def _difference(values: dict[str, Tensor], others: dict[str, Tensor]) -> dict[str, float]:
    """Compute mean differences between two methods on the same pairs, and their standard errors."""
    found = {}
    for key, each in values.items():
        found |= {key: float((each - others[key]).mean()), f"{key}_error": standard_error(each - others[key])}
    return found


def search(
    field: MetricField, pairs: Pairs, settings: Settings, judge: Judge, tell: Callable[[str], object] = print
) -> dict:
    """Try settings of the learned flow and of Stein's on the validation pairs; choose by `RULE`."""
    rows, chosen = [], {}
    for name, methods in _grids(settings, chosen):
        tried = []
        for method in methods:
            (row,) = compare(field, pairs, {name: method}, judge, settings.n_nodes).values()
            tried.append({"method": name} | row)
            tell(search_line(tried[-1]))
        best = choose(tried)
        chosen[name] = Method(**best["settings"])
        rows += tried
        tell(f"BEST ({RULE}):\n{search_line(best)}")
    return {"rule": RULE, "n_pairs": len(pairs), "rows": rows, "chosen": {k: asdict(m) for k, m in chosen.items()}}


def choose(rows: list[dict]) -> dict:
    """Choose among measured settings by `RULE`."""
    most = min(WANTED, max(row["reached"] for row in rows))
    arrived = [row for row in rows if row["reached"] >= most]
    good = [row for row in arrived if most == WANTED and row["inner"]["right"] >= KEPT]
    if good:
        return min(good, key=lambda row: row["inner"]["distance"])
    return max(arrived, key=lambda row: row["inner"]["right"])


def _grids(settings: Settings, chosen: dict[str, Method]) -> Iterator[tuple[str, list[Method]]]:
    """List what to try; threads in Stein's metric have the σ and the landing that were chosen for ours."""
    values = {name: tried for name, tried in settings.searched.items() if name != "strength"}
    learned, strengths = settings.methods[LEARNED], settings.searched["strength"]
    yield (
        LEARNED,
        [replace(learned, **dict(zip(values, row, strict=True))) for row in itertools.product(*values.values())],
    )
    flows = itertools.product(dict.fromkeys((0.7, 1.0, *values["bandwidth"])), strengths)
    yield STEIN, [replace(settings.methods[STEIN], bandwidth=sigma, strength=k) for sigma, k in flows]
    yield STEIN_THREAD, [replace(chosen[LEARNED], metric="stein", strength=strength) for strength in strengths]


def chosen_methods(settings: Settings, searched: dict | None) -> dict[str, Method]:
    """Return the methods of the settings, those that were searched with what was chosen; then ours at several σ."""
    found = {name: Method(**values) for name, values in (searched or {}).get("chosen", {}).items()}
    methods = settings.methods | found
    methods[EUCLIDEAN] = replace(methods[LEARNED], metric="stein", strength=0.0)
    at_scales = {
        f"learned, σ = {sigma:g}": replace(methods[LEARNED], bandwidth=sigma) for sigma in settings.path_bandwidths
    }
    return methods | at_scales


def search_line(row: dict) -> str:
    """Write one line of the table of a search."""
    used = {"bandwidth", "step", "ridge", "landing", "landing_bandwidth", "finest", "slope", "max_steps"}
    used |= {"strength"} if row["settings"]["metric"] == "stein" else set()
    options = ", ".join(f"{k} {v:g}" for k, v in row["settings"].items() if k in used and v is not None)
    inner = row["inner"]
    return (
        f"{row['method']}: reached {row['reached']:.0%}, right {inner['right']:.1%}, "
        f"confidence {inner['confidence']:.3f}, "
        f"distance {inner['distance_over_lerp_midpoint']:.3f}, length {row['length_over_chord']:.2f}, "
        f"{row['seconds']:.1f} s ({options})"
    )


def _wait(points: Tensor) -> None:
    if points.is_cuda:
        torch.cuda.synchronize()
