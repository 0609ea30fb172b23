"""What a metric is for: functions of any field."""

from carre.toolkit.calibration import calibration_error, predictive_score
from carre.toolkit.dimension import count_dimension
from carre.toolkit.scale import ScaleProfile, choose_bandwidth, rank_cuts_off

__all__ = [
    "ScaleProfile",
    "calibration_error",
    "choose_bandwidth",
    "count_dimension",
    "predictive_score",
    "rank_cuts_off",
]
