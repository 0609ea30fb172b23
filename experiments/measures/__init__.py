"""What several experiments measure with: errors against a known truth, speed, memory, and how far features move."""

from experiments.measures.accuracy import (
    EigenvalueProfile,
    Tuned,
    best_bandwidth,
    dimension_errors,
    eigenvalue_profile,
    grid_search,
    oracle_errors,
    tangent_errors,
)
from experiments.measures.inception import inception_features
from experiments.measures.speed import Throughput, peak_memory, throughput
from experiments.measures.stability import PairedDifference, Stability, compare_stability, feature_stability
from experiments.measures.wavelets import wavelet_features

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
