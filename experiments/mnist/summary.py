"""The tables of the experiment, from its results."""

from __future__ import annotations

from typing import Any

HEAD = ("method", "reached", "right class", "confidence", "nearest digit", "÷ LERP's middle", "length", "seconds")


def table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """Write a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def path_rows(results: dict[str, dict[str, Any]], part: str) -> list[list[str]]:
    """Write a row per method, over one part of the nodes: inner, all, midpoint, or the same of the raw curves."""
    rows = []
    for name, row in results.items():
        found = row[part]
        rows.append(
            [
                name,
                f"{row['reached']:.1%}",
                f"{found['right']:.1%} ± {found['right_error']:.1%}",
                f"{found['confidence']:.3f} ± {found['confidence_error']:.3f}",
                f"{found['distance']:.2f}",
                f"{found['distance_over_lerp_midpoint']:.3f} ± {found['distance_over_lerp_midpoint_error']:.3f}",
                f"{row['length_over_chord']:.2f}",
                f"{row['seconds']:.1f}",
            ]
        )
    return rows


def difference_table(found: dict[str, Any]) -> str:
    """Write paired differences from the learned thread, with standard errors over pairs."""
    rows = []
    for name, row in found["methods"].items():
        each = row["minus_learned"]
        forms = (("right", 100, ".1f", " points"), ("confidence", 1, ".3f", ""), ("distance", 1, ".2f", ""))
        rows.append([name, *(f"{s * each[k]:+{f}} ± {s * each[k + '_error']:{f}}{u}" for k, s, f, u in forms)])
    return table(("method", "right class", "confidence", "nearest digit"), rows)


def training_table(results: dict[str, Any]) -> str:
    """Write the held-out losses against epochs."""
    names = ("mean_loss", "metric_loss", "predictive_loss")
    rows = [
        [f"{row['epoch']:.1f}", f"{row['seconds']:.0f}", *(f"{row[name]:.4f}" for name in names)]
        for row in results["losses"]
    ]
    return table(("epochs", "seconds", "denoising", "metric", "mean and metric together"), rows)


def scale_tables(results: dict[str, Any]) -> str:
    """Write the range of the eigenvalues and the dimension of each class, one row per σ."""
    rows = [*results["scales"], results["default"]]
    names = list(results["default"]["count_by_class"])
    scales = [f"{row['bandwidth']:.3g}" for row in rows]
    scales[-1] = f"**{scales[-1]}** (default)"
    ranges = [
        [sigma, str(row["n"]), f"{row['smallest']:.2g}", f"{row['largest']:.3f}", f"{row['share_in_range']:.1%}"]
        for sigma, row in zip(scales, rows, strict=True)
    ]
    parts = [table(("σ", "digits", "smallest", "largest", "all in [0, 1.05]"), ranges)]
    for how, meaning in (("count", "eigenvalues above ½"), ("trace", "sum of the eigenvalues")):
        lines = [
            [sigma, f"{row[how]:.1f}", *(f"{row[f'{how}_by_class'][name]:.1f}" for name in names)]
            for sigma, row in zip(scales, rows, strict=True)
        ]
        parts.append(f"Dimension by class, {meaning}:\n\n{table(('σ', 'all', *names), lines)}")
    return "\n\n".join(parts)


def check_tables(results: dict[str, Any]) -> list[str]:
    """Write the largest eigenvalue beside a kernel's, and predicted beside realized squares at noisy digits."""
    names = ("effective", "learned", "kernel", "share_in_range_learned", "share_in_range_kernel", "correlation")
    forms = (".0f", ".3f", ".3f", ".1%", ".1%", ".2f")
    rows = [
        [f"{row['bandwidth']:g}", *(f"{row[name]:{form}}" for name, form in zip(names, forms, strict=True))]
        for row in results["kernel"]
    ]
    head = ("σ", "samples that count", "learned", "kernel", "learned ≤ 1.05", "kernel ≤ 1.05", "correlation")
    beside = [
        [f"{row['bandwidth']:g}", str(b["n"]), f"{b['predicted']:.3f}", f"{b['realized']:.3f} ± {b['error']:.3f}"]
        for row in results["noisy"]
        for b in row["bins"]
    ]
    return [
        "The largest eigenvalue at test digits, and that of an exact kernel on all training digits:\n\n"
        + table(head, rows),
        "At noisy test digits, the five leading eigenvalues by size, and the mean square that they predict:\n\n"
        + table(("σ", "n", "predicted", "realized"), beside),
    ]


