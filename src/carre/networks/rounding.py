"""Weights in bfloat16, rounded once instead of at every call."""

from __future__ import annotations

import torch
from torch import nn

from carre.networks.convolution import Convolution
from carre.networks.film import FilmMLP
from carre.networks.model import FactorNetwork, MeanNetwork, MetricModel
from carre.networks.unet import UNet


def round_weights(model: nn.Module) -> None:
    """Round the matrices and filters of a frozen model to bfloat16, in place: the numbers autocast would round to.

    Of the library's own networks only. What a user's module makes of its weights is not known, nor is a denoiser
    that was given ever rounded. Biases and norms stay as they are.

    Args:
        model: The model, for evaluation under ``torch.autocast`` in bfloat16.

    Example:
        >>> from carre.networks import build_model
        >>> model = build_model(3, 2, width=8, n_blocks=1, spread=1.0).requires_grad_(False)
        >>> round_weights(model)
        >>> model.factor.trunk.head.weight.dtype
        torch.bfloat16
    """
    networks = (model.mean, model.factor) if isinstance(model, MetricModel) else ()
    for network in networks:
        if isinstance(network, MeanNetwork | FactorNetwork) and isinstance(network.trunk, FilmMLP | UNet):
            for module in network.trunk.modules():
                if isinstance(module, Convolution | nn.Linear):
                    module.weight = nn.Parameter(module.weight.to(torch.bfloat16), requires_grad=False)
