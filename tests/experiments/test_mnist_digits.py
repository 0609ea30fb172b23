"""The digits of the MNIST experiment: how they are spoiled, restored and recognized."""

import importlib
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import Sphere

FOLDER = Path(__file__).parents[2] / "experiments/mnist"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def mnist():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in ("data", "classifier", "restore")})


def test_damages_are_as_large_as_they_say(mnist, rng):
    points = mnist.data.draw_strokes(4, 60, CPU).test
    hole = mnist.restore.erase_square(points, rng) != points
    assert 0 < int(hole.sum(1).max()) <= 64
    blank = torch.zeros(20, 784)
    blank[:, 0] = 1.0
    for image in mnist.restore.scratch(blank, rng)[:, 1:]:
        places = 1 + image.nonzero()[:, 0]
        rows_and_columns = torch.stack([places // 28, places % 28], 1).float()
        deviations = torch.linalg.svdvals(rows_and_columns - rows_and_columns.mean(0)) / math.sqrt(len(places))
        # A line of width 2 has deviation 2/√12 across; along it, 20 pixels at least have 20/√12.
        assert deviations[1] < 2 / math.sqrt(12) + 0.1
        assert deviations[0] > 20 / math.sqrt(12)
    gray = torch.rand(points.shape, generator=rng)
    salted = mnist.restore.salt_and_pepper(gray, rng) != gray
    assert float(salted.float().mean()) == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / points.numel()))
    noise = mnist.restore.add_noise(points, 2.0, rng) - points
    assert float(noise.std()) == pytest.approx(2.0, rel=4 / math.sqrt(2 * points.numel()))


def test_points_off_a_sphere_are_led_back_to_it(mnist):
    on = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]], dtype=torch.float64)
    found = mnist.restore.project(ExactField(Sphere(2)), 1.4 * on, 0.1)
    torch.testing.assert_close(found, on, rtol=0, atol=1e-3)


def test_shifts_move_the_ink_by_two_pixels_at_most_and_lose_nothing_inside(mnist, rng):
    image = torch.full((50, 28, 28), -1.0)
    image[:, 10:14, 20] = 2.0
    moved = mnist.classifier._shifted(image.flatten(1), rng).reshape(50, 28, 28)
    torch.testing.assert_close(moved.sum((1, 2)), image.sum((1, 2)))
    places = (moved == 2).nonzero()
    assert (places[:, 2].min(), places[:, 2].max()) == (18, 22)
    assert (places[:, 1].min(), places[:, 1].max()) == (8, 15)


@pytest.mark.slow
def test_the_classifier_learns_strokes(mnist):
    strokes = mnist.data.draw_strokes(600, 200, CPU)
    model, found = mnist.classifier.train_classifier(strokes, 3.0, seed=0)
    right = (model(strokes.test).argmax(-1) == strokes.test_labels).float().mean()
    assert found["accuracy"] == pytest.approx(float(right))
    assert found["accuracy"] > 0.9
