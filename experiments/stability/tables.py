"""The tables of what was found, from results.json."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from experiments.stability.cost import EXTRAPOLATED, FAILED, OUT_OF_MEMORY
from experiments.stability.methods import OURS

_END = "†"
TITLES = {"synthetic": "Synthetic images", "mnist": "MNIST", "cifar10": "CIFAR-10", "cost": "Time and memory"}
_PRECISIONS = {"float32": "float32", "tf32": "float32, TF32 convolutions", "bfloat16": "bfloat16"}
_SIDES = ("method", "images", "ours", "theirs")


def tables(results: Mapping[str, Any]) -> str:
    """Put the tables of all parts under one another.

    Args:
        results: What was found of every dataset and of the cost, by name, as results.json holds it.
    """
    parts = []
    for name, title in TITLES.items():
        if name == "cost" and name in results:
            parts.append(f"## {title}\n\n{results[name]['hardware']}.\n\n{cost_tables(results[name])}")
        elif name in results:
            source = results[name]["source"]
            about = f"{source['data']}; features: {source['features']}; {results[name]['hardware']}."
            split = f" {source['split']}" if "split" in source else ""
            parts.append(f"## {title}\n\n{about}{split}\n\n{stability_tables(results[name])}")
    return "\n\n".join(parts)


def stability_tables(results: Mapping[str, Any]) -> str:
    """Make the tables in Markdown: shifts, paired differences, the whole grid, and who beats ours where.

    Args:
        results: What `run_stability` returned, whole or so far.

    Example:
        >>> row = {"setting": {"bandwidth": 2.0}, "n_images": 9, "mean": [1.5], "deviation": [0.25], "relative": 0.5}
        >>> row |= {"low": [1.4], "high": [1.6], "metric_seconds_per_image": 0.001}
        >>> entry = {"grid": [row], "chosen": {"bandwidth": 2.0}, "at_end": [], "test": row, "seconds": 1.0}
        >>> results = {"settings": {"radii": [4.0], "level": 0.95}, "methods": {"metric matching": entry}}
        >>> tables = stability_tables(results | {"paired": {}, "same_bandwidth": {}, "beaten": [], "choice": ""})
        >>> print(*tables.splitlines()[:3], sep="\\n")
        | how far features move, mean ± deviation | ‖v‖ = 4 | settings | images | ms per metric |
        |---|---|---|---|---|
        | **metric matching** | 1.5 ± 0.25 | σ 2 | 9 | 1 |
    """
    complete = {name: entry for name, entry in results["methods"].items() if "test" in entry}
    parts = [_shifts(complete, results)]
    if results.get("paired"):
        parts.append(_paired(results))
    parts += [_grid(results), _beaten(results)]
    return "\n\n".join(parts)


def cost_tables(results: Mapping[str, Any]) -> str:
    """Make the tables in Markdown: for every shape, time and memory of each method; then ratios to metric matching.

    Args:
        results: What `measure_cost` returned, or results.json holds.

    Example:
        >>> row = {"shape": "tiny", "precision": "float32", "method": "metric matching", "batch": 4, "seconds": 0.012}
        >>> row |= {"status": "measured", "peak_bytes": 5_000_000, "estimated_bytes": None, "extrapolated": False}
        >>> shape = {"name": "tiny", "dim": 64, "rank": 5, "factor_bytes": 4_000_000, "mean_bytes": 3_000_000}
        >>> print(cost_tables({"shapes": [shape], "rows": [row], "ratios": []}))
        **tiny**, D = 64, rank 5, weights 4.0 MB (factor) and 3.0 MB (mean)
        <BLANKLINE>
        | per image | batch | float32 |
        |---|---|---|
        | metric matching | 4 | 3.00 ms, 1.2 MB |
        <BLANKLINE>
        Time, and memory beyond the weights, both divided by the batch.
    """
    parts = []
    for shape in results["shapes"]:
        rows = [row for row in results["rows"] if row["shape"] == shape["name"]]
        if rows:
            parts += [_heading(shape), _costs(rows)]
    parts.append("Time, and memory beyond the weights, both divided by the batch." + _footnote(results["rows"]))
    if results["ratios"]:
        parts.append(_ratios(results["ratios"]))
    return "\n\n".join(parts)


def _shifts(methods: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Tabulate the shifts on the test images, as in the paper's figure."""
    columns = [*_columns(results), "settings", "images", "ms per metric"]
    lines = [_header("how far features move, mean ± deviation", columns)]
    for name, entry in methods.items():
        row = entry["test"]
        cells = [f"{mean:.3g} ± {spread:.2g}" for mean, spread in zip(row["mean"], row["deviation"], strict=True)]
        setting = _setting(entry["chosen"]) + (f" {_END}" if entry["at_end"] else "")
        milliseconds = 1e3 * row["metric_seconds_per_image"]
        time = f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"
        lines.append(_row(_called(name), [*cells, setting, f"{row['n_images']:,}", time]))
    note = f"{_END} The best setting lies at an end of its grid: the optimum may lie beyond."
    return "\n".join(lines) + (f"\n\n{note}" if any(entry["at_end"] for entry in methods.values()) else "")


