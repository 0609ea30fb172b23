"""From samples to a geometry: what was told, what is made of it, and the fit."""

from carre.arguments import check_room
from carre.fitting._fit import carry_out, expected_seconds, fit, seed_of, waiting
from carre.fitting.plan import FitPlan, make_plan
from carre.fitting.samples import Reading, accept_samples
from carre.fitting.settings import METHODS, FitSettings, choose_device

__all__ = [
    "METHODS",
    "FitPlan",
    "FitSettings",
    "Reading",
    "accept_samples",
    "carry_out",
    "choose_device",
    "expected_seconds",
    "fit",
    "make_plan",
    "seed_of",
    "waiting",
]

check_room(__name__)
