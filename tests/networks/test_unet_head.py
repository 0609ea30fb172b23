"""What only a factor has: a wide hidden layer before its rows, and a map of positions."""

import dataclasses
import json
import pickle
from collections import Counter

import pytest
import torch
from torch import nn

from carre.fields import NeuralField
from carre.metric import AffineFrame
from carre.networks import UNet, UNetSettings, build_image_model, rebuild_model
from carre.networks.unet import Convolution, SpatialAttention
from carre.storage import export, load, save
from tests.networks.unets import model_of, numel
from tests.storage.geometries import randomized, tiny_geometry

PLAIN = UNetSettings(channels=4, multipliers=(1, 2), n_blocks=1, attention=())
WIDE = dataclasses.replace(PLAIN, head_channels=10)
PLACED = dataclasses.replace(PLAIN, positions=True)
BOTH = dataclasses.replace(WIDE, positions=True)
ODD = (1, 5, 7)


def of(settings, sample_shape=ODD, rank=3, seed=0):
    torch.manual_seed(seed)
    return build_image_model(sample_shape, rank, spread=10.0, settings=settings)


def sizes(network):
    return {name: tuple(value.shape) for name, value in network.named_parameters()}


def field_of(settings, sample_shape=ODD, rank=3):
    """A field whose weights are all random, on images of odd sides."""
    center = torch.zeros(numel(sample_shape), dtype=torch.float64)
    return NeuralField(randomized(of(settings, sample_shape, rank)), AffineFrame(center, 0.5))


@pytest.fixture
def points(rng):
    return torch.randn(4, numel(ODD), generator=rng)


@pytest.mark.parametrize("rank", [1, 3])
def test_only_a_factor_has_them(rank):
    model, plain = of(BOTH, rank=rank), of(PLAIN, rank=rank)
    assert sizes(model.mean) == sizes(plain.mean)
    trunk = model.factor.trunk
    # Odd sides are padded to 6 × 8, so that they can be halved once.
    assert trunk.position.shape == (6, 8, 4)
    assert trunk.expansion.weight.shape == (10, 3, 3, 4)
    assert trunk.head.weight.shape == (rank, 1, 1, 10)
    assert plain.factor.trunk.position is plain.factor.trunk.expansion is None
    assert plain.factor.trunk.head.weight.shape == (rank, 3, 3, 4)


def test_patches_have_one_position_each():
    settings = dataclasses.replace(PLACED, patch=2)
    assert of(settings, (1, 9, 6)).factor.trunk.position.shape == (6, 4, 4)


@pytest.mark.parametrize("settings", [PLAIN, WIDE, PLACED, BOTH, UNetSettings.for_shape((1, 28, 28))])
def test_settings_survive_json(settings, unchecked):
    assert UNetSettings(**json.loads(json.dumps(settings.to_dict()))) == settings


