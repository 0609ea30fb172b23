"""The numbers of a report in plain words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from carre.report.content import Checked, ReportContent
from carre.training import linear_phase

# A share of the points, and of the whole improvement in a tenth of the training.
_NEARLY_ALL, _HALF, _STILL_FALLING = 0.9, 0.5, 0.05
# Less bending over a length of σ is rounding.
_FLAT = 1e-6


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    Example:
        >>> counted(1, "dimension"), counted(3, "dimension")
        ('1 dimension', '3 dimensions')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def headline(content: ReportContent) -> str:
    """Say how many dimensions, at which scale."""
    estimate = content.estimate
    how = "by a kernel, at" if estimate.source else "at"
    return f"{counted(estimate.value, 'dimension')}, {how} scale σ = {estimate.bandwidth:.3g}"


def certainty(content: ReportContent) -> str:
    """Say how sure the number of dimensions is."""
    estimate = content.estimate
    (low, high), share = estimate.interval, estimate.shares.get(estimate.value, 0.0)
    have = f"{share:.0%} of {len(estimate.local):,} points have exactly {estimate.value}"
    checked, valid = content.checked, ""
    if estimate.source:
        return f"By a kernel, {have}. {unresolved(content)}"
    if len(checked.points) and checked.is_clear.mean() < _HALF:
        valid = f" At {1 - checked.is_clear.mean():.0%} of the checked points eigenvalues fall without a clear gap."
    elif len(checked.points):
        valid = f" The geometry is valid at {checked.is_valid.mean():.0%} of the points that were checked."
    if low == high and share >= _NEARLY_ALL:
        start = f"A clear answer: {have}, and the count stays the same as σ varies by √2 either way."
    elif low == high:
        start = f"Typical, not everywhere: {have}, and the median stays the same as σ varies by √2 either way."
    else:
        start = (
            f"A matter of degree: between {low} and {high} as σ varies by √2 either way; {have}. "
            "Use the slider to see how the count changes with the scale."
        )
    return start + valid


def unresolved(content: ReportContent) -> str:
    """Say that the network has not resolved the data, where a kernel had to answer for it."""
    if not content.estimate.source:
        return ""
    scales = content.scales
    return (
        f"The network has not resolved the data: at σ = {scales.bandwidth[scales.chosen]:.3g} it counts "
        f"{scales.mean_dimension[scales.chosen]:.1f} dimensions on average. What it says here cannot be relied on."
    )


def verdict(content: ReportContent) -> str:
    """Say the same in a word or two."""
    if content.warnings:
        return "read the warnings"
    low, high = content.estimate.interval
    share = content.estimate.shares.get(content.estimate.value, 0.0)
    if low == high:
        return "clear" if share >= _NEARLY_ALL else "varies from point to point"
    return "depends on the scale"


def summary_facts(content: ReportContent) -> list[tuple[str, str, str]]:
    """List the main numbers: names, values, and what they mean."""
    estimate, scales, checked = content.estimate, content.scales, content.checked
    sigma = float(scales.bandwidth[scales.chosen])
    shown, rows = len(content.rows), content.n_rows
    part = "all of them are shown" if shown == rows else f"of which {shown:,}, chosen by chance, are measured and shown"
    kind = "rows of values per picture" if content.image_shape else "rows and columns"
    low, high = estimate.interval
    lines = [
        ("Points", f"{rows:,} × {content.dim:,}", f"{kind}; {part}"),
        (
            "Dimension",
            f"{estimate.value}" if low == high else f"{estimate.value} ({low} to {high})",
            f"median over the points; mean {estimate.mean:.2f} ± {_error(estimate.standard_error)}",
        ),
        (
            "Scale σ",
            f"{sigma:.3g}",
            str(content.origin["scale"]) if not estimate.source else "of the network, which has not resolved the data",
        ),
        (
            "Trace of the metric",
            f"{scales.mean_trace[scales.chosen]:.2f}",
            "a dimension that need not be whole: the sum of the eigenvalues",
        ),
    ]
    if len(checked.points) and not estimate.source:
        valid = int(checked.is_valid.sum())
        lines.append(("Valid", f"{valid:,} of {len(checked.points):,}", _validity(checked)))
    if len(content.curvature.points):
        bend = float(np.median(content.curvature.bending))
        radius = f"; as a circle of radius {1 / bend:.3g}" if estimate.value == 1 and bend > 0 else ""
        lines.append(
            (
                "Bending |H|",
                f"{bend:.3g}" if bend * sigma > _FLAT else "0",
                f"median length of the mean curvature vector{radius}",
            )
        )
    return lines


def _validity(checked: Checked) -> str:
    """Say what speaks most often against a point, where something does."""
    shares = {
        "no clear gap between eigenvalues, as in data without a sharp dimension": ~checked.is_clear,
        "farther from the data than noise would carry them": ~checked.is_near,
        "a kernel on the samples sees another geometry": ~checked.agrees & checked.is_compared,
    }
    most = max(shares, key=lambda reason: float(shares[reason].mean()))
    meaning = "points at which nothing speaks against it"
    return f"{meaning}; at the others mostly: {most}" if shares[most].any() else meaning


def _error(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def training_verdict(history: Any) -> str:
    """Say whether training was long enough."""
    looks = history.evaluations
    if not looks:
        return "Nothing is known about the training: no samples were held out to watch it."
    begin = f"Training took {history.steps:,} steps"
    begin += f" ({history.stop_reason}). " if history.stop_reason else ". "
    if linear_phase(history):
        return (
            begin + "It was too short: a kernel on the samples sees curvature that the network does not. Train longer."
        )
    losses = [look.loss for look in looks]
    if len(losses) < 3:
        return begin + "There were too few looks at held-out samples to see a trend."
    gained, last = losses[0] - min(losses), losses[-2] - losses[-1]
    if gained > 0 and last > _STILL_FALLING * gained:
        return (
            begin + f"The held-out loss was still falling: {last / gained:.0%} of the whole improvement came with the "
            "last look. Training longer may sharpen the picture."
        )
    kept = looks[history.kept].step
    if kept < looks[-1].step:
        return begin + f"It was long enough: the held-out loss was best at step {kept:,}, whose weights were kept."
    return begin + "It was long enough: the held-out loss is flat at the end."