def speed_table(results: dict[str, Any]) -> str:
    """Write how fast both networks train together."""
    rows = [
        [
            row["network"],
            f"{row['parameters'] / 1e6:.1f}M",
            str(row["batch_size"]),
            "yes" if row["with_jacobian"] else "no",
            f"{row['milliseconds']:.1f}",
            f"{row['images_per_second']:,.0f}",
        ]
        for row in results["rows"]
    ]
    return table(("network", "weights, both", "batch", "Jacobian's product", "ms per step", "images per second"), rows)


def restored_table(results: dict[str, Any]) -> str:
    """Write how far spoiled digits are from what they were, before and after."""
    keys = (("to_original", ".2f"), ("to_nearest", ".2f"), ("right", ".1%"))
    rows = []
    for row in results["rows"]:
        pairs = [f"{row['before'][key]:{form}} → {row['after'][key]:{form}}" for key, form in keys]
        rows.append([row["spoiled"], row["way"], f"{row['bandwidth']:g}", *pairs])
    clean = results["clean"]
    rows.insert(0, ["nothing", "", "", "0", f"{clean['to_nearest']:.2f}", f"{clean['right']:.1%}"])
    return table(
        ("spoiled by", "way back", "σ", "to the original", "to the nearest training digit", "right class"), rows
    )


def tables(results: dict[str, Any]) -> str:
    """Write everything that was measured as Markdown."""
    parts = ["# Tables", "Generated from results.json by run.py."]
    if "train" in results:
        found = results["train"]
        told = (
            f"{found['n_train']:,} digits, {found['steps']:,} steps of {found['batch_size']}, "
            f"{found['epochs']:.1f} epochs, {found['seconds']:.0f} s, "
            f"{found['images_per_second']:,.0f} noisy digits per second."
        )
        parts += ["## Training", told, training_table(found)]
    if "spectra" in results:
        parts += ["## Eigenvalues at test digits", scale_tables(results["spectra"]), *check_tables(results["spectra"])]
    if "speed" in results:
        parts += ["## Speed of training", speed_table(results["speed"])]
    if "search" in results:
        found = results["search"]
        rows = path_rows({f"{k}": row for k, row in enumerate(found["rows"])}, "inner")
        rows = [[_options(row), *cells[1:]] for row, cells in zip(found["rows"], rows, strict=True)]
        rule = f"{found['n_pairs']} validation pairs. The rule: {found['rule']}."
        parts += ["## Search for settings", rule, table(HEAD, rows)]
    if "paths" in results:
        found = results["paths"]
        parts += ["## Paths", f"{found['n_pairs']} test pairs; test digits themselves: {_reference(found)}."]
        for part, meaning in (
            ("inner", "Inner nodes of the completed curves"),
            ("all", "All nodes, with the two given ends"),
            ("midpoint", "The middle of the completed curves"),
            ("raw_inner", "Inner nodes of the raw curves, which may stop early"),
        ):
            parts += [f"{meaning}:", table(HEAD, path_rows(found["methods"], part))]
        parts += ["Each method minus the learned thread, on the same pairs (inner nodes):", difference_table(found)]
    if "restore" in results:
        found = results["restore"]
        parts += ["## Restoration", f"{found['n']:,} test digits.", restored_table(found)]
    return "\n\n".join(parts) + "\n"