def test_settings_of_older_models_have_neither():
    old = {name: value for name, value in PLAIN.to_dict().items() if name not in ("head_channels", "positions")}
    assert UNetSettings(**old) == PLAIN


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"head_channels": 0}, "head_channels must be a positive integer; got 0"),
        ({"head_channels": 2.5}, "head_channels must be a positive integer; got 2.5"),
        ({"head_channels": True}, "head_channels must be a positive integer; got True"),
        ({"positions": 1}, "positions must be True or False; got 1"),
        ({"positions": None}, "positions must be True or False; got None"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(wrong, message, unchecked):
    with pytest.raises(ValueError, match=message):
        UNetSettings(**wrong)


@pytest.mark.parametrize("changes", [{}, {"head_channels": 64}, {"positions": True}], ids=str)
def test_rows_start_with_a_norm_of_order_one(changes, rng):
    """The mean square of SiLU of unit Gaussians is 0.36, less at the borders; a hidden layer makes up for its own."""
    settings = dataclasses.replace(UNetSettings(32, (1, 2), 1, ()), **changes)
    model = of(settings, (1, 16, 16), rank=8)
    squares = model(torch.randn(8, 256, generator=rng), torch.full((8,), 0.1))[1].square().sum(2)
    low, high = (0.5, 1.5) if changes.get("head_channels") else (0.1, 1.0)
    assert low < squares.mean().item() < high


@pytest.mark.parametrize(("settings", "is_equivariant"), [(PLAIN, True), (WIDE, True), (PLACED, False)])
def test_only_positions_tell_a_factor_where_a_pixel_lies(settings, is_equivariant):
    """Away from the borders and without attention, a shift by the stride shifts the answer: reach is 32 pixels."""
    side, stride, inside = 76, 2, slice(36, 40)
    network = model_of(dataclasses.replace(settings, multipliers=(1, 1)), (1, side, side)).factor.trunk
    for module in network.modules():
        if isinstance(module, SpatialAttention):
            nn.init.zeros_(module.answer.weight)
    image = torch.zeros(1, side, side, dtype=torch.float64)
    image[:, 36:40, 36:40] = torch.arange(16.0).double().reshape(4, 4) / 16
    pair = torch.stack([image, image.roll((stride, stride), (1, 2))]).flatten(1)
    here, there = network(pair, torch.full((2,), 0.3).double()).reshape(2, 2, side, side)
    back = there.roll((-stride, -stride), (1, 2))
    apart = (back - here)[:, inside, inside].abs().max().item()
    assert (apart < 1e-9) == is_equivariant
    assert here[:, inside, inside].std() > 1e-3, "the image is seen"


def test_the_hidden_layer_is_a_layer_of_its_own():
    """Its activation keeps more rows independent than the pixels around one have numbers: 9 × 4 here."""
    settings = dataclasses.replace(PLAIN, head_channels=60)
    network = model_of(settings, (1, 6, 6), rank=48).factor.trunk
    images = torch.randn(8, 36, generator=torch.Generator().manual_seed(1)).double()
    rows = network(images, torch.full((8,), 0.5).double()).reshape(8, 48, 36).transpose(0, 1).flatten(1)
    narrow = model_of(PLAIN, (1, 6, 6), rank=48).factor.trunk
    linear = narrow(images, torch.full((8,), 0.5).double()).reshape(8, 48, 36).transpose(0, 1).flatten(1)
    centered = linear - narrow.head.bias[:, None]
    assert torch.linalg.matrix_rank(centered) == 36
    assert torch.linalg.matrix_rank(rows - network.head.bias[:, None]) == 48


def test_more_numbers_are_held_with_a_wide_layer():
    sizes_of = [of(settings, (1, 8, 8), rank=8).factor.trunk.numbers_per_point for settings in (PLAIN, WIDE)]
    much = dataclasses.replace(PLAIN, head_channels=500)
    most = of(much, (1, 8, 8), rank=8)
    assert sizes_of[0] <= sizes_of[1] < most.factor.trunk.numbers_per_point
    # Before and after the activation.
    assert most.factor.trunk.numbers_per_point >= 2 * 500 * 64
    assert most.mean.trunk.numbers_per_point == of(PLAIN, (1, 8, 8)).mean.trunk.numbers_per_point


def test_networks_without_them_draw_the_same_weights_as_ever():
    """With the mean drawn first and the outlet of the factor last but one, all before it is the same with them, too."""
    plain, placed = of(PLAIN), of(BOTH)
    torch.manual_seed(0)
    explicit = UNetSettings(4, (1, 2), 1, (), 1, head_channels=None, positions=False)
    again = build_image_model(ODD, 3, spread=10.0, settings=explicit)
    assert all(map(torch.equal, plain.parameters(), again.parameters()))
    given, theirs = dict(plain.named_parameters()), dict(placed.named_parameters())
    after = ("factor.trunk.head", "factor.trunk.embedding", "factor.trunk.film")
    for name, weights in given.items():
        assert name.startswith(after) or torch.equal(weights, theirs[name]), name


@pytest.mark.parametrize(("settings", "others"), [(PLAIN, []), (BOTH, [(6, 8, 4)])])
def test_every_draw_is_a_weight(settings, others, monkeypatch):
    drawn, draw = Counter(), torch.randn

    def counted(*size):
        drawn[tuple(size)] += 1
        return draw(*size)

    monkeypatch.setattr(torch, "randn", counted)
    network = UNet(ODD, 3, settings, head_deviation=1.0)
    parts = [module for module in network.modules() if isinstance(module, Convolution)]
    weights = [tuple(w.shape) for part in parts for w in (part.weight, part.bias) if w is not None]
    assert drawn == Counter(weights + others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_model_gives_the_same_bits(tmp_path, points, dtype):
    field = field_of(BOTH)
    landmarks = torch.randn(10, numel(ODD), generator=torch.Generator().manual_seed(3))
    about = {
        "feature_names": None,
        "sample_shape": ODD,
        "rank": 3,
        "parameters": {"network": BOTH},
    }
    save(tiny_geometry(field=field, landmarks=landmarks, **about), tmp_path / "x")
    again = load(tmp_path / "x")
    assert again.parameters["network"] == BOTH
    assert torch.equal(again.field.metric(points.to(dtype), 0.3).factor, field.metric(points.to(dtype), 0.3).factor)


def test_a_model_can_be_rebuilt_and_pickled(points):
    field = field_of(BOTH)
    model = field.model
    fresh = rebuild_model(model.architecture)
    assert sizes(fresh) == sizes(model)
    again = pickle.loads(pickle.dumps(field))
    assert torch.equal(again.metric(points, 0.3).factor, field.metric(points, 0.3).factor)


@pytest.mark.slow
def test_an_exported_field_gives_the_same_numbers_for_any_number_of_images(tmp_path, points):
    field = field_of(BOTH)
    export(tiny_geometry(field=field), tmp_path / "field.pt2", kind="metric")
    program = torch.export.load(tmp_path / "field.pt2").module()
    for n in (1, 2, 4):
        expected = field.metric(points[:n], 0.3).factor
        torch.testing.assert_close(program(points[:n], torch.full((n,), 0.3)), expected, rtol=1e-5, atol=1e-5)


def test_a_single_image_is_answered_like_many(points):
    field = field_of(BOTH)
    together = field.metric(points.double(), 0.3).factor
    alone = torch.cat([field.metric(point[None].double(), 0.3).factor for point in points])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)


def test_rounded_products_leave_two_digits(points):
    """Weights and images in bfloat16, of eight bits; positions are rounded as they are added."""
    field = field_of(BOTH)
    exact, rounded = (some.metric(points, 0.3).factor for some in (field, field.with_mixed_precision()))
    assert rounded.dtype == torch.float32
    assert 1e-4 * exact.norm() < (rounded - exact).norm() < 0.05 * exact.norm()


def test_positions_and_the_hidden_layer_are_trained(points):
    model = of(BOTH)
    model(points, torch.full((4,), 0.3))[1].square().sum().backward()
    for weights in (model.factor.trunk.position, model.factor.trunk.expansion.weight):
        assert weights.grad.abs().max() > 0
