"""A tiny run, and how to interrupt it; shared by the tests of checkpoints."""

import math

import pytest
import torch
from torch import nn

from carre.matching import LogUniform
from carre.networks import build_model
from carre.training import Checkpoint, Objective, TrainingConfig, train

RANGE = LogUniform(0.1, 1.0)
STEPS = 12


def circle(n=60):
    angle = torch.linspace(0, 2 * math.pi, n + 1)[:-1]
    return 2**0.5 * torch.stack([angle.cos(), angle.sin()], 1)


class Own(nn.Module):
    """A network of the user's own: dropout (the global generator), running statistics, and a weight without a part."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.unused = nn.BatchNorm1d(2), nn.Dropout(0.3), nn.Linear(2, 2)
        self.inner = build_model(2, 2, width=8, n_blocks=1, spread=1.0)

    def forward(self, points, bandwidth):
        return self.inner(self.drop(self.norm(points)), bandwidth)


def make_model(own=False):
    torch.manual_seed(0)
    return Own() if own else build_model(2, 2, width=8, n_blocks=1, spread=1.0)


def run(model=None, *, path=None, callback=None, samples=None, every=60.0, device="cpu", **settings):
    """Train from the global seed 0; return the model and its history."""
    model = (make_model() if model is None else model).to(device)
    samples = (circle() if samples is None else samples).to(device)
    config = TrainingConfig(**{"max_steps": STEPS, "batch_size": 16, "evaluations": 3, "seed": 5, **settings})
    checkpoint = None if path is None else Checkpoint(path, every=every)
    torch.manual_seed(0)
    history = train(model, samples, samples[:20], RANGE, Objective(), config, callback=callback, checkpoint=checkpoint)
    return model, history


def stop_at(step, error=KeyboardInterrupt):
    """A callback that interrupts after a step."""

    def callback(progress):
        if progress.step == step:
            raise error

    return callback


def interrupt(path, step, model=None, **settings):
    with pytest.raises(KeyboardInterrupt):
        run(model, path=path, callback=stop_at(step), **settings)
