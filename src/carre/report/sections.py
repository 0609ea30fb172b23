"""The sections of a report below the explorer, and the one above it."""

from __future__ import annotations

from html import escape

import numpy as np

from carre.report.charts import curve_chart
from carre.report.content import PathFound, ReportContent
from carre.report.images import plot_tangent_images
from carre.report.markup import details, facts, paragraphs, picture, section, table
from carre.report.panels import render_png
from carre.report.thumbnails import film, strip_limits
from carre.report.wording import certainty, headline, summary_facts, training_verdict, unresolved, verdict

_LOADINGS, _FREE_COLUMNS = 5, 12
_MOST_REASONS = 10


def hero(content: ReportContent) -> str:
    """Write what to read first."""
    warnings = "".join(f"<li>{escape(text)}</li>" for text in content.warnings)
    listed = f'<div class="warning"><h2>Before you rely on this</h2><ul>{warnings}</ul></div>' if warnings else ""
    tone = "doubt" if content.warnings else "clear" if verdict(content) == "clear" else "degree"
    return (
        f'<header class="hero">\n<p class="kicker">{escape(content.title)}</p>\n'
        f'<h1>{escape(headline(content))} <span class="verdict {tone}">{escape(verdict(content))}</span></h1>\n'
        f'<p class="lead">{escape(certainty(content))}</p>\n{listed}\n</header>\n{facts(summary_facts(content))}'
    )


def directions(content: ReportContent) -> str:
    """Write in which directions the data can move: as pictures, or by columns."""
    return _pictured_directions(content) if content.image_shape else _loaded_directions(content)


def _name(content: ReportContent, point: int) -> str:
    row = f"row {content.rows[point]}"
    return row if content.label is None else f"{row} ({content.label.text(point)})"


def _pictured_directions(content: ReportContent) -> str:
    found, shape = content.directions, content.image_shape
    assert shape is not None
    black, white = strip_limits(content)
    # Plots draw large values dark; pictures that are no ink are turned around.
    sign = -1.0 if white > black else 1.0
    images = sign * content.points[found.points].reshape(-1, *shape).mean(1)
    vectors = sign * found.vectors.reshape(*found.vectors.shape[:2], *shape).mean(2)
    png = render_png(plot_tangent_images(images, vectors, found.eigenvalues))
    names = ", ".join(_name(content, int(point)) for point in found.points)
    text = (
        "At each picture the metric names the directions in which one may walk and still find such pictures, strongest "
        "first. Along a direction with an eigenvalue λ near 1 the data extend freely; one near 0 leads away from them."
    )
    shown = picture(
        png,
        alt=f"Pictures, each followed by its {found.vectors.shape[1]} leading tangent directions in red and blue.",
        caption=f"From top to bottom: {names}. Along a direction pixels darken where it is red and lighten where it is "
        "blue, or the reverse: a direction has no sign.",
    )
    numbers = range(1, found.eigenvalues.shape[1] + 1)
    rows = [
        [_name(content, int(point)), *(f"{value:.3f}" for value in values)]
        for point, values in zip(found.points, found.eigenvalues, strict=True)
    ]
    data = table([["picture", *(f"λ{k}" for k in numbers)], *rows], caption="Eigenvalues", row_heads=True)
    return section(
        "How can a picture change?", paragraphs(text) + shown + details("Show as a table", data), name="directions"
    )


def _loaded_directions(content: ReportContent) -> str:
    found, names = content.directions, content.feature_names
    rows = [["point", "direction", "λ", "columns that move most, with their signs"]]
    for point, values, vectors in zip(found.points, found.eigenvalues, found.vectors, strict=True):
        for k, (value, vector) in enumerate(zip(values, vectors, strict=True)):
            if k == 0 or value > 0.5:
                rows.append([_name(content, int(point)), f"{k + 1}", f"{value:.2f}", _loadings(vector, names)])
    order = np.argsort(-found.freedom)[:_FREE_COLUMNS]
    free = [["column", "freedom"], *([names[k], f"{found.freedom[k]:.3f}"] for k in order)]
    intro = (
        "At some typical points: which columns change together when one moves along the data. A loading is the share "
        "of a column in a direction of length 1; a direction has no sign, and directions with nearly equal λ may be "
        "mixed."
    )
    freedom = (
        "How freely each column can change on its own (the mean diagonal of the metric): 1 where the data extend along "
        f"it, 0 where it is fixed by the others. Over {found.n_averaged:,} points"
        + (f", the {len(order)} freest of {content.dim:,} columns." if len(order) < content.dim else ".")
    )
    body = paragraphs(intro) + table(rows, caption="Leading directions and their columns") + paragraphs(freedom)
    return section("Which columns move together?", body + _freedom_bars(free), name="directions")


