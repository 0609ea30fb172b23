"""A user's own network or denoiser inside the estimator."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import carre
from carre import TrainingDivergedError
from tests.samples import TINY, circle

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")]


def test_two_stage_takes_any_denoiser():
    """The exact denoiser of a circle in the limit of small σ: the nearest point."""

    def nearest(points, bandwidth):
        flat = torch.cat([points[:, :2], torch.zeros_like(points[:, 2:])], 1)
        return flat / flat.norm(dim=1, keepdim=True)

    settings = {**TINY, "max_steps": 200, "learning_rate": 5e-3}
    settings |= {"method": "two-stage", "denoiser": nearest, "bandwidth_range": (0.05, 0.2)}
    geometry = carre.fit(circle(400), **settings)
    np.testing.assert_allclose(geometry.denoise(1.2 * circle(5)), circle(5), atol=1e-6)
    assert (geometry.dimension(circle(50, seed=2), bandwidth=0.1) == 1).mean() > 0.9


class OwnNetwork(nn.Module):
    """A user's module with the signature of a model."""

    def __init__(self, dim, rank):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim + 1, 16), nn.Tanh(), nn.Linear(16, dim + rank * dim))
        self.rank = rank

    def forward(self, points, bandwidth):
        out = self.layers(torch.cat([points, bandwidth.log()[:, None]], 1))
        dim = points.shape[1]
        return points + out[:, :dim], out[:, dim:].reshape(len(points), self.rank, dim)


def test_a_users_network_is_trained_in_a_copy():
    torch.manual_seed(0)
    network = OwnNetwork(3, 2)
    before = copy.deepcopy(network.state_dict())
    geometry = carre.fit(circle(60), **TINY, network=network)
    assert geometry.rank == 2
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert not torch.equal(geometry.field.model.layers[0].weight, before["layers.0.weight"])


def test_a_network_that_does_not_fit_its_method_is_refused_before_training():
    class Wrong(OwnNetwork):
        def __init__(self, change):
            super().__init__(3, 2)
            self.change = change

        def forward(self, points, bandwidth):
            return self.change(*super().forward(points, bandwidth))

    for change, message in [
        (lambda mean, factor: (None, factor), "must return a mean with method='joint'"),
        (lambda mean, factor: (mean[:, :1], factor), "mean of shape"),
        (lambda mean, factor: (mean, factor.mT), "factor of shape"),
        (lambda mean, factor: (mean, factor[:, 0]), "factor of shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            carre.fit(circle(60), **TINY, network=Wrong(change))
    frozen = OwnNetwork(3, 2).requires_grad_(False)
    with pytest.raises(ValueError, match="trainable parameters"):
        carre.fit(circle(60), **TINY, network=frozen)


def test_a_fit_that_diverges_leaves_the_last_good_field():
    class Explodes(OwnNetwork):
        def forward(self, points, bandwidth):
            mean, factor = super().forward(points, bandwidth)
            return mean, factor * (1e30 if torch.is_grad_enabled() else 1.0)

    with pytest.raises(TrainingDivergedError, match="at step 0") as caught:
        carre.fit(circle(60), **TINY, network=Explodes(3, 2))
    points = torch.as_tensor(circle(5))
    assert torch.isfinite(caught.value.field.metric(points, 0.1).factor).all()


def test_a_float32_denoiser_in_a_plain_function_serves_float64_data():
    network = nn.Linear(3, 3)
    geometry = carre.fit(circle(60), **TINY, method="two-stage", denoiser=lambda y, s: network(y))
    points = torch.as_tensor(circle(5)).requires_grad_()
    geometry.denoise(points).sum().backward()
    torch.testing.assert_close(points.grad, network.weight.double().sum(0).expand(5, 3), atol=1e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("cuda_graph", [True, False])
def test_two_stage_on_a_gpu_from_numpy_samples(cuda_graph):
    """The frame must be on the GPU before a CUDA graph is captured around the user's denoiser."""

    def nearest(points, bandwidth):
        flat = torch.cat([points[:, :2], torch.zeros_like(points[:, 2:])], 1)
        return flat / flat.norm(dim=1, keepdim=True)

    settings = {**TINY, "device": "cuda", "max_steps": 200, "learning_rate": 5e-3, "bandwidth_range": (0.05, 0.2)}
    geometry = carre.fit(circle(400), **settings, method="two-stage", denoiser=nearest, cuda_graph=cuda_graph)
    assert (geometry.dimension(circle(50, seed=2), bandwidth=0.1) == 1).mean() > 0.9
