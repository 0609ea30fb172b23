"""From samples to a fitted field: the pipeline behind `MetricMatching`, as one stateless function."""

from carre.fitting.pipeline import Fit, fit_field
from carre.fitting.settings import METHODS, FitSettings, choose_device

__all__ = ["METHODS", "Fit", "FitSettings", "choose_device", "fit_field"]
