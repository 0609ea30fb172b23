"""What is asked of a tiny geometry in every kind of surroundings, and how answers are compared: to the bit."""

import numpy as np
import torch

from tests.samples import TINY, circle

X = circle(80)
QUICK = {**TINY, "max_steps": 6, "bandwidth": 0.3}


def square(points):
    return points[:, 0] ** 2


QUESTIONS = {
    "factor": lambda geometry, points: geometry.metric(points[:4]).factor,
    "denoise": lambda geometry, points: geometry.denoise(points[:4]),
    "dimension": lambda geometry, points: geometry.estimate_dimension(points).local,
    "tangent": lambda geometry, points: geometry.tangent_basis(points[:4], 1),
    "gradient": lambda geometry, points: geometry.gradient(square, points[:4]),
    "of a view": lambda geometry, points: geometry.at(points[:4]).gradient(square),
    "laplacian": lambda geometry, points: geometry.laplacian(square, points[:4]),
    "hessian": lambda geometry, points: geometry.hessian(square, points[:4])[0],
    "product": lambda geometry, points: geometry.carre_du_champ(square, square, points[:4]),
    "divergence": lambda geometry, points: geometry.divergence(lambda y: y, points[:3]),
    "of values": lambda geometry, points: geometry.gradient_of_values(points, points[:, 0], points[:2]),
    "path": lambda geometry, points: geometry.path(points[0], points[5], n_nodes=8).nodes,
    "distances": lambda geometry, points: geometry.distances(points[:4]),
    "logarithm": lambda geometry, points: geometry.logarithm(points[:1], points[1:2]),
    "minimum": lambda geometry, points: geometry.minimize(square, points[:1], max_steps=3).points,
    "score": lambda geometry, points: np.array(geometry.score(points[:20])),
    "curvature": lambda geometry, points: geometry.curvature(points[:3], dimension=1).scalar,
    "check": lambda geometry, points: geometry.check(points[:5]).distance,
    "energy": lambda geometry, points: geometry.path(points[0], points[5], n_nodes=6, method="geodesic").nodes,
}


def weights_of(geometry):
    return b"".join(value.detach().numpy().tobytes() for value in geometry.field.model.state_dict().values())


def is_same(answer, wanted):
    one, other = (
        np.asarray(value.detach() if isinstance(value, torch.Tensor) else value) for value in (answer, wanted)
    )
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
