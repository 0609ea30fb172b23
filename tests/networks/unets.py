"""Small U-Nets for the tests."""

import math

import torch
from torch import nn

from carre.networks import UNetSettings, build_image_model

TINY = UNetSettings(channels=4, multipliers=(1, 2), n_blocks=1, attention=(1,))


def numel(sample_shape):
    return math.prod(sample_shape)


def model_of(settings=TINY, sample_shape=(1, 6, 6), rank=2):
    """A model in float64 whose weights are all random: nothing is zero by initialization."""
    torch.manual_seed(0)
    model = build_image_model(sample_shape, rank, spread=1.0, settings=settings).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model