def _freedom_bars(rows: list[list[str]]) -> str:
    """Return a table with a bar beside every number."""
    lines = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{value}</td>'
        f'<td class="meter"><meter min="0" max="1" value="{value}" aria-hidden="true"></meter></td></tr>'
        for name, value in rows[1:]
    )
    head = '<thead><tr><th scope="col">column</th><th scope="col">freedom</th><td></td></tr></thead>'
    return f'<div class="table"><table class="bars">\n{head}\n<tbody>\n{lines}\n</tbody></table></div>'


def _loadings(vector: np.ndarray, names: tuple[str, ...]) -> str:
    order = np.argsort(-np.abs(vector))[:_LOADINGS]
    shown = [k for k in order if abs(vector[k]) >= 0.1] or [int(order[0])]
    return ",  ".join(f"{names[k]} {'+' if vector[k] > 0 else '−'}{abs(vector[k]):.2f}" for k in shown)


def paths(content: ReportContent) -> str:
    """Write about the paths between samples."""
    found = content.paths.found
    if not found:
        return section("From one sample to another", paragraphs(content.paths.note), name="paths")
    head = ["from row", "to row", "length", "straight distance", "ratio", "stays on the data", "strays by"]
    rows = [
        [
            str(path.rows[0]),
            str(path.rows[1]),
            f"{path.length:.4g}",
            f"{path.straight:.4g}",
            f"{path.length / path.straight:.2f}" if path.straight else "–",
            "yes" if path.is_connected else "no",
            f"{path.strayed:.1f} σ",
        ]
        for path in found
    ]
    text = (
        f"{unresolved(content)}\n\n"
        "A straight line between two samples leaves the data; a path follows them. How much longer it is tells how "
        f"bent the data are, and how far it strays from them whether it can be believed.\n\n{content.paths.note} On "
        "the map they are lines, dashed where the path leaves the data."
    )
    reasons = "".join(
        f"<li>Row {path.rows[0]} to row {path.rows[1]}: {escape(path.reason)}.</li>" for path in found if path.reason
    )
    listed = f"<ul>{reasons}</ul>" if reasons else ""
    strips = "".join(_strip(content, path) for path in found) if content.image_shape else ""
    body = paragraphs(text) + table([head, *rows], caption="Paths between samples") + listed + strips
    return section("From one sample to another", body, name="paths")


def _strip(content: ReportContent, path: PathFound) -> str:
    shape = content.image_shape
    assert shape is not None
    times = np.linspace(0, 1, len(path.nodes))[:, None]
    straight = path.nodes[0] * (1 - times) + path.nodes[-1] * times
    rows = [nodes.reshape(-1, *shape) for nodes in (path.nodes, straight)]
    start, end = path.rows
    return picture(
        film(rows, strip_limits(content)),
        alt=f"{len(path.nodes)} pictures from row {start} to row {end}: above along the data, below straight.",
        caption=f"Row {start} to row {end}. Above: along the data. Below: the straight line, which shows both at once.",
        css_class="film",
    )


