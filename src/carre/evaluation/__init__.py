"""How good and how fast a field is: functions of any field, usable by hand."""

from carre.evaluation.accuracy import (
    EigenvalueProfile,
    dimension_errors,
    eigenvalue_profile,
    oracle_errors,
    tangent_errors,
)
from carre.evaluation.inception import inception_features
from carre.evaluation.pairing import PairedDifference, compare_stability
from carre.evaluation.speed import Throughput, peak_memory, throughput
from carre.evaluation.stability import Stability, feature_stability
from carre.evaluation.tuning import Tuned, best_bandwidth, grid_search
from carre.evaluation.wavelets import wavelet_features

__all__ = [
    "EigenvalueProfile",
    "PairedDifference",
    "Stability",
    "Throughput",
    "Tuned",
    "best_bandwidth",
    "compare_stability",
    "dimension_errors",
    "eigenvalue_profile",
    "feature_stability",
    "grid_search",
    "inception_features",
    "oracle_errors",
    "peak_memory",
    "tangent_errors",
    "throughput",
    "wavelet_features",
]
