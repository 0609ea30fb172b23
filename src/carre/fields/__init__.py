"""Where a metric comes from. All fields speak one protocol."""

from carre.fields.exact import ExactField
from carre.fields.isotropic import IsotropicField
from carre.fields.kernel import KernelField
from carre.fields.neural import NeuralField
from carre.fields.protocol import Bandwidth, MetricField, NoDenoiserError
from carre.fields.score import ScoreField
from carre.fields.stein import SteinField
from carre.fields.traces import TraceEstimate

__all__ = [
    "Bandwidth",
    "ExactField",
    "IsotropicField",
    "KernelField",
    "MetricField",
    "NeuralField",
    "NoDenoiserError",
    "ScoreField",
    "SteinField",
    "TraceEstimate",
]
