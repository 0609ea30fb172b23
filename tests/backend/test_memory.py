"""What is computed at a time fits into memory, and work in parts is the work."""

import torch
from torch import nn

from carre.backend.memory import available_memory, in_parts, points_at_once, working_memory
from carre.networks import UNetSettings, build_image_model

POINTS = torch.zeros(3, 64)
HUGE = 10**12


def test_memory_is_a_share_of_what_is_free_unless_it_is_given(monkeypatch):
    cpu = torch.device("cpu")
    assert available_memory(cpu) > 0
    assert working_memory(cpu, 123) == 123
    monkeypatch.setattr("carre.backend.memory.available_memory", lambda device: 2**28)
    assert working_memory(cpu) == 2**26


def test_parts_give_what_the_whole_gives_and_say_how_far_they_are(rng):
    left, right = torch.randn(2, 7, 3, generator=rng)
    told = []
    total, product = in_parts(
        lambda a, b: (a + b, (a * b).sum(1)), left, right, numbers_per_item=HUGE, progress=told.append
    )
    torch.testing.assert_close(total, left + right)
    torch.testing.assert_close(product, (left * right).sum(1))
    assert told == [i / 7 for i in range(1, 8)]


def test_what_fits_is_done_at_once(rng):
    told = []
    in_parts(lambda a: a, torch.zeros(1000, 3), numbers_per_item=3, progress=told.append)
    assert told == [1.0]
    in_parts(lambda a: a, torch.zeros(1, 3), numbers_per_item=3, progress=told.append)
    assert told == [1.0, 1.0]


def test_the_larger_of_two_networks_decides(monkeypatch):
    model = build_image_model((1, 8, 8), 50, spread=1.0, settings=UNetSettings(4, (1,), 1, ()))
    mean, factor = (network.trunk.numbers_per_point for network in (model.mean, model.factor))
    assert factor > mean
    monkeypatch.setattr("carre.backend.memory.working_memory", lambda device: 40 * factor)
    assert points_at_once(model, POINTS, largest=100) == 10
    assert points_at_once(model, POINTS.double(), largest=100) == 5, "twice the bytes"
    assert points_at_once(model.mean, POINTS, largest=100) == 10 * factor // mean
    assert points_at_once(model, POINTS, largest=7) == 7


def test_there_is_always_room_for_one(monkeypatch):
    model = build_image_model((1, 8, 8), 1, spread=1.0, settings=UNetSettings(4, (1,), 1, ()))
    monkeypatch.setattr("carre.backend.memory.working_memory", lambda device: 1)
    assert points_at_once(model, POINTS, largest=100) == 1


def test_other_networks_are_shown_all(monkeypatch):
    monkeypatch.setattr("carre.backend.memory.working_memory", lambda device: 1)
    assert points_at_once(nn.Linear(64, 64), POINTS, largest=100) == 100
    assert points_at_once(None, POINTS, largest=100) == 100
