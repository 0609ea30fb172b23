"""Values: metrics, spectra, subspaces and frames. Pure linear algebra on batches."""

from carre.arguments import check_room
from carre.metric.complement import ComplementMetric
from carre.metric.frame import AffineFrame
from carre.metric.low_rank import LowRankMetric
from carre.metric.metric import Metric
from carre.metric.spectrum import Spectrum, batched_eigh, principal_angles, projector_distance

__all__ = [
    "AffineFrame",
    "ComplementMetric",
    "LowRankMetric",
    "Metric",
    "Spectrum",
    "batched_eigh",
    "principal_angles",
    "projector_distance",
]

check_room(__name__)
