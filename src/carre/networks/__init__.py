"""Function approximators: they know shapes, not losses."""

from carre.networks.embedding import LogBandwidthEmbedding
from carre.networks.film import FilmMLP, GatedBlock, PlainBlock
from carre.networks.model import FactorNetwork, FrozenDenoiser, MeanNetwork, MetricModel, build_model

__all__ = [
    "FactorNetwork",
    "FilmMLP",
    "FrozenDenoiser",
    "GatedBlock",
    "LogBandwidthEmbedding",
    "MeanNetwork",
    "MetricModel",
    "PlainBlock",
    "build_model",
]