def validity(content: ReportContent) -> str:
    """Write where the geometry can be relied on."""
    checked = content.checked
    if not len(checked.points):
        return section("Can it be relied on?", paragraphs(checked.note), name="validity")
    n, is_valid = len(checked.points), checked.is_valid
    kinds = {
        "valid: nothing speaks against it": is_valid,
        "farther from the data than noise would carry a point": ~checked.is_near,
        "no clear gap between tangent and normal eigenvalues": ~checked.is_clear,
    }
    if checked.is_compared:
        kinds["a kernel on the samples sees another geometry"] = ~checked.agrees
    counts = [[what, f"{int(mask.sum()):,}", f"{mask.mean():.0%}"] for what, mask in kinds.items()]
    text = (
        f"{unresolved(content)}\n\n"
        f"{checked.note} Directions, paths and curvature mean something where a point is near the data, its "
        "eigenvalues fall into tangent and normal ones, and the classical estimate from samples agrees. A point can "
        "fail for several reasons."
    )
    body = paragraphs(text) + table([["", "points", "share"], *counts], caption="Validity", row_heads=True)
    wrong = np.flatnonzero(~is_valid)[:_MOST_REASONS]
    if len(wrong):
        rows = [[str(content.rows[checked.points[k]]), checked.reasons[k]] for k in wrong]
        more = f"Rows that are not valid ({len(rows)} of {int((~is_valid).sum()):,})"
        body += details(more, table([["row", "why"], *rows], caption="Rows that are not valid", row_heads=True))
    if n and checked.is_clear.mean() < 0.5:
        body += paragraphs(
            "Most points have no clear gap. That need not be a fault of the fit: data without a sharp dimension, like "
            "pictures, are like this. Read dimensions as a matter of degree, and trust directions more than their "
            "number."
        )
    return section("Can it be relied on?", body, name="validity")


def training(content: ReportContent) -> str:
    """Write whether training was long enough."""
    history = content.history
    body = paragraphs(training_verdict(history))
    if history.evaluations:
        looks = history.evaluations
        steps = [look.step for look in looks]
        chart = curve_chart(
            steps,
            {"held-out loss": [look.loss for look in looks]},
            x_label="training step",
            y_label="loss, nats per sample",
            alt="Loss on held-out samples against training steps",
            bottom=None,
        )
        rows = [
            [f"{look.step:,}", f"{look.loss:.4g}", f"{look.mean_loss:.4g}", f"{look.seconds:.0f}"] for look in looks
        ]
        data = table([["step", "loss", "denoising loss", "seconds"], *rows], caption="Held-out losses")
        cards = [
            _card("Loss on held-out samples", "Should be flat at the end.", chart + details("Show as a table", data))
        ]
        if len(history.gain):
            cards.append(_gain(content))
        body += f'<div class="charts two">{"".join(cards)}</div>'
    return section("Was it trained for long enough?", body, name="training")


def _gain(content: ReportContent) -> str:
    history = content.history
    sigma = list(history.bandwidths)
    curves = {"this network": history.gain.tolist()}
    if history.kernel_gain:
        # A kernel without neighbors is far worse than a linear denoiser: what matters is where it is better.
        curves["kernel on the samples"] = [value if value > -1 else float("nan") for value in history.kernel_gain]
    chart = curve_chart(
        sigma,
        curves,
        x_label="scale σ",
        y_label="dimensions gained",
        alt="Gain over the best linear denoiser against the scale",
        log=True,
    )
    columns = [history.gain.tolist(), *([list(history.kernel_gain)] if history.kernel_gain else [])]
    rows = [[f"{s:.3g}", *(f"{column[k]:.3f}" for column in columns)] for k, s in enumerate(sigma)]
    data = table([["σ", *curves], *rows], caption="Gain over a linear denoiser")
    text = (
        "How many more directions are cleaned of noise than by the best linear denoiser; the kernel should be reached."
    )
    return _card("What the network learned", text, chart + details("Show as a table", data))


def _card(heading: str, text: str, body: str) -> str:
    return f'<div class="card"><h3>{escape(heading)}</h3><p class="hint">{escape(text)}</p>{body}</div>'


def origin(content: ReportContent, numbers: str) -> str:
    """Write how all this was made, with the numbers for other programs."""
    rows = []
    for name, value in content.origin.items():
        text = ", ".join(f"{key}={part!r}" for key, part in value.items()) if isinstance(value, dict) else str(value)
        rows.append([name, text or "the defaults"])
    buttons = (
        '<p class="controls"><button type="button" id="download">Download the numbers (JSON)</button>\n'
        '<button type="button" id="copy">Copy them</button> <span id="copied" role="status"></span></p>'
    )
    listed = table([["what", "value"], *rows], caption="How this report was made", row_heads=True)
    data = f'<script type="application/json" id="numbers">{numbers}</script>'
    return section(
        "How this was made", listed.replace("<table>", '<table class="origin">') + buttons + data, name="origin"
    )
