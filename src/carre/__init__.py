"""Learn the Riemannian geometry of a dataset from samples, and use it.

Start with `fit`, which returns a `Geometry`; `MetricMatching` is the same for scikit-learn. The parts they are made of
are rooms of their own: `carre.metric`, `carre.fields`, `carre.toolkit`, `carre.manifolds`, `carre.matching`,
`carre.networks`, `carre.training`, `carre.neighbors`, `carre.data`, `carre.storage`, `carre.plots`, `carre.report`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carre.boundary import ArgumentError
    from carre.data import ImageDataset, Normalization, Table, load_cifar10, load_images, load_mnist, load_table
    from carre.estimator import MetricMatching
    from carre.fields import ExactField, IsotropicField, KernelField, MetricField, NeuralField, ScoreField, SteinField
    from carre.fitting import fit
    from carre.function_matching import LearnedCarreDuChamp, learn_carre_du_champ
    from carre.geometry import Geometry
    from carre.local import Local
    from carre.mapping import RowMapper, map_rows
    from carre.metric import ComplementMetric, LowRankMetric, Metric, Spectrum, principal_angles, projector_distance
    from carre.networks import DiffusionDenoiser, UNetSettings
    from carre.report import write_report
    from carre.storage import LoadError, export, load, pretrained_models, push_to_hub, save
    from carre.toolkit import DimensionEstimate, EnergyGeodesic, Flow, Geodesic, Path, Straight, Thread
    from carre.training import CheckpointError, LinearPhaseWarning, TrainingDivergedError

__version__ = "0.2.0"

# Imported when they are asked for: torch takes two seconds and scikit-learn another one, for which `carre --help`
# should not wait.
_WHEN_ASKED = {
    "boundary": ("ArgumentError",),
    "data": ("ImageDataset", "Normalization", "Table", "load_cifar10", "load_images", "load_mnist", "load_table"),
    "estimator": ("MetricMatching",),
    "fields": (
        *("ExactField", "IsotropicField", "KernelField", "MetricField", "NeuralField", "ScoreField", "SteinField"),
    ),
    "fitting": ("fit",),
    "function_matching": ("LearnedCarreDuChamp", "learn_carre_du_champ"),
    "geometry": ("Geometry",),
    "local": ("Local",),
    "mapping": ("RowMapper", "map_rows"),
    "metric": ("ComplementMetric", "LowRankMetric", "Metric", "Spectrum", "principal_angles", "projector_distance"),
    "networks": ("DiffusionDenoiser", "UNetSettings"),
    "report": ("write_report",),
    "storage": ("LoadError", "export", "load", "pretrained_models", "push_to_hub", "save"),
    "toolkit": ("DimensionEstimate", "EnergyGeodesic", "Flow", "Geodesic", "Path", "Straight", "Thread"),
    "training": ("CheckpointError", "LinearPhaseWarning", "TrainingDivergedError"),
}
_ROOMS = (
    *("data", "fields", "mapping", "metric", "manifolds", "matching", "neighbors", "networks"),
    *("plots", "report", "storage", "toolkit", "training"),
)
_HOMES = {name: room for room, names in _WHEN_ASKED.items() for name in names}
__all__ = [
    "ArgumentError",
    "CheckpointError",
    "ComplementMetric",
    "DiffusionDenoiser",
    "DimensionEstimate",
    "EnergyGeodesic",
    "ExactField",
    "Flow",
    "Geodesic",
    "Geometry",
    "ImageDataset",
    "IsotropicField",
    "KernelField",
    "LearnedCarreDuChamp",
    "LinearPhaseWarning",
    "LoadError",
    "Local",
    "LowRankMetric",
    "Metric",
    "MetricField",
    "MetricMatching",
    "NeuralField",
    "Normalization",
    "Path",
    "RowMapper",
    "ScoreField",
    "Spectrum",
    "SteinField",
    "Straight",
    "Table",
    "Thread",
    "TrainingDivergedError",
    "UNetSettings",
    "export",
    "fit",
    "learn_carre_du_champ",
    "load",
    "load_cifar10",
    "load_images",
    "load_mnist",
    "load_table",
    "map_rows",
    "pretrained_models",
    "principal_angles",
    "projector_distance",
    "push_to_hub",
    "save",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"carre.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"carre.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'carre' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