def _paired(results: Mapping[str, Any]) -> str:
    """Tabulate the differences on the same images, with their intervals."""
    level = results["settings"]["level"]
    title = f"ours minus theirs on the same test images, {level:.0%} intervals"
    lines = [_header(title, [*_columns(results), "images", "ours is better at"])]
    for name, found in results["paired"].items():
        cells = [_difference(*values) for values in _per_radius(found, "difference", "low", "high", "ratio")]
        lines.append(_row(name, [*cells, f"{found['n_images']:,}", _verdict(found, results["settings"]["radii"])]))
    return "\n".join(lines)


def _verdict(found: Mapping[str, Any], radii: Sequence[float]) -> str:
    """Say at which radii ours wins beyond chance."""
    won = [f"{radius:g}" for radius, wins in zip(radii, found["wins"], strict=True) if wins]
    lost = [f"{radius:g}" for radius, loses in zip(radii, found["loses"], strict=True) if loses]
    text = "every radius" if len(won) == len(radii) else ", ".join(won) or "no radius"
    return text + (f"; **theirs at {', '.join(lost)}**" if lost else "")


def _grid(results: Mapping[str, Any]) -> str:
    """Tabulate the mean shifts of every setting on the validation images."""
    lines = [_header("all settings on the validation images, mean ± deviation", [*_columns(results), "of random"])]
    for name, entry in results["methods"].items():
        for row in entry["grid"]:
            cells = [f"{mean:.3g} ± {spread:.2g}" for mean, spread in zip(row["mean"], row["deviation"], strict=True)]
            is_chosen = len(entry["grid"]) > 1 and entry.get("chosen") == row["setting"]
            share = f"**{row['relative']:.3f}**" if is_chosen else f"{row['relative']:.3f}"
            setting = _setting(row["setting"])
            lines.append(_row(_called(name) + (f", {setting}" if setting else ""), [*cells, share]))
    return "\n".join(lines) + (f"\n\n{results['choice']}" if results["choice"] else "")


def _beaten(results: Mapping[str, Any]) -> str:
    """List where another method is better than ours beyond chance, or say that none is."""
    where = "each at its best settings on the test images, and both at every common σ on the validation images"
    if not any(found for found in results.get("same_bandwidth", {}).values()) and not results.get("paired"):
        return "Nothing was compared yet."
    beaten = results["beaten"]
    if not beaten:
        return f"No method moves features less than metric matching beyond chance at any radius ({where})."
    columns = ["images", "ours", "theirs", *_columns(results)]
    lines = [f"Better than metric matching beyond chance ({where}), ours minus theirs:", "", _header("method", columns)]
    for sides, losses in itertools.groupby(beaten, key=lambda loss: [loss[key] for key in _SIDES]):
        method, images, ours, theirs = sides
        found = {loss["radius"]: _interval(loss["difference"], loss["low"], loss["high"]) for loss in losses}
        cells = [found.get(radius, "") for radius in results["settings"]["radii"]]
        lines.append(_row(method, [images, _setting(ours), _setting(theirs) or "–", *cells]))
    return "\n".join(lines)


