"""The part of a report that follows the slider: charts over scales, and the map."""

from __future__ import annotations

from html import escape

from carre.report.charts import curve_chart, histogram_chart, spectrum_chart
from carre.report.content import ReportContent
from carre.report.markup import details, paragraphs, section, table
from carre.report.wording import unresolved

_MOST_EIGENVALUES = 12


def explorer(content: ReportContent) -> str:
    """Write the slider, the charts and the map."""
    scales = content.scales
    chosen = scales.chosen
    sigma = float(scales.bandwidth[chosen])
    fewer = ""
    if scales.n_measured < len(content.rows):
        fewer = (
            f" At σ = {sigma:.3g} all {len(content.rows):,} points are measured, at other scales {scales.n_measured:,} "
            "of them, to save time; the others are small and gray then."
        )
    intro = (
        "<p>How many directions there are depends on how closely one looks. The scale σ is the deviation of a blur, in "
        "the units of the data: what varies less is taken for noise. Move the slider, and everything in this section "
        f"follows.{escape(fewer)}</p>"
    )
    intro += paragraphs(unresolved(content))
    return section(
        "From near and from afar",
        "\n".join([intro, _slider(content), '<div class="board">', _charts(content), _map(content), "</div>"]),
        name="explorer",
    )


def _slider(content: ReportContent) -> str:
    scales = content.scales
    sigma = f"{scales.bandwidth[scales.chosen]:.3g}"
    return (
        '<div class="slider">\n<label for="scale">Scale σ</label>\n'
        f'<input type="range" id="scale" min="0" max="{len(scales.bandwidth) - 1}" step="1" value="{scales.chosen}" '
        f'aria-valuetext="σ = {sigma}, the chosen scale">\n'
        f'<output id="scale-value" for="scale"><strong>{sigma}</strong> <span>the chosen scale</span></output>\n'
        '<button type="button" id="scale-reset" hidden>Back to the chosen scale</button>\n'
        f'<p id="scale-note" class="note">{escape(scales.notes[scales.chosen])}</p>\n</div>\n'
        '<noscript><p class="warning">This page works without JavaScript, except for the slider and the map: what is '
        "shown is the chosen scale.</p></noscript>"
    )


def _charts(content: ReportContent) -> str:
    panels = [_spectrum(content), _histogram(content), _over_scales(content)]
    return '<div class="charts">\n' + "\n".join(panels) + "\n</div>"


def _panel(heading: str, text: str, body: str, more: str) -> str:
    return f'<div class="card">\n<h3>{escape(heading)}</h3>\n<p class="hint">{escape(text)}</p>\n{body}\n{more}\n</div>'


def _by_scale(content: ReportContent, drawings: list[str], kind: str) -> str:
    """Stack one drawing per scale, of which the script shows one."""
    return "\n".join(
        f'<div data-{kind}="{k}"{"" if k == content.scales.chosen else " hidden"}>{drawing}</div>'
        for k, drawing in enumerate(drawings)
    )


def _spectrum(content: ReportContent) -> str:
    scales = content.scales
    top = 1.08 * max(1.0, float(scales.high.max()))
    drawings = [
        spectrum_chart(
            scales.mean[k],
            scales.low[k],
            scales.high[k],
            top=top,
            alt=f"Mean eigenvalues at σ = {sigma:.3g}: "
            + ", ".join(f"{value:.2f}" for value in scales.mean[k][:_MOST_EIGENVALUES]),
        )
        for k, sigma in enumerate(scales.bandwidth.tolist())
    ]
    head = ["", *(f"σ = {sigma:.3g}" for sigma in scales.bandwidth)]
    count = min(_MOST_EIGENVALUES, scales.mean.shape[1])
    rows = [[f"λ{k + 1}", *(f"{value:.3f}" for value in scales.mean[:, k])] for k in range(count)]
    return _panel(
        "Eigenvalues",
        "Near 1 along the data, near 0 across them. Bars: means over the points; lines: their quartiles.",
        _by_scale(content, drawings, "spectrum"),
        details("Show as a table", table([head, *rows], caption="Mean eigenvalues at every scale", row_heads=True)),
    )


