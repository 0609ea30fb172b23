"""Learn the Riemannian geometry of a dataset from samples, and use it.

Start with `MetricMatching`. The parts it is made of are in `carre.geometry`, `carre.neighbors`, `carre.manifolds`,
`carre.matching`, `carre.networks`, `carre.training`, `carre.fields`, `carre.toolkit` and
`carre.evaluation`.
"""

from typing import TYPE_CHECKING, Any

from carre.fields import ExactField, KernelField, MetricField, NeuralField, ScoreField, SteinField
from carre.geometry import ComplementMetric, LowRankMetric, Spectrum, principal_angles, projector_distance
from carre.training import LinearPhaseWarning, TrainingDivergedError

if TYPE_CHECKING:
    from carre.estimator import MetricMatching

__version__ = "0.1.0"

__all__ = [
    "ComplementMetric",
    "ExactField",
    "KernelField",
    "LinearPhaseWarning",
    "LowRankMetric",
    "MetricField",
    "MetricMatching",
    "NeuralField",
    "ScoreField",
    "Spectrum",
    "SteinField",
    "TrainingDivergedError",
    "principal_angles",
    "projector_distance",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes a second to import; only the estimator needs it.
    if name == "MetricMatching":
        from carre.estimator import MetricMatching  # noqa: PLC0415

        return MetricMatching
    raise AttributeError(f"module 'carre' has no attribute {name!r}")
