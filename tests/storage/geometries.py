"""Geometries that were never fitted, so that it takes a moment to make one: random weights, and everything beside."""

import dataclasses
import math

import numpy as np
import torch

from carre.data import Normalization
from carre.fields import NeuralField
from carre.geometry import Geometry
from carre.metric import AffineFrame
from carre.networks import UNetSettings, build_image_model, build_model
from carre.toolkit import ScaleProfile
from carre.training import Evaluation, History

DIM, HULL, RANK = 5, 3, 4
IMAGE = (1, 8, 8)


def randomized(model):
    """Fill every parameter with noise: heads that start at zero would hide what is lost."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def frame(*, reduced=True, center=100.0):
    generator = torch.Generator().manual_seed(1)
    basis, _ = torch.linalg.qr(torch.randn(DIM, HULL, generator=generator, dtype=torch.float64))
    middle = center + torch.randn(DIM, generator=generator, dtype=torch.float64)
    # By rows, as in a fit: how products are rounded depends on it.
    return AffineFrame(middle, 1 / 3, basis.contiguous() if reduced else None)


def history(*, with_mean=True):
    loss = 0.1 if with_mean else math.nan
    looks = [Evaluation(10 * i, i / 7, 1 / i, 1 / 3, loss, (0.3, 0.2)) for i in (1, 2, 3)]
    return History((0.1, 1.0), (1 / 3, 0.3), looks, "budget spent", 1.25, 30, 1)


def profile():
    grid, rng = np.geomspace(0.1, 1, 4), np.random.default_rng(0)
    gap, calibration = rng.random(4), np.array([0.1, np.nan, 0.2, 0.3])
    return ScaleProfile(grid, rng.random((4, RANK)).astype(np.float32), rng.random(4), gap, calibration, 2, "a reason")


def tiny_geometry(model=None, **changes):
    """A geometry in five coordinates whose data span three; what it holds is like that of a fit."""
    field = changes.pop("field", None)
    if field is None:
        around = frame()
        model = randomized(build_model(HULL, RANK, width=16, n_blocks=2, spread=0.7)) if model is None else model
        field = NeuralField(model, around, ridge=0.01)
    landmarks = 100 + torch.randn(40, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    geometry = Geometry(
        field,
        bandwidth=0.3,
        bandwidth_range=(0.1, 1 / 3),
        landmarks=landmarks,
        rank=RANK,
        supported_from=0.07,
        history=history(),
        scale_profile=profile(),
        feature_names=("a", "b", "ç", "d", "e"),
        parameters={"rank": None, "bandwidth_range": (0.1, np.float64(1 / 3)), "max_seconds": math.inf},
    )
    return dataclasses.replace(geometry, **changes)


def image_geometry():
    """A geometry of images, with U-Nets."""
    settings = UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1, attention=(1,))
    model = randomized(build_image_model(IMAGE, RANK, spread=0.9, settings=settings))
    field = NeuralField(model, AffineFrame(torch.zeros(64, dtype=torch.float64), 0.5))
    return tiny_geometry(
        field=field,
        landmarks=torch.randn(40, 64, generator=torch.Generator().manual_seed(3)),
        feature_names=None,
        sample_shape=IMAGE,
        normalization=Normalization((0.1307,), 0.3081),
        parameters={"network": settings},
    )


def answers(geometry, dtype=torch.float32):
    """What a geometry says at its landmarks: the factor of the metric and the mean."""
    points = geometry.landmarks.to(dtype)
    return geometry.field.metric(points, 0.2).factor, geometry.field.denoise(points, 0.2)
