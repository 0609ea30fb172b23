"""Where a metric comes from. All fields speak one protocol."""

from carre.arguments import check_room
from carre.fields.exact import ExactField
from carre.fields.field import Bandwidth, DataField, Field, MetricField, NoDenoiserError, trusted
from carre.fields.kernel import KernelField
from carre.fields.neural import NeuralField
from carre.fields.score import ScoreField, TraceEstimate
from carre.fields.stein import IsotropicField, SteinField

__all__ = [
    "Bandwidth",
    "DataField",
    "ExactField",
    "Field",
    "IsotropicField",
    "KernelField",
    "MetricField",
    "NeuralField",
    "NoDenoiserError",
    "ScoreField",
    "SteinField",
    "TraceEstimate",
    "trusted",
]

check_room(__name__)
