"""Precision, landmarks, and models of the user's own: their weights are stored, their code is brought along."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from carre.fields import NeuralField
from carre.metric import AffineFrame
from carre.networks import FrozenDenoiser, UNetSettings, build_image_model, build_model
from carre.networks.denoisers import of_flat_points
from carre.storage import LoadError, load, save
from tests.storage.geometries import DIM, IMAGE, RANK, answers, frame, image_geometry, randomized, tiny_geometry

PRECISIONS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.mark.parametrize("dtype", sorted(PRECISIONS))
def test_weights_are_within_half_a_last_digit_and_come_back_in_float32(tmp_path, dtype):
    """To nearest: the relative error is at most the unit roundoff, and the absolute one 2⁻²⁵ where float16 ends."""
    geometry = tiny_geometry()
    save(geometry, tmp_path / "x", dtype=dtype)
    again = dict(load(tmp_path / "x").field.model.named_parameters())
    for name, weight in geometry.field.model.named_parameters():
        assert again[name].dtype == torch.float32
        torch.testing.assert_close(again[name], weight.data, rtol=PRECISIONS[dtype], atol=2.0**-25)


@pytest.mark.parametrize("dtype", sorted(PRECISIONS))
def test_only_weights_and_landmarks_are_stored_in_half_precision(tmp_path, dtype):
    geometry = tiny_geometry()
    save(geometry, tmp_path / "x", dtype=dtype)
    weights = {f"model.{name}" for name, _ in geometry.field.model.named_parameters()}
    for name, tensor in load_file(tmp_path / "x" / "model.safetensors").items():
        assert (tensor.dtype == getattr(torch, dtype)) == (name in weights | {"landmarks"}), name
    again = load(tmp_path / "x")
    assert torch.equal(again.field.frame.basis, geometry.field.frame.basis)
    assert torch.equal(again.field.frame.center, geometry.field.frame.center)


@pytest.mark.parametrize("dtype", sorted(PRECISIONS))
def test_landmarks_far_from_the_origin_are_rounded_relative_to_the_data(tmp_path, dtype):
    """Around 100, bfloat16 has steps of 0.5; in the frame, where they are about 3 units large, of 3·2⁻⁸."""
    geometry = tiny_geometry()
    save(geometry, tmp_path / "x", dtype=dtype)
    again = load(tmp_path / "x").landmarks
    assert again.dtype == torch.float64
    distance = (geometry.landmarks - geometry.field.frame.center).abs().max()
    torch.testing.assert_close(again, geometry.landmarks, rtol=0, atol=float(PRECISIONS[dtype] * distance))


def test_answers_in_half_precision_are_close(tmp_path):
    """Six layers of weights off by 2⁻¹¹ each: a few thousandths of the size of the answer."""
    geometry = tiny_geometry()
    save(geometry, tmp_path / "x", dtype="float16")
    points = geometry.landmarks.float()
    factor, rounded = (s.field.metric(points, 0.2).factor for s in (geometry, load(tmp_path / "x")))
    assert 0 < float((rounded - factor).norm() / factor.norm()) < 12 * PRECISIONS["float16"]


def test_half_precision_takes_half_the_space(tmp_path):
    """Two of four bytes of each weight, six of eight of each landmark; the header of the file may differ a little."""
    wide = nn.Linear(1000, 100)
    geometry = tiny_geometry(field=NeuralField(wide, frame(reduced=False)))
    sizes = []
    for dtype in (None, "float16"):
        save(geometry, tmp_path / "x", dtype=dtype)
        sizes.append((tmp_path / "x" / "model.safetensors").stat().st_size)
    assert sizes[0] - sizes[1] == pytest.approx(2 * 100_100 + 6 * geometry.landmarks.numel(), abs=64)


def test_weights_beyond_the_range_of_float16_are_refused_with_the_remedy(tmp_path):
    geometry = tiny_geometry()
    next(geometry.field.model.parameters()).data[0] = 1e5
    with pytest.raises(
        ValueError, match=r"dtype must be 'bfloat16' or None here: 1e\+05 is beyond the range of float16"
    ):
        save(geometry, tmp_path / "x", dtype="float16")
    assert not (tmp_path / "x").exists()
    save(geometry, tmp_path / "x", dtype="bfloat16")


def test_the_first_landmarks_are_kept(tmp_path):
    geometry = tiny_geometry()
    for asked, kept in ((7, 7), (40, 40), (1000, 40), (None, 40)):
        save(geometry, tmp_path / "x", n_landmarks=asked)
        assert torch.equal(load(tmp_path / "x").landmarks, geometry.landmarks[:kept])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype must be None, 'float16' or 'bfloat16'; got 'float8'"),
        ({"n_landmarks": 0}, "n_landmarks must be a positive integer, or None for all; got 0"),
        ({"n_landmarks": True}, "n_landmarks must be an integer or None; got True"),
        ({"n_landmarks": 2.5}, "n_landmarks must be an integer or None; got 2.5"),
        ({"card": 3}, "card must be text or None; got 3"),
    ],
)
def test_wrong_options_are_named(tmp_path, unchecked, options, message):
    with pytest.raises(ValueError, match=message):
        save(tiny_geometry(), tmp_path / "x", **options)
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
    geometry = tiny_geometry(field=NeuralField(Tied(), frame(reduced=False)))
    save(geometry, tmp_path / "x", dtype=None)
    again = load(tmp_path / "x", network=Tied())
    for before, after in zip(answers(geometry), answers(again), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-5)
    model = again.field.model
    assert model.mean.weight is model.again.weight
    assert torch.equal(model.count, torch.tensor(3))


class Talkative(nn.Linear):
    def get_extra_state(self):
        return "text"

    def set_extra_state(self, geometry):
        pass


def test_what_is_not_a_tensor_is_refused_rather_than_lost(tmp_path):
    geometry = dataclasses.replace(tiny_geometry(), field=NeuralField(Talkative(2, 2), frame(reduced=False)))
    with pytest.raises(ValueError, match="must keep nothing but tensors in its state_dict to be saved; got str"):
        save(geometry, tmp_path / "x")


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


def assert_same_answers(geometry, again):
    for before, after in zip(answers(geometry), answers(again), strict=True):
        assert torch.equal(before, after)


def test_a_network_of_ones_own_is_filled_with_the_stored_weights_and_left_alone(tmp_path):
    geometry = tiny_geometry(field=NeuralField(Own(), frame(reduced=False)))
    save(geometry, tmp_path / "x")
    given = Own()
    before = given.hidden.weight.clone()
    assert_same_answers(geometry, load(tmp_path / "x", network=given))
    assert torch.equal(given.hidden.weight, before)


def test_what_the_user_has_to_bring_is_asked_for(tmp_path):
    save(tiny_geometry(field=NeuralField(Own(), frame(reduced=False))), tmp_path / "x")
    with pytest.raises(LoadError, match=r"network must be given: .*Own.*Pass it as load\(..., network="):
        load(tmp_path / "x")
    with pytest.raises(LoadError, match=r"do not fit the network that was given: size mismatch"):
        load(tmp_path / "x", network=Own(width=9))


@pytest.mark.parametrize("name", ["network", "denoiser"])
def test_what_is_not_needed_is_refused(tmp_path, name):
    save(tiny_geometry(), tmp_path / "x")
    with pytest.raises(LoadError, match=f"{name} must be None"):
        load(tmp_path / "x", **{name: Own()})


@pytest.mark.parametrize("block", ["gated", "plain"])
@pytest.mark.parametrize("denoiser", [Shrinking(), shrink], ids=["module", "function"])
def test_a_metric_around_a_denoiser_is_rebuilt_around_the_denoiser_that_is_given(tmp_path, denoiser, block):
    around = frame(reduced=False)
    mean = FrozenDenoiser(denoiser, around)
    model = build_model(DIM, RANK, width=8, n_blocks=1, spread=0.7, block=block, mean=mean).float()
    randomized(model.factor)
    geometry = tiny_geometry(field=NeuralField(model, around))
    save(geometry, tmp_path / "x")
    with pytest.raises(LoadError, match="denoiser must be given"):
        load(tmp_path / "x")
    # The weights of a module are stored with the rest; those that are given do not matter.
    given = Shrinking(0.5) if isinstance(denoiser, nn.Module) else denoiser
    assert_same_answers(geometry, load(tmp_path / "x", denoiser=given))


@pytest.mark.parametrize("denoiser", [Shrinking(), shrink], ids=["module", "function"])
def test_a_denoiser_of_images_sees_images(tmp_path, denoiser):
    def checked(points, bandwidth):
        assert points.shape[1:] == IMAGE
        return denoiser(points, bandwidth)

    around = AffineFrame(torch.zeros(64, dtype=torch.float64), 0.5)
    settings = UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1, attention=())
    mean = FrozenDenoiser(of_flat_points(denoiser, IMAGE, 64), around)
    model = build_image_model(IMAGE, RANK, spread=0.9, settings=settings, mean=mean).float()
    geometry = dataclasses.replace(image_geometry(), field=NeuralField(model, around))
    save(geometry, tmp_path / "x")
    given = denoiser if isinstance(denoiser, nn.Module) else checked
    assert_same_answers(geometry, load(tmp_path / "x", denoiser=given))
