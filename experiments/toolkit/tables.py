"""The tables of results.json, as they stand in README.md."""

from __future__ import annotations

BASELINES = ("lPCA", "lPCA, local", "MLE", "TwoNN", "ESS", "FisherS")


def tables(results: dict) -> str:
    """Write all tables that the results hold."""
    makers = {"fitted": fitted, "dimension": dimension, "spoiled": spoiled, "scale": scale}
    return "\n\n".join(make(results) for part, make in makers.items() if results.get(part))


def fitted(results: dict) -> str:
    sphere, roll = sorted(results["fitted"], key=lambda row: "length_error" in row)
    lines = [
        "| fitted fields, defaults, CPU | measured | asked for |",
        "|---|---|---|",
        f"| S³ in R²⁰: angle between gradients | {sphere['gradient_degrees']:.2f}° | 5° |",
        f"| S³ in R²⁰: error of geodesic length, mean (worst) | {sphere['geodesic_length_error']:.2%} "
        f"({sphere['geodesic_length_worst']:.2%}) | 5% |",
        f"| S³ in R²⁰: exp(log) off by, of the distance, median | {sphere['exp_log_error']:.2%} | |",
        f"| S³ in R²⁰: scalar curvature (6) | {sphere['scalar_curvature']:.2f} ± "
        f"{sphere['scalar_curvature_scatter']:.2f} | |",
        f"| Swiss roll: error of geodesic length, mean (worst) | {roll['length_error']:.2%} "
        f"({roll['length_worst']:.2%}) | |",
        f"| Swiss roll: farthest from the sheet, in half gaps between sheets | {roll['farthest_in_half_gaps']:.3f} "
        "| < 1 |",
        f"| Swiss roll: pairs whose flow (the paper's interpolation) arrives | {roll['flow_arrived']:.0%} | |",
    ]
    return "\n".join(lines)


def dimension(results: dict) -> str:
    ours = sorted(results["dimension"], key=lambda row: row["name"])
    theirs = {row["name"]: row for row in results.get("baselines", [])}
    methods = [method for method in BASELINES if theirs]
    lines = [
        "| dimension, n = 2,500 | true | D | ours (σ ± √2) | " + " | ".join(methods) + " |",
        "|---" * (4 + len(methods)) + "|",
    ]
    for row in ours:
        low, high = row["interval"]
        told = str(row["value"]) if low == high else f"{row['value']} ({low}–{high})"
        others = [f"{theirs[row['name']][method]:.2f}" if row["name"] in theirs else "" for method in methods]
        lines.append(f"| {row['name']} | {row['dimension']} | {row['ambient']} | {told} | " + " | ".join(others) + " |")
    errors = [f"{mean([abs(t[m] - t['dimension']) for t in theirs.values()]):.2f}" for m in methods]
    own = mean([abs(row["value"] - row["dimension"]) for row in ours])
    lines.append(f"| **mean absolute error** | | | **{own:.2f}** | " + " | ".join(errors) + " |")
    return "\n".join(lines)


def spoiled(results: dict) -> str:
    clean = {row["name"]: row for row in results["dimension"]}
    lines = ["| dimension, spoiled | true | clean | 1% outliers | 1% noise |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(row["name"] for row in sorted(results["spoiled"], key=lambda row: row["name"])):
        rows = {row["spoiled"]: row for row in results["spoiled"] if row["name"] == name} | {"": clean[name]}
        told = [f"{rows[how]['value']} (mean {rows[how]['mean']:.2f})" for how in ("", "outliers", "noise")]
        lines.append(f"| {name} | {clean[name]['dimension']} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def scale(results: dict) -> str:
    lines = [
        "| tangent error | n | at the chosen σ | at the best σ | ratio | a σ for each point |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(results["scale"], key=lambda row: row["shape"]):
        lines.append(
            f"| {row['shape']} | {row['n']:,} | {row['tangent_error']:.4f} (σ {row['bandwidth']:.3g}) | "
            f"{row['best_error']:.4f} (σ {row['best_bandwidth']:.3g}) | {row['regret']:.2f} | "
            f"{row['local_error']:.4f} |"
        )
    return "\n".join(lines)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)
