"""Small U-Nets for the tests."""

import math
import weakref

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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


class Held(TorchDispatchMode):
    """Counts the bytes of the results that are alive, beside tensors that are given."""

    def __init__(self, given):
        super().__init__()
        self.now, self.most = 0, 0
        self.known = {tensor.untyped_storage()._cdata: 0 for tensor in given}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in (leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.known:
                self.known[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self.release, storage._cdata)
        self.most = max(self.most, self.now)
        return result

    def release(self, key):
        self.now -= self.known.pop(key)
