"""How good default fits are, task by task, beside local PCA with the best settings by labels: `pytest --bm`.

Each task is drawn with seeds that no decision has seen. A fit fails where it is worse than what was accepted last by
more than seeds explain; `--bm-accept` accepts what is found, in accepted.json, with the change that made it so.
"""

import time
import warnings
from collections.abc import Callable
from statistics import mean

import pytest
import torch

import carre
from carre import projector_distance
from carre.manifolds import Box
from experiments.recipe.run import kernel_by_labels
from experiments.recipe.shapes import SHAPES, Drawn

pytestmark = pytest.mark.bm
SEEDS, N_SAMPLES, N_NEW = (901, 902), 2000, 500
# Two seeds scatter by up to a quarter around their mean (experiments/recipe: twenty seeds of six shapes).
SLACK = 1.4


def noisy(name: str, noise: float) -> Callable[[int, torch.Generator], Drawn]:
    def draw(n: int, generator: torch.Generator) -> Drawn:
        points, tangents = SHAPES[name].draw(n, generator)
        return points + noise * torch.randn(points.shape, generator=generator), tangents

    return draw


def square(n: int, generator: torch.Generator) -> Drawn:
    """A flat square in R⁵, with edges and corners."""
    manifold = Box([-1.0] * 2, [1.0] * 2).embed(5, generator=torch.Generator().manual_seed(0))
    points = manifold.sample(n, generator=generator, dtype=torch.float32)
    return points, manifold.tangent_basis(points)


# From a name to its dimension, how samples are drawn, and how points to ask at: clean ones.
TASKS = {
    "sphere": (2, SHAPES["s2"].draw, SHAPES["s2"].draw),
    "Swiss roll": (2, SHAPES["roll"].draw, SHAPES["roll"].draw),
    "rotations": (3, SHAPES["rotations"].draw, SHAPES["rotations"].draw),
    "torus, noise 0.05": (2, noisy("torus", 0.05), SHAPES["torus"].draw),
    "square": (2, square, square),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", TASKS)
def test_a_default_fit_is_as_good_as_accepted(task, seed, keep, accepted, pytestconfig):
    dimension, draw, draw_clean = TASKS[task]
    generator = torch.Generator().manual_seed(seed)
    samples = draw(N_SAMPLES, generator)[0]
    validation, (points, truth) = draw_clean(300, generator), draw_clean(N_NEW, generator)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        geometry = carre.fit(samples.numpy(), device="cpu", verbose=False, random_state=seed)
    seconds = time.perf_counter() - start
    found = projector_distance(geometry.tangent_basis(points, dimension), truth)
    right = float((geometry.dimension(points) == dimension).double().mean())
    keep(task, "carre", error=float(found.mean()), right=right, seconds=seconds)
    keep(task, "local PCA, by labels", error=kernel_by_labels(samples, validation, (points, truth))["error"])
    if not pytestconfig.getoption("--bm-accept"):
        before = accepted[task]["carre"]
        assert found.mean() <= SLACK * mean(before["error"])
        assert right >= min(before["right"]) - 0.02