def short_table(results: dict[str, Any]) -> str:
    """Write the few lines that a run ends with."""
    parts = []
    if "classifier" in results:
        parts.append(f"classifier: {results['classifier']['accuracy']:.2%} of the test digits right")
    if "spectra" in results:
        row = results["spectra"]["default"]
        lowest = min(row["trace_by_class"], key=row["trace_by_class"].get)
        parts.append(
            f"σ = {row['bandwidth']:.3g}: eigenvalues in [0, 1.05] at {row['share_in_range']:.1%} (largest "
            f"{row['largest']:.3f}), dimension {row['count']:.1f}, trace {row['trace']:.1f}, lowest for class {lowest}"
        )
    if "paths" in results:
        parts.append(table(HEAD, path_rows(results["paths"]["methods"], "inner")))
    return "\n".join(parts)


def _options(row: dict[str, Any]) -> str:
    names = ["bandwidth", "landing", "landing_bandwidth", "finest", "slope", "ridge", "step"]
    names += ["strength"] if row["settings"]["metric"] == "stein" else []
    values = [f"{name} {row['settings'][name]:g}" for name in names if row["settings"][name] is not None]
    return f"{row['method']}: {', '.join(values)}"


def _reference(found: dict[str, Any]) -> str:
    row = found["reference"]
    return f"{row['distance']:.2f} from the nearest training digit, {row['right']:.1%} of them classified rightly"


def card(results: dict[str, Any]) -> str:
    """Write what was measured, for the card of the model that ships."""
    spectra, paths, train = results["spectra"], results["paths"]["methods"], results["train"]
    default, eight = spectra["default"], next(row for row in spectra["scales"] if row["bandwidth"] == 8.0)
    kernel = next(row for row in spectra["kernel"] if row["bandwidth"] == 8.0)
    learned, straight = paths["learned"], paths["LERP"]
    settings = learned["settings"]
    noise = next(r for r in results["restore"]["rows"] if (r["spoiled"], r["way"]) == ("noise 2", "posterior mean"))
    rows = [
        [
            f"dimension at σ = {default['bandwidth']:.2f}: eigenvalues above ½, sum of all",
            f"{default['count']:.1f}, {default['trace']:.1f} "
            f"(digit 1: {default['count_by_class']['1']:.1f}, {default['trace_by_class']['1']:.1f})",
        ],
        [
            f"digits whose eigenvalues all lie in [0, 1.05], at σ = {default['bandwidth']:.2f} and 8",
            f"{default['share_in_range']:.0%}, {eight['share_in_range']:.0%}; see experiments/mnist on values above 1",
        ],
        [
            "largest eigenvalue at σ = 8, learned and by an exact kernel on all training digits",
            f"{kernel['learned']:.2f}, {kernel['kernel']:.2f} "
            f"(100 test digits, correlation {kernel['correlation']:.2f})",
        ],
        [
            f"{results['paths']['n_pairs']} threads between digits of a class: class kept at inner nodes "
            f"(σ {settings['bandwidth']:g}, finest {settings['finest']:g}, slope {settings['slope']:g}, "
            f"α {settings['landing']:g})",
            f"{learned['inner']['right']:.1%} (straight lines {straight['inner']['right']:.1%})",
        ],
        [
            "their distance from the nearest training digit, over that of the middle of straight lines",
            f"{learned['inner']['distance_over_lerp_midpoint']:.1%}",
        ],
        [
            "noise of deviation 2 taken off: classified rightly before and after",
            f"{noise['before']['right']:.0%}, {noise['after']['right']:.1%}",
        ],
        [
            "training",
            f"{train['seconds']:.0f} s on one {train['about']['hardware']}, {train['images_per_second']:,.0f} images/s",
        ],
    ]
    return (
        "## Data\n\nThe 60,000 training digits of MNIST (LeCun, Cortes and Burges; CC BY-SA 3.0), 3,000 of them held "
        "out to watch the losses; the 10,000 test digits took no part.\n\n## Measured\n\nOn the test digits, with "
        "these weights; what it means, and the commands, in experiments/mnist of the repository.\n\n"
        f"{table(('what', 'value'), rows)}\n\n"
    )
