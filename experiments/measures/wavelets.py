"""Features without training: wavelets, moduli and averages, twice."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from carre.boundary import as_images, is_integer

_LEAST_SIDE = 8
# Complex numbers that are worked on at once: 64 MiB in single precision.
_WORKED_ON = 2**23


def wavelet_features(
    sample_shape: tuple[int, int, int], *, n_orientations: int = 4, n_scales: int | None = None
) -> WaveletFeatures:
    """Make features of images from a fixed network of two layers of wavelets, a scattering transform [Mallat 2012].

    They stand in for those of a trained network where none is at hand. Each layer filters by oriented wavelets of
    several octaves and takes the modulus, the second one only by wavelets coarser than the first; local averages of the
    moduli of both layers are the features. They see edges and textures, change little when an image is deformed a
    little, and:

    - ‖Φ(x) − Φ(y)‖ ≤ ‖x − y‖, whatever the size of the images and the number of filters;
    - Φ(x + c) = Φ(x) for a constant c in any channel: averages of the image itself are no features;
    - Φ(cx) = |c|Φ(x): they have the units of the images.

    Images are continued by reflection at their borders. Nothing is random.

    Args:
        sample_shape: Channels, height and width of the images; sides of at least 8.
        n_orientations: Orientations of the wavelets, at least 2.
        n_scales: Octaves, from the finest details on. None for as many as leave averages over half of the shorter side.

    Example:
        >>> features = wavelet_features((3, 32, 32))
        >>> features
        wavelet_features((3, 32, 32), n_orientations=4, n_scales=4)
        >>> images = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        >>> features(images).shape
        torch.Size([5, 5376])
    """
    shape = tuple(sample_shape) if isinstance(sample_shape, (tuple, list)) else ()
    if len(shape) != 3 or not all(map(is_integer, shape)) or shape[0] < 1 or min(shape[1:]) < _LEAST_SIDE:
        raise ValueError(
            f"sample_shape must be (channels, height, width) with sides of at least {_LEAST_SIDE}; got {sample_shape}"
        )
    if not is_integer(n_orientations) or n_orientations < 2:
        raise ValueError(f"n_orientations must be an integer of at least 2; got {n_orientations!r}")
    octaves = math.log2(min(shape[1:]))
    n_scales = round(octaves) - 1 if n_scales is None else n_scales
    if not is_integer(n_scales) or not 2 <= n_scales <= octaves:
        raise ValueError(
            f"n_scales must be an integer between 2 and {math.floor(octaves)} for images of this size; got {n_scales!r}"
        )
    return WaveletFeatures(shape, int(n_orientations), int(n_scales))


class WaveletFeatures:
    """Images → averages of moduli of wavelets; see `wavelet_features`.

    An image is reflected to twice its height and width, where its symmetric continuation is periodic. Level j holds
    what has frequencies below 2π/2ʲ, in cells of about 2ʲ⁻¹ pixels: a spectrum is cut out, never aliased. All
    transforms are isometries, the squared filters of all levels add to 1 at every frequency, and a modulus brings
    points no further apart: hence no distance grows.
    """

    def __init__(self, sample_shape: tuple[int, int, int], n_orientations: int, n_scales: int) -> None:
        self.sample_shape, self.n_orientations, self.n_scales = sample_shape, n_orientations, n_scales
        self._filters: dict[tuple[int, int, torch.dtype, torch.device], Tensor] = {}

    def __repr__(self) -> str:
        return f"wavelet_features({self.sample_shape}, n_orientations={self.n_orientations}, n_scales={self.n_scales})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_filters": {}}

    def __call__(self, images: Any) -> Any:
        """Compute features of shape (n, k), in the dtype of the images and as an array where they are one."""
        given = as_images(images, sample_shape=self.sample_shape)
        at_once = max(1, _WORKED_ON // (4 * math.prod(self.sample_shape) * self.n_orientations**2))
        parts = torch.split(given.tensor.reshape(-1, *self.sample_shape), at_once)
        return given.restore(torch.cat([self._transform(part) for part in parts]))

    def _transform(self, images: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n k"]:
        mirrored = torch.cat([images, images.flip(-1)], -1)
        spectrum = _spectrum(torch.cat([mirrored, mirrored.flip(-2)], -2))
        features = []
        for first in range(self.n_scales):
            edges = _spectrum(self._filtered(spectrum, 0, first).abs())
            features.append(self._averages(edges, first))
            for second in range(first + 1, self.n_scales):
                textures = _spectrum(self._filtered(edges, first, second).abs())
                features.append(self._averages(textures, second))
        return torch.cat([feature.flatten(1) for feature in features], 1)

    def _averages(self, spectrum: Complex[Tensor, "*n h w"], level: int) -> Float[Tensor, "*n a b"]:
        """Average locally, at the cells of the coarsest level within the image."""
        height, width = self._cells(self.n_scales)
        return self._filtered(spectrum, level, self.n_scales).real[..., 0, :height, :width]

    def _filtered(
        self, spectrum: Complex[Tensor, "*n h w"], source: int, target: int
    ) -> Complex[Tensor, "*n filters a b"]:
        """Apply the filters of a level to a spectrum of a finer one."""
        key = (source, target, spectrum.dtype, spectrum.device)
        if key not in self._filters:
            self._filters[key] = self._make_filters(source, target).to(spectrum.device, spectrum.dtype)
        lowest = _lowest(spectrum, self._cells(target)).unsqueeze(-3)
        return cast(Tensor, torch.fft.ifft2(lowest * self._filters[key], norm="ortho"))

    def _make_filters(self, source: int, target: int) -> Complex[Tensor, "filters h w"]:
        """Sample wavelets, or the average at the coarsest level, between the centers of the cells of two levels."""
        down, right = (
            torch.fft.fftfreq(2 * cells, 0.5 / cells, dtype=torch.float64) * math.pi / side
            for cells, side in zip(self._cells(target), self.sample_shape[1:], strict=True)
        )
        moves = [
            (side / new - side / old) / 2
            for side, new, old in zip(self.sample_shape[1:], self._cells(target), self._cells(source), strict=True)
        ]
        phase = torch.exp(1j * (moves[0] * down[:, None] + moves[1] * right))
        radius = torch.hypot(down[:, None], right)
        if target == self.n_scales:
            return (_octave(radius, target - 1, 0).mul(math.pi / 2).cos() * phase)[None]
        # The finest wavelets have also all that is beyond them.
        radial = _octave(radius, target, 1 if target > 0 else 0).mul(math.pi / 2).sin()
        return radial * _angular(torch.atan2(down[:, None], right), self.n_orientations) * phase

    def _cells(self, level: int) -> tuple[int, int]:
        """Return how many cells a level has along the height and the width of an image."""
        _, height, width = self.sample_shape
        size = 2 ** max(level - 1, 0)
        return math.ceil(height / size), math.ceil(width / size)


def _octave(radius: Tensor, level: int, top: int) -> Tensor:
    """Return by how many octaves a frequency lies above the lowest one of a level: 1 at its peak, at most 1 + top."""
    return (radius / (0.75 * math.pi * 2.0**-level)).log2().clamp(-1, top) + 1


def _angular(angle: Float[Tensor, "h w"], n_orientations: int) -> Float[Tensor, "orientations h w"]:
    """Give every orientation a share of the half plane around it: their squares add to 2 over opposite frequencies."""
    power = n_orientations - 1
    orientations = math.pi * torch.arange(n_orientations, dtype=angle.dtype)[:, None, None] / n_orientations
    total = n_orientations * math.comb(2 * power, power) / 4**power
    return math.sqrt(2 / total) * torch.cos(angle - orientations).clamp_min(0) ** power


def _spectrum(maps: Float[Tensor, "*n h w"]) -> Complex[Tensor, "*n h w"]:
    return cast(Tensor, torch.fft.fft2(maps, norm="ortho"))


def _lowest(spectrum: Complex[Tensor, "*n h w"], cells: tuple[int, int]) -> Complex[Tensor, "*n a b"]:
    """Cut out the frequencies that a level of so many cells can hold."""
    for axis, kept in zip((-2, -1), cells, strict=True):
        size = spectrum.shape[axis]
        if 2 * kept < size:
            spectrum = torch.cat([spectrum.narrow(axis, 0, kept), spectrum.narrow(axis, size - kept, kept)], axis)
    return spectrum
