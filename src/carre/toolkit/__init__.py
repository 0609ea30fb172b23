"""What a metric is for: functions of any field."""

from carre.toolkit.calibration import calibration_error, predictive_score
from carre.toolkit.dimension import count_dimension
from carre.toolkit.kernel_choice import KernelChoice, choose_kernel
from carre.toolkit.scale import ScaleProfile, choose_bandwidth, rank_cuts_off

__all__ = [
    "KernelChoice",
    "ScaleProfile",
    "calibration_error",
    "choose_bandwidth",
    "choose_kernel",
    "count_dimension",
    "predictive_score",
    "rank_cuts_off",
]
