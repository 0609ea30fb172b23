"""What is measured: models and images, loaded and checked before anything is measured."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import carre
from carre.data import ImageDataset, load_cifar10, load_mnist
from carre.fields import MetricField
from experiments.measures import inception_features, wavelet_features
from experiments.measures.command import naming
from experiments.stability.blobs import BlobField, Blobs, draw_blobs
from experiments.stability.methods import UNCENTERED
from experiments.stability.settings import CIFAR10_STABILITY, MNIST_STABILITY, QUICK_STABILITY, StabilitySettings

READERS = {"mnist": load_mnist, "cifar10": load_cifar10}
_PRESETS = {"mnist": MNIST_STABILITY, "cifar10": CIFAR10_STABILITY}
_OPTIONS = {
    "n_images": "--images",
    "n_draws": "--draws",
    "bandwidths": "--sigmas",
    "radii": "--radii",
    "seed": "--seed",
}
_SPLIT = (
    "Settings were searched on images of the first half of the test split, and methods compared on images of the "
    "second half, after a seeded permutation: neither took part in training."
)
# Half a minute on a processor core.
_N_TRAIN, _RANGE = 3000, (0.5, 4.0)
_TINY: dict[str, Any] = {"width": 128, "n_blocks": 2, "batch_size": 128, "max_steps": 1000, "learning_rate": 5e-3}


@dataclass(frozen=True, eq=False)
class Part:
    """One dataset with its model, ready to be measured.

    Attributes:
        name: Its key in the results.
        field: The learned metric.
        validation: Images that settings are searched on.
        test: Images that methods are compared on.
        features: What images are described by.
        settings: Radii, grids and sizes.
        source: Says what was measured.
        uncentered: A metric that was learned uncentered.
        extra: More fields, by name.
    """

    name: str
    field: MetricField
    validation: Tensor
    test: Tensor
    features: Callable[[Any], Any]
    settings: StabilitySettings
    source: Mapping[str, Any]
    uncentered: MetricField | None = None
    extra: Mapping[str, MetricField] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What a person asked for of one dataset.

    Attributes:
        name: "mnist", "cifar10" or "synthetic".
        folder: Where its files lie.
        model: The fitted geometry: a folder, or a shipped name.
        uncentered: The folder of one that was fitted uncentered.
        inception: The file of the Inception network; None takes wavelets.
        changes: Settings by name; those that are None were not given.
        device: Where to compute.
        mixed: Whether networks round to bfloat16.
    """

    name: str
    folder: Path | None = None
    model: str | None = None
    uncentered: str | None = None
    inception: Path | None = None
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    device: str = "cpu"
    mixed: bool = False

    def prepare(self) -> Part:
        """Load and check everything; train the tiny network, if it is that."""
        if self.folder is None or self.model is None:
            return synthetic_part(self.changes, self.device)
        return self._loaded(self.folder, self.model)

    def _loaded(self, folder: Path, model: str) -> Part:
        geometry = self._geometry(model, f"--{self.name}-model")
        if not geometry.is_centered:
            raise ValueError(
                f"--{self.name}-model must have a denoiser, which all methods share; {model} was fitted with "
                f"method='uncentered'. Give it as --{self.name}-uncentered, beside one that was fitted with 'joint'"
            )
        other = None if self.uncentered is None else self._geometry(self.uncentered, f"--{self.name}-uncentered")
        if other is not None and other.is_centered:
            raise ValueError(
                f"--{self.name}-uncentered must be fitted with method='uncentered'; {self.uncentered} is not"
            )
        dataset = self._dataset(folder, geometry, other)
        settings = self._settings(geometry, other)
        validation, test = split_images(dataset, settings, self.device)
        features, called = self._features(dataset)
        source = {
            "data": dataset.name,
            "split": _SPLIT,
            "model": model_source(model),
            "features": called,
            "precision": "networks in bfloat16"
            if self.mixed
            else "float32, with torch's rounding of convolutions (TF32 on a GPU)",
        }
        if self.uncentered is not None:
            source[UNCENTERED] = model_source(self.uncentered)
        second = None if other is None else self._field(other)
        return Part(self.name, self._field(geometry), validation, test, features, settings, source, second)

    def _geometry(self, model: str, option: str) -> carre.Geometry:
        with naming(name_or_folder=option):
            return carre.load(_expanded(model), device=self.device)

    def _field(self, geometry: carre.Geometry) -> MetricField:
        return geometry.field.with_mixed_precision() if self.mixed else geometry.field

    def _dataset(self, folder: Path, *geometries: carre.Geometry | None) -> ImageDataset:
        """Read the test images, normalized as for the fit."""
        if not folder.expanduser().exists():
            raise FileNotFoundError(f"--{self.name} must exist; there is no {folder}")
        with naming(folder=f"--{self.name}"):
            dataset = READERS[self.name](folder, "test")
        for option, geometry in zip(("model", "uncentered"), geometries, strict=True):
            if geometry is None:
                continue
            if geometry.sample_shape != dataset.sample_shape:
                raise ValueError(
                    f"--{self.name}-{option} must be a geometry of images of shape {_shape(dataset.sample_shape)}, as "
                    f"{dataset.name} has; it is one of {_shape(geometry.sample_shape)}"
                )
            given = geometry.normalization
            if option == "model" and given is not None:
                dataset = dataclasses.replace(dataset, normalization=given)
            elif given not in (None, dataset.normalization):
                raise ValueError(
                    f"--{self.name}-uncentered must be fitted on images normalized as those of --{self.name}-model, by "
                    f"{dataset.normalization}; got {given}"
                )
        return dataset

    def _settings(self, *geometries: carre.Geometry | None) -> StabilitySettings:
        """Take the settings for the dataset, with what was given, at σ that every model knows."""
        settings = changed(_PRESETS[self.name], self.changes)
        with naming(**_OPTIONS):
            for geometry in geometries:
                settings = settings if geometry is None else settings.within(*geometry.bandwidth_range)
        return settings

    def _features(self, dataset: ImageDataset) -> tuple[Callable[[Any], Any], str]:
        if self.inception is None:
            return wavelet_features(dataset.sample_shape), "wavelets, built in"
        in_options = {
            "there is no file or folder": "--inception must exist; there is no",
            "wavelet_features needs no file": "without --inception wavelets are taken",
            ". Pass verify=False if it is meant to be another network": "",
        }
        with naming(in_options, path="--inception"):
            # The shifts are far larger than what TF32 rounds away, and all methods are rounded alike.
            features = inception_features(
                self.inception, normalization=dataset.normalization, device=self.device, batch_size=256, fast=True
            )
        return features, "Inception of the FID"


