"""What the tests of the estimator share: a circle, and the settings of a fit that takes a moment."""

import numpy as np

TINY = {
    "max_steps": 20,
    "width": 16,
    "n_blocks": 1,
    "batch_size": 32,
    "device": "cpu",
    "verbose": False,
    "random_state": 0,
}


def circle(n=300, ambient=3, seed=0, dtype=np.float64):
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, n)
    points = np.zeros((n, ambient), dtype=dtype)
    points[:, 0], points[:, 1] = np.cos(angle), np.sin(angle)
    return points