def _per_radius(found: Mapping[str, Any], *names: str) -> Iterable[tuple[float, ...]]:
    return zip(*(found[name] for name in names), strict=True)


def _difference(difference: float, low: float, high: float, ratio: float) -> str:
    return f"{_interval(difference, low, high)}, {ratio:.0%}"


def _interval(difference: float, low: float, high: float) -> str:
    return f"{difference:+.3g} [{low:+.3g}, {high:+.3g}]"


def _called(name: str) -> str:
    return f"**{name}**" if name == OURS else name


def _setting(setting: Mapping[str, float]) -> str:
    symbols = {"bandwidth": "σ", "strength": "λ/σ²"}
    return ", ".join(f"{symbols.get(name, name)} {value:g}" for name, value in setting.items())


def _columns(results: Mapping[str, Any]) -> list[str]:
    return [f"‖v‖ = {radius:g}" for radius in results["settings"]["radii"]]


def _header(title: str, columns: Sequence[str]) -> str:
    return f"| {title} | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}"


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _heading(shape: Mapping[str, Any]) -> str:
    weights = f"weights {_size(shape['factor_bytes'])} (factor) and {_size(shape['mean_bytes'])} (mean)"
    return f"**{shape['name']}**, D = {shape['dim']:,}, rank {shape['rank']}, {weights}"


def _costs(rows: Sequence[Mapping[str, Any]]) -> str:
    """Tabulate one shape: a line per method and batch."""
    return _table_of_precisions("per image | batch", rows, lambda row: f"{row['method']} | {row['batch']}", _cost)


def _cost(row: Mapping[str, Any]) -> str:
    batch = row["batch"]
    if row["status"] == FAILED:
        return f"failed: {row['message']}"
    if row["status"] == OUT_OF_MEMORY:
        needed = max(row["estimated_bytes"] or 0, row["result_bytes"])
        return f"out of memory (about {_size(needed / batch)})"
    memory = "" if row["peak_bytes"] is None else f", {_size(row['peak_bytes'] / batch)}"
    mark = _END if row["status"] == EXTRAPOLATED else ""
    return f"{_duration(row['seconds'] / batch)}{memory}{mark}"


def _footnote(rows: Sequence[Mapping[str, Any]]) -> str:
    if not any(row["extrapolated"] for row in rows):
        return ""
    return (
        f" {_END} Extrapolated from the time of some products with the Jacobian; the memory is that of these products "
        "and of the result, a lower bound."
    )


def _ratios(ratios: Sequence[Mapping[str, Any]]) -> str:
    """Tabulate how many times the time and memory of metric matching the Jacobians take."""
    title = "one image, in multiples of metric matching"
    return _table_of_precisions(title, ratios, lambda row: f"{row['shape']}: {row['method']}", _multiples)


def _multiples(row: Mapping[str, Any]) -> str:
    time, memory = row["times_slower"], row["times_larger"]
    parts = ["out of memory" if time is None else f"{_count(time)}× the time"]
    if memory is not None:
        parts.append(f"{_count(memory)}× the memory")
    return ", ".join(parts) + (_END if row["extrapolated"] else "")


def _table_of_precisions(
    title: str, rows: Sequence[Mapping[str, Any]], name: Callable[..., str], cell: Callable[..., str]
) -> str:
    """Tabulate with a column per precision and a line per name; a bar in the title makes columns of names, too."""
    precisions = list(dict.fromkeys(row["precision"] for row in rows))
    columns = [*title.split(" | "), *[_PRECISIONS[precision] for precision in precisions]]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for called in dict.fromkeys(map(name, rows)):
        found = {row["precision"]: cell(row) for row in rows if name(row) == called}
        lines.append(f"| {called} | {' | '.join(found.get(precision, '') for precision in precisions)} |")
    return "\n".join(lines)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _duration(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def _size(n_bytes: float | int) -> str:
    value = n_bytes / 1e6
    return f"{value / 1e3:,.1f} GB" if value >= 1e3 else f"{value:.0f} MB" if value >= 100 else f"{value:.1f} MB"
