"""Values: metrics, spectra, subspaces and frames. Pure linear algebra on batches."""

from carre.geometry.complement import ComplementMetric
from carre.geometry.frame import AffineFrame
from carre.geometry.low_rank import LowRankMetric
from carre.geometry.spectrum import Spectrum, batched_eigh
from carre.geometry.subspaces import principal_angles, projector_distance

__all__ = [
    "AffineFrame",
    "ComplementMetric",
    "LowRankMetric",
    "Spectrum",
    "batched_eigh",
    "principal_angles",
    "projector_distance",
]
