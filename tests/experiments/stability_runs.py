"""A small run of the stability experiment, on blobs of light and a field that is known in closed form."""

import torch

from carre import ExactField
from carre.manifolds import FiniteSet
from experiments.measures import wavelet_features
from experiments.stability.blobs import BlobField, Blobs, draw_blobs
from experiments.stability.comparison import run_stability
from experiments.stability.settings import StabilitySettings

TINY = StabilitySettings(
    radii=(0.5, 2.0),
    bandwidths=(0.4, 0.8),
    strengths=(1.0, 100.0),
    rank=4,
    n_validation=6,
    n_validation_draws=2,
    n_images=8,
    n_draws=2,
    n_full_validation=3,
    n_full=5,
    batch_size=4,
    full_batch_size=2,
)
SIDE = 9
FEATURES = wavelet_features((1, SIDE, SIDE), n_scales=2)
NAMES = [
    "random directions",
    "metric matching",
    "Stein score",
    "score Jacobian, randomized",
    "true tangent space",
    "score Jacobian, full",
]


def blobs(n, seed=0):
    return draw_blobs(n, side=SIDE, widths=(1.2, 2.0), generator=torch.Generator().manual_seed(seed))


def field():
    """The exact field of a few samples: a denoiser and a metric without training."""
    return ExactField(FiniteSet(blobs(60).images.flatten(1)))


def run(settings=TINY, **options):
    validation, test = blobs(8, seed=1), blobs(10, seed=2)
    seen = Blobs(torch.cat([validation.images, test.images]), torch.cat([validation.tangents, test.tangents]))
    given = {"extra": {"true tangent space": BlobField(seen)}, "field": field(), "features": FEATURES} | options
    main, features = given.pop("field"), given.pop("features")
    return run_stability(main, validation.images, test.images, features, settings, **given)
