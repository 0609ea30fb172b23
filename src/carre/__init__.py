"""Learn the Riemannian geometry of a dataset from samples, and use it.

Start with `MetricMatching`. The parts it is made of are in `carre.geometry`, `carre.neighbors`, `carre.manifolds`,
`carre.matching`, `carre.networks`, `carre.training`, `carre.fields`, `carre.toolkit` and
`carre.evaluation`.
"""

from typing import TYPE_CHECKING, Any

from carre.fields import ExactField, KernelField, MetricField, NeuralField, ScoreField, SteinField
from carre.geometry import ComplementMetric, LowRankMetric, Spectrum, principal_angles, projector_distance
from carre.toolkit import DimensionEstimate, Path
from carre.training import LinearPhaseWarning, TrainingDivergedError

if TYPE_CHECKING:
    from carre.estimator import MetricMatching
    from carre.function_matching import LearnedCarreDuChamp, learn_carre_du_champ

__version__ = "0.1.0"

__all__ = [
    "ComplementMetric",
    "DimensionEstimate",
    "ExactField",
    "KernelField",
    "LearnedCarreDuChamp",
    "LinearPhaseWarning",
    "LowRankMetric",
    "MetricField",
    "MetricMatching",
    "NeuralField",
    "Path",
    "ScoreField",
    "Spectrum",
    "SteinField",
    "TrainingDivergedError",
    "learn_carre_du_champ",
    "principal_angles",
    "projector_distance",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes a second to import; only the estimator needs it.
    if name == "MetricMatching":
        from carre.estimator import MetricMatching  # noqa: PLC0415

        return MetricMatching
    if name in ("LearnedCarreDuChamp", "learn_carre_du_champ"):
        from carre import function_matching  # noqa: PLC0415

        return getattr(function_matching, name)
    raise AttributeError(f"module 'carre' has no attribute {name!r}")