def _histogram(content: ReportContent) -> str:
    scales = content.scales
    shares = [scales.shares(k) for k in range(len(scales.bandwidth))]
    values = sorted({dimension for row in shares for dimension in row})
    drawings = [
        histogram_chart(
            row,
            span=(values[0], values[-1]),
            alt=f"Local dimension at σ = {sigma:.3g}: "
            + ", ".join(f"{share:.0%} of the points have {dimension}" for dimension, share in row.items()),
        )
        for sigma, row in zip(scales.bandwidth.tolist(), shares, strict=True)
    ]
    head = ["dimension", *(f"σ = {sigma:.3g}" for sigma in scales.bandwidth)]
    rows = [[str(value), *(f"{row.get(value, 0.0):.1%}" for row in shares)] for value in values]
    return _panel(
        "Local dimension",
        "In how many directions the data extend from each point.",
        _by_scale(content, drawings, "histogram"),
        details("Show as a table", table([head, *rows], caption="Shares of the points", row_heads=True)),
    )


def _over_scales(content: ReportContent) -> str:
    scales = content.scales
    curves = {"mean dimension": scales.mean_dimension.tolist(), "mean trace": scales.mean_trace.tolist()}
    chart = curve_chart(
        scales.bandwidth.tolist(),
        curves,
        x_label="scale σ",
        y_label="dimensions",
        alt="Mean local dimension and mean trace of the metric against the scale",
        log=True,
        marked=scales.chosen,
        marker_name="scale",
    )
    columns = zip(scales.bandwidth, *curves.values(), strict=True)
    rows = [[f"{sigma:.3g}", f"{dimension:.2f}", f"{trace:.2f}"] for sigma, dimension, trace in columns]
    head = ["σ", "mean dimension", "mean trace"]
    return _panel(
        "Over all scales",
        "A plateau is a dimension that holds over many scales. The line marks the slider.",
        chart,
        details("Show as a table", table([head, *rows], caption="Dimension over scales", row_heads=True)),
    )


def _map(content: ReportContent) -> str:
    n, plan = len(content.rows), content.map
    toggles = '<label class="toggle"><input type="checkbox" id="show-arrows" checked> tangent directions</label>'
    if content.paths.found:
        toggles += '\n<label class="toggle"><input type="checkbox" id="show-paths" checked> paths</label>'
    buttons = "\n".join(
        f'<button type="button" id="{name}" aria-label="{label}">{sign}</button>'
        for name, label, sign in (
            ("zoom-in", "Zoom in", "+"),
            ("zoom-out", "Zoom out", "−"),
            ("zoom-all", "Show all points", "⤢"),
        )
    )
    help_text = (
        f"Map of {n:,} points. Arrow keys go to the next point in that direction, Enter keeps it, Escape lets it go, "
        "plus and minus zoom, zero shows all."
    )
    notes = " ".join([plan.note, content.curvature.note])
    lines = (
        "Lines at some points are the two leading tangent directions, as far as they lie in the map; a direction has "
        "no sign. Missing or not measured values are gray."
    )
    return (
        '<div class="card mapcard">\n<h3 id="map-heading">Map of the points</h3>\n<div class="controls">\n'
        '<label for="color">Color</label>\n<select id="color"></select>\n'
        f'{toggles}\n<span class="zoom">{buttons}</span>\n</div>\n'
        '<div id="map" class="map"><canvas id="points" aria-hidden="true"></canvas>'
        f'<canvas id="marks" tabindex="0" role="application" aria-label="{escape(help_text)}"></canvas>'
        '<div id="readout" class="readout" hidden></div></div>\n'
        '<div id="legend" class="maplegend"></div>\n<p id="announcement" class="hidden" aria-live="polite"></p>\n'
        '<p class="hint">Point at a dot, tap it, or use the arrow keys; Enter or a click keeps it. '
        f"{escape(lines)}</p>\n"
        f'<p class="hint">{escape(notes)}</p>\n{_first_points(content)}\n</div>'
    )


def _first_points(content: ReportContent) -> str:
    scales = content.scales
    head = ["row", *content.map.axes, "dimension", "trace", *(column.name for column in content.columns)]
    rows = [
        [
            str(content.rows[k]),
            *(f"{value:.4g}" for value in content.map.places[k]),
            str(scales.dimension[scales.chosen, k]),
            f"{scales.trace[scales.chosen, k]:.3f}",
            *(column.text(k) for column in content.columns),
        ]
        for k in range(min(12, len(content.rows)))
    ]
    caption = f"The first {len(rows)} of the points, at the chosen scale"
    return details("Show as a table", table([head, *rows], caption=caption, row_heads=True))
