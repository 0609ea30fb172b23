"""Small pictures: one sheet with a picture of every point, and strips along paths."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from PIL import Image

from carre.report.content import ReportContent

# No side of a picture on the sheet is longer, and the sheet takes no more bytes than this, about.
_LARGEST_SIDE, _MOST_BYTES = 32, 1_200_000
_QUALITIES = (80, 60, 40, 25)
# Where half of the pixels are nearly empty, pictures are ink, and are drawn dark on white.
_EMPTY = 0.25


def strip_limits(content: ReportContent) -> tuple[float, float]:
    """Return the values that are drawn black and white, in this order: reversed for ink."""
    low, high = content.pixel_range
    channels = 1 if content.image_shape is None else content.image_shape[0]
    middle = float(np.median((content.points - low) / (high - low)))
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


def sprite(images: np.ndarray, limits: tuple[float, float]) -> dict[str, Any]:
    """Draw all pictures on one sheet, a square of them, small enough for a page.

    Args:
        images: Shape (n, C, H, W).
        limits: The values of black and white.

    Returns:
        The sheet as an address, its columns, and the size of a picture on it.
    """
    pixels = as_pixels(images, limits)
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
    kind, data = _encoded(sheet)
    return {
        "source": f"data:image/{kind};base64,{base64.b64encode(data).decode()}",
        "columns": columns,
        "width": size[0],
        "height": size[1],
    }


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


def film(rows: list[np.ndarray], limits: tuple[float, float]) -> bytes:
    """Draw rows of pictures (k, C, H, W) below one another, as a PNG with a line of one pixel between pictures."""
    lines = []
    for images in rows:
        pixels = as_pixels(images, limits)
        framed = np.pad(pixels, ((0, 0), (1, 1), (1, 1)) + ((0, 0),) * (pixels.ndim - 3), constant_values=160)
        lines.append(np.concatenate(list(framed), axis=1))
    return _saved(Image.fromarray(np.concatenate(lines, axis=0)), "png", optimize=True)
