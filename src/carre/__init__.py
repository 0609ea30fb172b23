"""Learn the Riemannian geometry of a dataset from samples, and use it.

Start with `MetricMatching`. The parts it is made of are in `carre.metric`, `carre.neighbors`, `carre.manifolds`,
`carre.matching`, `carre.networks`, `carre.training`, `carre.fields`, `carre.toolkit`, `carre.evaluation`,
`carre.data`, `carre.storage` and `carre.report`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carre.data import ImageDataset, Normalization, Table, load_cifar10, load_images, load_mnist, load_table
    from carre.estimator import MetricMatching
    from carre.fields import ExactField, IsotropicField, KernelField, MetricField, NeuralField, ScoreField, SteinField
    from carre.function_matching import LearnedCarreDuChamp, learn_carre_du_champ
    from carre.metric import ComplementMetric, LowRankMetric, Spectrum, principal_angles, projector_distance
    from carre.networks import UNetSettings
    from carre.storage import LoadError, pretrained_models
    from carre.toolkit import DimensionEstimate, Path
    from carre.training import CheckpointError, LinearPhaseWarning, TrainingDivergedError

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "ComplementMetric",
    "DimensionEstimate",
    "ExactField",
    "ImageDataset",
    "IsotropicField",
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
    "Table",
    "TrainingDivergedError",
    "UNetSettings",
    "learn_carre_du_champ",
    "load_cifar10",
    "load_images",
    "load_mnist",
    "load_table",
    "pretrained_models",
    "principal_angles",
    "projector_distance",
]

# Imported when they are asked for: torch takes two seconds and scikit-learn another one, for which `carre --help`
# should not wait.
_WHEN_ASKED = {
    "carre.data": (
        *("ImageDataset", "Normalization", "Table"),
        *("load_cifar10", "load_images", "load_mnist", "load_table"),
    ),
    "carre.estimator": ("MetricMatching",),
    "carre.fields": (
        *("ExactField", "IsotropicField", "KernelField", "MetricField", "NeuralField", "ScoreField", "SteinField"),
    ),
    "carre.function_matching": ("LearnedCarreDuChamp", "learn_carre_du_champ"),
    "carre.metric": ("ComplementMetric", "LowRankMetric", "Spectrum", "principal_angles", "projector_distance"),
    "carre.networks": ("UNetSettings",),
    "carre.storage": ("LoadError", "pretrained_models"),
    "carre.toolkit": ("DimensionEstimate", "Path"),
    "carre.training": ("CheckpointError", "LinearPhaseWarning", "TrainingDivergedError"),
}
_ROOMS = (
    *("data", "evaluation", "fields", "metric", "manifolds", "matching", "neighbors", "networks"),
    *("storage", "report", "toolkit", "training"),
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"carre.{name}")
    for module, names in _WHEN_ASKED.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'carre' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
