"""The only place that steps an optimizer."""

from carre.arguments import check_room
from carre.backend.processes import ProcessLostError
from carre.training._schedule import likely_steps
from carre.training._steps import seconds_per_step
from carre.training.checkpoint import Checkpoint, CheckpointError
from carre.training.config import DataScale, ImageScale, TrainingConfig
from carre.training.loop import Progress, train
from carre.training.monitor import Evaluation, History, LinearPhaseWarning, TrainingDivergedError, linear_phase
from carre.training.objective import BalancedScales, Objective

__all__ = [
    "BalancedScales",
    "Checkpoint",
    "CheckpointError",
    "DataScale",
    "Evaluation",
    "History",
    "ImageScale",
    "LinearPhaseWarning",
    "Objective",
    "ProcessLostError",
    "Progress",
    "TrainingConfig",
    "TrainingDivergedError",
    "likely_steps",
    "linear_phase",
    "seconds_per_step",
    "train",
]

check_room(__name__, but=("Evaluation", "History", "Progress"))