def changed(settings: StabilitySettings, changes: Mapping[str, Any]) -> StabilitySettings:
    """Apply what was given; fewer images for the comparison mean no more for anything else."""
    given = {name: value for name, value in changes.items() if value is not None}
    with naming(**_OPTIONS):
        settings = dataclasses.replace(settings, **given)
    return dataclasses.replace(settings, n_validation=min(settings.n_validation, settings.n_images))


def split_images(dataset: ImageDataset, settings: StabilitySettings, device: str) -> tuple[Tensor, Tensor]:
    """Draw validation images from one half of the test images, test images from the other."""
    half = len(dataset) // 2
    if max(settings.n_images, settings.n_validation) > half:
        raise ValueError(
            f"--images must be at most {half:,}, half of {dataset.name}: settings are searched on the other half; "
            f"got {settings.n_images:,}"
        )
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(settings.seed))
    parts = (order[: settings.n_validation], order[half : half + settings.n_images])
    validation, test = (torch.as_tensor(dataset[part].images, device=device) for part in parts)
    return validation, test


def synthetic_part(changes: Mapping[str, Any], device: str) -> Part:
    """Train a tiny network on blobs of light, whose true tangent spaces are known."""
    settings = changed(QUICK_STABILITY, changes)
    with naming(**_OPTIONS):
        settings = settings.within(*_RANGE)
    generator = torch.Generator().manual_seed(settings.seed)
    counts = (_N_TRAIN, settings.n_validation, settings.n_images)
    train, validation, test = (draw_blobs(n, generator=generator) for n in counts)
    geometry = carre.fit(
        train.images.flatten(1).numpy(),
        rank=settings.rank,
        bandwidth=1.0,
        bandwidth_range=_RANGE,
        random_state=settings.seed,
        device=device,
        **_TINY,
    )
    seen = Blobs(*(torch.cat([getattr(part, name) for part in (validation, test)]) for name in ("images", "tangents")))
    shape: Any = tuple(train.images.shape[1:])
    return Part(
        "synthetic",
        geometry.field,
        validation.images.to(device),
        test.images.to(device),
        wavelet_features(shape),
        settings,
        {
            "data": "synthetic blobs of light",
            "model": f"a tiny network, {_N_TRAIN} samples, {_TINY}",
            "features": "wavelets, built in",
        },
        extra={"true tangent space": BlobField(seen)},
    )


def model_source(model: str) -> str:
    """Name a model so that another one is told apart: its folder, and the checksum of its weights."""
    is_shipped = model in carre.pretrained_models()
    folder = Path(carre.__file__).parent / "pretrained" / model if is_shipped else Path(_expanded(model))
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return f"{folder.resolve().name} ({digest.hexdigest()[:16]})"


def _expanded(model: str) -> str | Path:
    """Find the home of a path; a shipped name is none."""
    return Path(model).expanduser() if "~" in model else model


def _shape(shape: tuple[int, int, int] | None) -> str:
    return "points" if shape is None else " × ".join(map(str, shape))
