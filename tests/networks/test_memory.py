"""Networks that hold much for each point are shown few of them at once."""

import torch
from torch import nn

from carre.networks import UNetSettings, build_image_model
from carre.networks.memory import points_at_once

POINTS = torch.zeros(3, 64)


def test_the_larger_of_two_networks_decides(monkeypatch):
    model = build_image_model((1, 8, 8), 50, spread=1.0, settings=UNetSettings(4, (1,), 1, ()))
    mean, factor = (network.trunk.numbers_per_point for network in (model.mean, model.factor))
    assert factor > mean
    monkeypatch.setattr("carre.networks.memory.working_memory", lambda device: 40 * factor)
    assert points_at_once(model, POINTS, largest=100) == 10
    assert points_at_once(model, POINTS.double(), largest=100) == 5, "twice the bytes"
    assert points_at_once(model.mean, POINTS, largest=100) == 10 * factor // mean
    assert points_at_once(model, POINTS, largest=7) == 7


def test_there_is_always_room_for_one(monkeypatch):
    model = build_image_model((1, 8, 8), 1, spread=1.0, settings=UNetSettings(4, (1,), 1, ()))
    monkeypatch.setattr("carre.networks.memory.working_memory", lambda device: 1)
    assert points_at_once(model, POINTS, largest=100) == 1


def test_other_networks_are_shown_all(monkeypatch):
    monkeypatch.setattr("carre.networks.memory.working_memory", lambda device: 1)
    assert points_at_once(nn.Linear(64, 64), POINTS, largest=100) == 100
    assert points_at_once(None, POINTS, largest=100) == 100
