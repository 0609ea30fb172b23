"""Models of the user's own: their weights are stored, their code is brought along."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from carre.fields import NeuralField
from carre.fitting.models import of_flat_points
from carre.metric import AffineFrame
from carre.networks import FrozenDenoiser, UNetSettings, build_image_model, build_model
from carre.storage import LoadError, load, save
from tests.storage.states import DIM, IMAGE, RANK, answers, frame, image_state, randomized, tiny_state


class Own(nn.Module):
    """A network of the user's own."""

    def __init__(self, width=8):
        super().__init__()
        self.hidden = nn.Linear(DIM + 1, width)
        self.head = nn.Linear(width, (1 + RANK) * DIM)

    def forward(self, points, bandwidth):
        hidden = torch.tanh(self.hidden(torch.cat([points, bandwidth[:, None]], 1)))
        rows = self.head(hidden).reshape(-1, 1 + RANK, DIM)
        return rows[:, 0], rows[:, 1:]


class Shrinking(nn.Module):
    """A denoiser of the user's own, in whatever shape the points have."""

    def __init__(self, factor=0.9):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, points, bandwidth):
        return self.factor * points


def shrink(points, bandwidth):
    return 0.9 * points


def assert_same_answers(state, again):
    for before, after in zip(answers(state), answers(again), strict=True):
        assert torch.equal(before, after)


def test_a_network_of_ones_own_is_filled_with_the_stored_weights_and_left_alone(tmp_path):
    state = tiny_state(field=NeuralField(Own(), frame(reduced=False)))
    save(state, tmp_path / "x")
    given = Own()
    before = given.hidden.weight.clone()
    assert_same_answers(state, load(tmp_path / "x", network=given))
    assert torch.equal(given.hidden.weight, before)


def test_what_the_user_has_to_bring_is_asked_for(tmp_path):
    save(tiny_state(field=NeuralField(Own(), frame(reduced=False))), tmp_path / "x")
    with pytest.raises(LoadError, match=r"network must be given: .*Own.*Pass it as from_pretrained\(..., network="):
        load(tmp_path / "x")
    with pytest.raises(LoadError, match=r"do not fit the network that was given: size mismatch"):
        load(tmp_path / "x", network=Own(width=9))


@pytest.mark.parametrize("name", ["network", "denoiser"])
def test_what_is_not_needed_is_refused(tmp_path, name):
    save(tiny_state(), tmp_path / "x")
    with pytest.raises(LoadError, match=f"{name} must be None"):
        load(tmp_path / "x", **{name: Own()})


@pytest.mark.parametrize("block", ["gated", "plain"])
@pytest.mark.parametrize("denoiser", [Shrinking(), shrink], ids=["module", "function"])
def test_a_metric_around_a_denoiser_is_rebuilt_around_the_denoiser_that_is_given(tmp_path, denoiser, block):
    around = frame(reduced=False)
    mean = FrozenDenoiser(denoiser, around)
    model = build_model(DIM, RANK, width=8, n_blocks=1, spread=0.7, block=block, mean=mean).float()
    randomized(model.factor)
    state = tiny_state(field=NeuralField(model, around))
    save(state, tmp_path / "x")
    with pytest.raises(LoadError, match="denoiser must be given"):
        load(tmp_path / "x")
    # The weights of a module are stored with the rest; those that are given do not matter.
    given = Shrinking(0.5) if isinstance(denoiser, nn.Module) else denoiser
    assert_same_answers(state, load(tmp_path / "x", denoiser=given))


@pytest.mark.parametrize("denoiser", [Shrinking(), shrink], ids=["module", "function"])
def test_a_denoiser_of_images_sees_images(tmp_path, denoiser):
    def checked(points, bandwidth):
        assert points.shape[1:] == IMAGE
        return denoiser(points, bandwidth)

    around = AffineFrame(torch.zeros(64, dtype=torch.float64), 0.5)
    settings = UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1, attention=())
    mean = FrozenDenoiser(of_flat_points(denoiser, IMAGE), around)
    model = build_image_model(IMAGE, RANK, spread=0.9, settings=settings, mean=mean).float()
    state = replace(image_state(), field=NeuralField(model, around))
    save(state, tmp_path / "x")
    given = denoiser if isinstance(denoiser, nn.Module) else checked
    assert_same_answers(state, load(tmp_path / "x", denoiser=given))
