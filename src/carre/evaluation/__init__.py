"""How good and how fast a field is: functions of any field, usable by hand."""

from carre.evaluation.accuracy import (
    EigenvalueProfile,
    dimension_errors,
    eigenvalue_profile,
    oracle_errors,
    tangent_errors,
)
from carre.evaluation.speed import Throughput, peak_memory, throughput
from carre.evaluation.tuning import Tuned, best_bandwidth, grid_search

__all__ = [
    "EigenvalueProfile",
    "Throughput",
    "Tuned",
    "best_bandwidth",
    "dimension_errors",
    "eigenvalue_profile",
    "grid_search",
    "oracle_errors",
    "peak_memory",
    "tangent_errors",
    "throughput",
]
