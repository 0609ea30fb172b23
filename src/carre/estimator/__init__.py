"""The scikit-learn face of the library."""

from carre.estimator.matching import MetricMatching

__all__ = ["MetricMatching"]
