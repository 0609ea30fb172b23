"""Precision: half of it where it was asked for, all of it elsewhere; and how many landmarks."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from carre.fields import NeuralField
from carre.storage import load, save
from tests.storage.states import DIM, RANK, answers, frame, tiny_state

PRECISIONS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.mark.parametrize("dtype", sorted(PRECISIONS))
def test_weights_are_within_half_a_last_digit_and_come_back_in_float32(tmp_path, dtype):
    """To nearest: the relative error is at most the unit roundoff, and the absolute one 2⁻²⁵ where float16 ends."""
    state = tiny_state()
    save(state, tmp_path / "x", dtype=dtype)
    again = dict(load(tmp_path / "x").field.model.named_parameters())
    for name, weight in state.field.model.named_parameters():
        assert again[name].dtype == torch.float32
        torch.testing.assert_close(again[name], weight.data, rtol=PRECISIONS[dtype], atol=2.0**-25)


@pytest.mark.parametrize("dtype", sorted(PRECISIONS))
def test_only_weights_and_landmarks_are_stored_in_half_precision(tmp_path, dtype):
    state = tiny_state()
    save(state, tmp_path / "x", dtype=dtype)
    weights = {f"model.{name}" for name, _ in state.field.model.named_parameters()}
    for name, tensor in load_file(tmp_path / "x" / "model.safetensors").items():
        assert (tensor.dtype == getattr(torch, dtype)) == (name in weights | {"landmarks"}), name
    again = load(tmp_path / "x")
    assert torch.equal(again.field.frame.basis, state.field.frame.basis)
    assert torch.equal(again.field.frame.center, state.field.frame.center)


@pytest.mark.parametrize("dtype", sorted(PRECISIONS))
def test_landmarks_far_from_the_origin_are_rounded_relative_to_the_data(tmp_path, dtype):
    """Around 100, bfloat16 has steps of 0.5; in the frame, where they are about 3 units large, of 3·2⁻⁸."""
    state = tiny_state()
    save(state, tmp_path / "x", dtype=dtype)
    again = load(tmp_path / "x").landmarks
    assert again.dtype == torch.float64
    distance = (state.landmarks - state.field.frame.center).abs().max()
    torch.testing.assert_close(again, state.landmarks, rtol=0, atol=float(PRECISIONS[dtype] * distance))


def test_answers_in_half_precision_are_close(tmp_path):
    """Six layers of weights off by 2⁻¹¹ each: a few thousandths of the size of the answer."""
    state = tiny_state()
    save(state, tmp_path / "x", dtype="float16")
    points = state.landmarks.float()
    factor, rounded = (s.field.metric(points, 0.2).factor for s in (state, load(tmp_path / "x")))
    assert 0 < float((rounded - factor).norm() / factor.norm()) < 12 * PRECISIONS["float16"]


def test_half_precision_takes_half_the_space(tmp_path):
    """Two of four bytes of each weight, six of eight of each landmark; the header of the file may differ a little."""
    wide = nn.Linear(1000, 100)
    state = tiny_state(field=NeuralField(wide, frame(reduced=False)))
    sizes = []
    for dtype in (None, "float16"):
        save(state, tmp_path / "x", dtype=dtype)
        sizes.append((tmp_path / "x" / "model.safetensors").stat().st_size)
    assert sizes[0] - sizes[1] == pytest.approx(2 * 100_100 + 6 * state.landmarks.numel(), abs=64)


def test_weights_beyond_the_range_of_float16_are_refused_with_the_remedy(tmp_path):
    state = tiny_state()
    next(state.field.model.parameters()).data[0] = 1e5
    with pytest.raises(
        ValueError, match=r"dtype must be 'bfloat16' or None here: 1e\+05 is beyond the range of float16"
    ):
        save(state, tmp_path / "x", dtype="float16")
    assert not (tmp_path / "x").exists()
    save(state, tmp_path / "x", dtype="bfloat16")


def test_the_first_landmarks_are_kept(tmp_path):
    state = tiny_state()
    for asked, kept in ((7, 7), (40, 40), (1000, 40), (None, 40)):
        save(state, tmp_path / "x", n_landmarks=asked)
        assert torch.equal(load(tmp_path / "x").landmarks, state.landmarks[:kept])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype must be None, 'float16' or 'bfloat16'; got 'float8'"),
        ({"n_landmarks": 0}, "n_landmarks must be a positive integer, or None for all; got 0"),
        ({"n_landmarks": True}, "n_landmarks must be a positive integer"),
        ({"n_landmarks": 2.5}, "n_landmarks must be a positive integer"),
        ({"card": 3}, "card must be text in Markdown; got int"),
    ],
)
def test_wrong_options_are_named(tmp_path, unchecked, options, message):
    with pytest.raises(ValueError, match=message):
        save(tiny_state(), tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()


class Tied(nn.Module):
    """A network with tied weights, an integer buffer, and weights that are views of each other's memory."""

    def __init__(self):
        super().__init__()
        flat = torch.randn(2 * RANK * DIM * DIM)
        self.mean = nn.Linear(DIM, DIM, bias=False)
        self.again = self.mean
        self.left = nn.Parameter(flat[: RANK * DIM * DIM].view(RANK * DIM, DIM))
        self.right = nn.Parameter(flat[RANK * DIM * DIM :].view(DIM, RANK * DIM).mT)
        self.register_buffer("count", torch.tensor(3))

    def forward(self, points, bandwidth):
        return self.again(points), (points @ (self.left + self.right).mT).reshape(-1, RANK, DIM)


def test_tied_and_strided_weights_and_integers_come_back(tmp_path):
    state = tiny_state(field=NeuralField(Tied(), frame(reduced=False)))
    save(state, tmp_path / "x", dtype=None)
    again = load(tmp_path / "x", network=Tied())
    for before, after in zip(answers(state), answers(again), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-5)
    model = again.field.model
    assert model.mean.weight is model.again.weight
    assert torch.equal(model.count, torch.tensor(3))


class Talkative(nn.Linear):
    def get_extra_state(self):
        return "text"

    def set_extra_state(self, state):
        pass


def test_what_is_not_a_tensor_is_refused_rather_than_lost(tmp_path):
    state = dataclasses.replace(tiny_state(), field=NeuralField(Talkative(2, 2), frame(reduced=False)))
    with pytest.raises(ValueError, match="must keep nothing but tensors in its state_dict to be saved; got str"):
        save(state, tmp_path / "x")
