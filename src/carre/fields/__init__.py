"""Where a metric comes from. All fields speak one protocol."""

from carre.fields.exact import ExactField
from carre.fields.neural import NeuralField
from carre.fields.protocol import Bandwidth, MetricField

__all__ = ["Bandwidth", "ExactField", "MetricField", "NeuralField"]
