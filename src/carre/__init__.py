"""Learn the Riemannian geometry of a dataset from samples, and use it.

Start with `MetricMatching`. The parts it is made of are in `carre.geometry`, `carre.neighbors`, `carre.manifolds`,
`carre.matching`, `carre.networks`, `carre.training`, `carre.fields`, `carre.toolkit`, `carre.evaluation`,
`carre.datasets` and `carre.persistence`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from carre.fields import ExactField, KernelField, MetricField, NeuralField, ScoreField, SteinField
from carre.geometry import ComplementMetric, LowRankMetric, Spectrum, principal_angles, projector_distance
from carre.networks import UNetSettings
from carre.toolkit import DimensionEstimate, Path
from carre.training import LinearPhaseWarning, TrainingDivergedError

if TYPE_CHECKING:
    from carre.datasets import ImageDataset, Normalization, load_cifar10, load_images, load_mnist
    from carre.estimator import MetricMatching
    from carre.function_matching import LearnedCarreDuChamp, learn_carre_du_champ
    from carre.persistence import LoadError, pretrained_models

__version__ = "0.1.0"

__all__ = [
    "ComplementMetric",
    "DimensionEstimate",
    "ExactField",
    "ImageDataset",
    "KernelField",
    "LearnedCarreDuChamp",
    "LinearPhaseWarning",
    "LoadError",
    "LowRankMetric",
    "MetricField",
    "MetricMatching",
    "NeuralField",
    "Normalization",
    "Path",
    "ScoreField",
    "Spectrum",
    "SteinField",
    "TrainingDivergedError",
    "UNetSettings",
    "learn_carre_du_champ",
    "load_cifar10",
    "load_images",
    "load_mnist",
    "pretrained_models",
    "principal_angles",
    "projector_distance",
]

# Imported when they are asked for: scikit-learn takes a second, and only the estimator needs it.
_WHEN_ASKED = {
    "carre.datasets": ("ImageDataset", "Normalization", "load_cifar10", "load_images", "load_mnist"),
    "carre.estimator": ("MetricMatching",),
    "carre.function_matching": ("LearnedCarreDuChamp", "learn_carre_du_champ"),
    "carre.persistence": ("LoadError", "pretrained_models"),
}


def __getattr__(name: str) -> Any:
    for module, names in _WHEN_ASKED.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'carre' has no attribute {name!r}")
