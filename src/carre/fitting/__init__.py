"""From samples to a fitted field: the pipeline behind `MetricMatching`, as one stateless function."""

from carre.fitting.pipeline import Fit, fit_field
from carre.fitting.plan import FitPlan, plan_fit
from carre.fitting.settings import METHODS, FitSettings, choose_device

__all__ = ["METHODS", "Fit", "FitPlan", "FitSettings", "choose_device", "fit_field", "plan_fit"]
