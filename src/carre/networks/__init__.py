"""Function approximators: they know shapes, not losses."""

from carre.arguments import check_room
from carre.networks.denoisers import DiffusionDenoiser
from carre.networks.film import FilmMLP, GatedBlock, LogBandwidthEmbedding, PlainBlock
from carre.networks.model import (
    FactorNetwork,
    FrozenDenoiser,
    MeanNetwork,
    MetricModel,
    build_image_model,
    build_model,
    rebuild_model,
)
from carre.networks.unet import UNet, UNetSettings

__all__ = [
    "DiffusionDenoiser",
    "FactorNetwork",
    "FilmMLP",
    "FrozenDenoiser",
    "GatedBlock",
    "LogBandwidthEmbedding",
    "MeanNetwork",
    "MetricModel",
    "PlainBlock",
    "UNet",
    "UNetSettings",
    "build_image_model",
    "build_model",
    "rebuild_model",
]

check_room(__name__, but=("UNetSettings",))
