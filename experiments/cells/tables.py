"""The tables of the page on cells, written from results.json."""

from __future__ import annotations

from typing import Any

import numpy as np

METHODS = ("learned", "learned, σ without labels", "local PCA", "local PCA, k = 30", "global PCA", "random")
DIRECTIONS = (1, 2, 3, 5, 10)
# What is compared cell by cell.
PAIRED = {
    "learned − local PCA": "learned − local PCA, best settings",
    "without labels": "learned − local PCA, σ without labels and k = 30",
}


def row(cells: list[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |\n"


def head(cells: list[str]) -> str:
    return row(cells) + "|---" * len(cells) + "|\n"


def scale_table(results: dict[str, Any]) -> str:
    """How many dimensions at which scale, by seed."""
    text = head(["seed", "σ", "dimension, median", "interval", "cells of 1 / 2 / 3 / more dimensions", "valid"])
    for seed, found in enumerate(results["marrow"]["seeds"]):
        for one in found["scales"]:
            shares = {int(k): v for k, v in one["shares"].items()}
            counted = [shares.get(k, 0.0) for k in (1, 2, 3)] + [sum(v for k, v in shares.items() if k > 3)]
            said = " / ".join(f"{share:.0%}" for share in counted)
            low, high = one["interval"]
            text += row(
                [seed, f"{one['bandwidth']:.2f}", one["dimension"], f"{low} to {high}", said, f"{one['valid']:.0%}"]
            )
    return text


def part_table(results: dict[str, Any]) -> str:
    """How many dimensions in each part of the tree."""
    text = head(["part", "cells", "σ", "0", "1", "2", "3 or more"])
    for found in results["marrow"]["seeds"]:
        for part, one in found["parts"].items():
            text += row([part, one["cells"], f"{found['tree']:.2f}", *(f"{share:.0%}" for share in one["shares"])])
    return text


def path_table(results: dict[str, Any]) -> str:
    """What the ways to three fates are like."""
    names = ["seed", "way to", "σ", "length", "connected", "nearest cell: on the way", "on the straight line"]
    text = head([*names, "half of GATA1 / KLF1 / HBB at", "the same, of cells around"])
    for seed, found in enumerate(results["marrow"]["seeds"]):
        for scale, sigma in (("default scale", found["bandwidth"]), ("scale of the tree", found["tree"])):
            for fate, way in found["paths"][scale].items():
                halves = ["–", "–"]
                if fate == "erythroid":
                    kinds = ("half", "half, cells around")
                    halves = [" / ".join(f"{way[kind][gene]:.2f}" for gene in way[kind]) for kind in kinds]
                near = (f"{way[f'nearest cell, {kind}']:.1f}" for kind in ("path", "line"))
                yes = "yes" if way["connected"] else "no"
                text += row([seed, fate, f"{sigma:.2f}", f"{way['length']:.1f}", yes, *near, *halves])
    return text


def gene_table(results: dict[str, Any]) -> str:
    """Which genes the leading tangent direction is made of, on the ways."""
    text = head(["way to", "at", "of the way along it", "up", "down"])
    found = results["marrow"]["seeds"][0]
    for fate, way in found["paths"]["scale of the tree"].items():
        for one in way["directions"]:
            genes = (", ".join(one[kind][:8]) for kind in ("up", "down"))
            text += row([fate, f"{one['at']:.0%}", f"{one['share of the way']:.0%}", *genes])
    return text


def velocity_table(results: dict[str, Any]) -> str:
    """Which share of the velocity lies inside d directions."""
    text = head(["components", "directions of", *(f"d = {d}" for d in DIRECTIONS), "settings for these d"])
    for name, found in components(results):
        # All directions hold all of it, whoever chose them.
        directions = [d for d in DIRECTIONS if d < int(name) and d <= len(found["means"]["learned"])]
        means = {method: [found["means"][method][d - 1] for d in directions] for method in METHODS}
        best = np.max(list(means.values()), axis=0)
        for method, values in means.items():
            said = [f"**{v:.3f}**" if v > top - 5e-4 else f"{v:.3f}" for v, top in zip(values, best, strict=True)]
            said += ["–"] * (len(DIRECTIONS) - len(values))
            text += row([name, method, *said, setting(found, method, directions)])
        for key, called in PAIRED.items():
            pairs = [found[key][d - 1] for d in directions]
            gaps = [f"{100 * gap:+.1f} ± {100 * half:.1f}" for gap, half in pairs]
            gaps += ["–"] * (len(DIRECTIONS) - len(gaps))
            text += row([name, called, *gaps, "points, 95 %"])
    return text


def setting(found: dict[str, Any], method: str, directions: list[int]) -> str:
    """Say which σ or k was taken."""
    if method == "learned":
        return "σ " + ", ".join(f"{found['bandwidths'][0][d - 1]:.2g}" for d in directions)
    if method == "local PCA":
        return "k " + ", ".join(f"{found['neighbors'][d - 1]:.0f}" for d in directions)
    if method == "learned, σ without labels":
        return "σ " + ", ".join(f"{s:.2g}" for s in found["default"])
    return ""


def time_table(results: dict[str, Any]) -> str:
    """The same by time, for two directions."""
    text = head(["components", "directions of", *(f"time {t}" for t in range(5))])
    for name, found in components(results):
        for method in ("learned", "local PCA"):
            shares = [one[method][1] for one in found["by time"].values()]
            text += row([name, method, *(f"{share:.3f}" for share in shares)])
    return text


def components(results: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """List what was compared, by the number of components."""
    return [(name, found) for name, found in results["bodies"].items() if name.isdigit()]


TABLES = {
    "scales": scale_table,
    "parts": part_table,
    "paths": path_table,
    "genes": gene_table,
    "velocities": velocity_table,
    "times": time_table,
}


def fill(text: str, name: str, table: str) -> str:
    """Write a table between its two marks.

    Example:
        >>> fill("<!-- a -->old<!-- end of a -->", "a", "new")
        '<!-- a -->\\nnew<!-- end of a -->'
    """
    before, _, rest = text.partition(f"<!-- {name} -->")
    after = rest.partition(f"<!-- end of {name} -->")[2]
    return f"{before}<!-- {name} -->\n{table}<!-- end of {name} -->{after}"
