"""Pictures: one sheet with a small picture of every point, and strips along paths."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from PIL import Image

from carre.report._content import PathFound, ReportContent
from carre.report._survey import Survey

# No side of a picture on the sheet is longer, and the sheet takes no more bytes than this, about.
_LARGEST_SIDE, _MOST_BYTES = 32, 1_200_000
_QUALITIES = (80, 60, 40, 25)
# What a direction makes darker and lighter.
_DARKER, _LIGHTER = (178, 24, 43), (33, 102, 172)
# Where half of the pixels are nearly empty, pictures are ink, and are drawn dark on white.
_EMPTY = 0.25


def limits_of(survey: Survey) -> tuple[float, float]:
    """Return the values that are drawn black and white, in this order: reversed for ink."""
    normalization, points = survey.geometry.normalization, survey.given.points
    if normalization is not None and len(normalization.mean) == 1:
        low, high = normalization.encode(np.array([0.0, 1.0])).tolist()
    else:
        some = points[:: max(1, len(points) // 1000)]
        low, high = float(some.min()), max(float(some.max()), float(some.min()) + 1e-12)
    channels = 1 if survey.given.image_shape is None else survey.given.image_shape[0]
    middle = float(np.median((survey.array - low) / (high - low)))
    return (high, low) if channels == 1 and middle < _EMPTY else (low, high)


def as_pixels(images: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Turn pictures (..., C, H, W) into bytes (..., H, W, 3), or (..., H, W) where they have no color.

    Example:
        >>> as_pixels(np.array([[[[0.0, 1.0]]]]), (0.0, 1.0)).tolist()
        [[[0, 255]]]
    """
    black, white = limits
    pixels = ((images - black) / (white - black) * 255).round().clip(0, 255).astype(np.uint8)
    if pixels.shape[-3] == 3:
        return np.asarray(np.moveaxis(pixels, -3, -1))
    return np.asarray(pixels[..., 0, :, :] if pixels.shape[-3] == 1 else pixels.mean(-3).astype(np.uint8))


def sprite(survey: Survey) -> dict[str, Any]:
    """Draw all pictures on one sheet, a square of them, small enough for a page.

    Returns:
        The sheet as an address, its columns, and the size of a picture on it.
    """
    pixels = as_pixels(survey.as_pictures(survey.array), limits_of(survey))
    height, width = pixels.shape[1:3]
    factor = min(1.0, _LARGEST_SIDE / max(height, width))
    size = max(1, round(width * factor)), max(1, round(height * factor))
    columns = math.ceil(math.sqrt(len(pixels)))
    mode = "RGB" if pixels.ndim == 4 else "L"
    sheet = Image.new(mode, (columns * size[0], math.ceil(len(pixels) / columns) * size[1]), color="white")
    for place, picture in enumerate(pixels):
        small = Image.fromarray(picture)
        small = small if factor == 1.0 else small.resize(size, Image.Resampling.BOX)
        sheet.paste(small, (place % columns * size[0], place // columns * size[1]))
    return {"source": _as_address(*_encoded(sheet)), "columns": columns, "width": size[0], "height": size[1]}


def _encoded(sheet: Image.Image) -> tuple[str, bytes]:
    """Encode without loss where that is small, else as well as the bytes allow."""
    # Sixteen grays are enough to see what a picture shows.
    shown = sheet.quantize(16) if sheet.mode == "L" else sheet
    data = _saved(shown, "png", optimize=True)
    if len(data) <= _MOST_BYTES:
        return "png", data
    for quality in _QUALITIES:
        data = _saved(sheet, "jpeg", quality=quality)
        if len(data) <= _MOST_BYTES:
            break
    return "jpeg", data


def _saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return buffer.getvalue()


def _as_address(kind: str, data: bytes) -> str:
    """Return a picture as an address that holds it."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def tangent_picture(content: ReportContent, place: int) -> str:
    """Draw a picture and, beside it, its leading directions, and return the address."""
    found, survey = content.directions, content.survey
    black, white = limits_of(survey)
    vectors = survey.as_pictures(found.vectors)
    # A few strong pixels would leave all others pale.
    share = (vectors[place] / (np.quantile(np.abs(vectors), 0.99) or 1.0)).clip(-1, 1)
    picture = as_pixels(survey.as_pictures(survey.array[found.points[place]]), (black, white))
    if picture.ndim == 3:
        changes = np.moveaxis(127.5 + 127.5 * share, 1, -1)
    else:
        picture = np.repeat(picture[..., None], 3, axis=-1)
        darker = share.mean(1)[..., None] * np.sign(black - white)
        strength = np.abs(darker)
        changes = 255 * (1 - strength) + strength * np.where(darker > 0, _DARKER, _LIGHTER)
    return _side_by_side(np.concatenate([picture[None], changes.round().astype(np.uint8)]))


def _side_by_side(tiles: np.ndarray) -> str:
    """Draw pictures (n, H, W, …) beside one another, a line of one pixel between them, and return the address."""
    frame = ((0, 0), (1, 1), (1, 1), (0, 0))[: tiles.ndim]
    row = np.concatenate(np.pad(tiles, frame, constant_values=160), axis=1)
    return _as_address("png", _saved(Image.fromarray(row), "png", optimize=True))


def path_picture(survey: Survey, path: PathFound) -> str:
    """Draw the pictures along a path above those along the straight line, and return the address."""
    times = np.linspace(0, 1, len(path.nodes))[:, None]
    straight = path.nodes[0] * (1 - times) + path.nodes[-1] * times
    rows = as_pixels(survey.as_pictures(np.stack([path.nodes, straight])), limits_of(survey))
    line = np.full_like(rows[0][:, :2], 160)
    return _side_by_side(np.concatenate([rows[0], line, rows[1]], axis=1))
