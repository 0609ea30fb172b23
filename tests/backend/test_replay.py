"""Few points on a GPU: recorded once, replayed to the same bits."""

import pickle

import pytest
import torch

from carre.fields import NeuralField
from carre.fields.neural import Replays
from carre.metric import AffineFrame
from carre.networks import build_model


def field():
    torch.manual_seed(0)
    return NeuralField(build_model(5, 4, width=16, n_blocks=1, spread=1.0), AffineFrame(torch.zeros(5), 2.0))


def test_a_cpu_replays_nothing_and_fields_with_recordings_can_be_pickled():
    assert not Replays().can_replay(torch.zeros(1, 3))
    known = field()
    points = torch.randn(2, 5)
    again = pickle.loads(pickle.dumps(known))
    assert torch.equal(known.metric(points, 0.3).factor, again.metric(points, 0.3).factor)
    assert isinstance(again._replays, Replays)


@pytest.mark.gpu
def test_replays_are_the_same_to_the_bit_and_follow_points_scales_and_precision():
    replayed, plain = field(), field()
    plain._replays.can_replay = lambda points: False
    generator = torch.Generator("cuda").manual_seed(0)
    for n in (1, 3, 1, 8, 9):
        for sigma in (0.3, torch.rand(n, device="cuda") + 0.1):
            points = torch.randn(n, 5, generator=generator, device="cuda")
            assert torch.equal(replayed.metric(points, sigma).factor, plain.metric(points, sigma).factor)
            assert torch.equal(replayed.denoise(points, sigma), plain.denoise(points, sigma))
    assert 0 < len(replayed._replays._recordings) <= 8
    points = torch.randn(2, 5, device="cuda")
    first = replayed.metric(points, 0.3).factor
    kept = first.clone()
    replayed.metric(points + 1, 0.3)
    assert torch.equal(first, kept), "an answer is not written over by the next"
    wide = replayed.metric(points.double(), 0.3).factor
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), kept, rtol=1e-4, atol=1e-5)
    pickle.loads(pickle.dumps(replayed))


@pytest.mark.gpu
def test_what_is_differentiated_is_not_replayed():
    known = field()
    points = torch.randn(1, 5, device="cuda", requires_grad=True)
    (gradient,) = torch.autograd.grad(known.denoise(points, 0.3).sum(), points)
    assert gradient.abs().sum() > 0
    tangent = torch.func.jvp(lambda y: known.denoise(y, 0.3), (points.detach(),), (torch.ones_like(points),))[1]
    assert torch.isfinite(tangent).all()
    assert len(known._replays._recordings) == 0
