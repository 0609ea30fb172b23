"""What the page's script reads: numbers of every point in few bytes, and JSON that cannot end its script."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

from carre.report._content import ReportContent
from carre.report._inputs import Column
from carre.report._pictures import sprite
from carre.text import visible

_MISSING_BYTE, _MISSING_SHORT = 255, 65535
_LARGEST_ARROW = 127


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Write JSON for a script element: no ``<``, so that nothing in it can end the element; NaN becomes null, and
    all that is written can be seen.

    Example:
        >>> as_json({"label": "</script>", "x": float("nan")})
        '{"label": "\\\\u003c/script>", "x": null}'
    """
    text = json.dumps(_finite(value), ensure_ascii=False, indent=indent, allow_nan=False)
    return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {visible(str(key)): _finite(part) for key, part in value.items()}
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _finite(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _base64(array: np.ndarray, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<")).tobytes()).decode()


def pack_range(values: np.ndarray) -> dict[str, Any]:
    """Round numbers to 65,534 steps between their extremes; what is not finite is missing.

    Example:
        >>> packed = pack_range(np.array([0.0, 1.0, np.nan]))
        >>> packed["low"], packed["high"], np.frombuffer(base64.b64decode(packed["data"]), "<u2").tolist()
        (0.0, 1.0, [0, 65534, 65535])
    """
    is_known = np.isfinite(values)
    low, high = (float(values[is_known].min()), float(values[is_known].max())) if is_known.any() else (0.0, 1.0)
    steps = (np.where(is_known, values, low) - low) / ((high - low) or 1.0) * (_MISSING_SHORT - 1)
    return {"low": low, "high": high, "data": _base64(np.where(is_known, steps.round(), _MISSING_SHORT), "u2")}


def pack_points(content: ReportContent) -> dict[str, Any]:
    """Pack what the map shows."""
    survey, scales, plan = content.survey, content.scales, content.map
    has_pictures = survey.given.image_shape is not None
    dimension = np.where(scales.dimension < 0, _MISSING_BYTE, scales.dimension.clip(max=_MISSING_BYTE - 1))
    length = float(np.abs(plan.arrows).max(initial=0.0)) or 1.0
    return {
        "n": len(survey.rows),
        "rows": _base64(survey.rows, "u4"),
        "x": pack_range(plan.places[:, 0]),
        "y": pack_range(plan.places[:, 1]),
        "axes": plan.axes,
        "scales": scales.bandwidth,
        "chosen": scales.chosen,
        "notes": scales.notes,
        "dimension": _base64(dimension, "u1"),
        "trace": pack_range(scales.trace),
        "measured": _measured(content),
        "columns": [_pack_column(column) for column in content.columns],
        "arrows": {
            "points": _base64(plan.arrow_points, "u4"),
            "count": plan.arrows.shape[2],
            "data": _base64((plan.arrows / length * _LARGEST_ARROW).round(), "i1"),
        },
        "paths": [
            {"rows": path.rows, "connected": path.is_connected, "places": path.places.round(6)}
            for path in content.paths.found
        ],
        "thumbnails": sprite(survey) if has_pictures else None,
    }


def _measured(content: ReportContent) -> list[dict[str, Any]]:
    """Pack what is known at some of the points only."""
    curvature, checked = content.curvature, content.checked
    found = []
    if curvature.scalar is not None:
        found.append((curvature.points, Column("scalar curvature", curvature.scalar)))
    if len(curvature.points):
        found.append((curvature.points, Column("bending |H|", curvature.bending)))
    if len(checked.points):
        names = ("valid", "far from the data", "no clear spectrum", "a kernel disagrees")
        kind = np.select([~checked.is_near, ~checked.is_clear, ~checked.agrees], [1, 2, 3], 0)
        found.append((checked.points, Column("validity", kind, names)))
    return [{"points": _base64(points, "u4"), **_pack_column(column)} for points, column in found]


def _pack_column(column: Column) -> dict[str, Any]:
    return {"name": column.name, "data": _base64(column.values, "f4"), "names": column.names, "isId": column.is_id}


def numbers_of(content: ReportContent) -> dict[str, Any]:
    """Collect the numbers of the page for other programs: everything but the single points."""
    scales, estimate, checked = content.scales, content.estimate, content.checked
    given, history = content.survey.given, content.survey.geometry.history
    return {
        "title": given.title,
        "rows": len(given.points),
        "columns": given.points.shape[1],
        "rows_shown": len(content.survey.rows),
        "dimension": {
            "value": estimate.value,
            "interval": estimate.interval,
            "mean": estimate.mean,
            "standard_error": estimate.standard_error,
            "shares": estimate.shares,
            "bandwidth": estimate.bandwidth,
            "source": estimate.source,
        },
        "warnings": content.warnings,
        "scales": [
            {
                "bandwidth": float(sigma),
                "mean_trace": float(scales.mean_trace[k]),
                "mean_dimension": float(scales.mean_dimension[k]),
                "shares": scales.shares[k],
                "eigenvalues": {"mean": scales.mean[k], "quartile_1": scales.low[k], "quartile_3": scales.high[k]},
                "note": scales.notes[k],
            }
            for k, sigma in enumerate(scales.bandwidth)
        ],
        "validity": {"points": len(checked.points), **checked.counts, "note": checked.note},
        "paths": [
            {
                "rows": path.rows,
                "length": path.length,
                "straight": path.straight,
                "connected": path.is_connected,
                "strayed_in_sigma": path.strayed,
                "reason": path.reason,
            }
            for path in content.paths.found
        ],
        "training": {
            "steps": [found.step for found in history.evaluations],
            "loss": [found.loss for found in history.evaluations],
            "mean_loss": [found.mean_loss for found in history.evaluations],
            "bandwidths": list(history.bandwidths),
            "gain": history.gain,
            "kernel_gain": list(history.kernel_gain),
            "stop_reason": history.stop_reason,
        },
        "origin": content.origin,
    }
