"""What reaches the network, by stand-ins that return it, and what is said of files that hold something else."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from carre.data import DamagedFileError, Normalization
from experiments.measures import inception_features
from experiments.measures.inception import _convolutions

PIXELS = Normalization((0.0,), 1.0)


class Whole(nn.Module):
    """Return the whole input as features."""

    def forward(self, x):
        return x.flatten(1)


class Channels(nn.Module):
    """Return the mean of each channel, with a weight that is trained elsewhere."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x.mean((2, 3)) * self.weight


class Maps(nn.Module):
    def forward(self, x):
        return x.mean(2)


class One(nn.Module):
    def forward(self, x):
        return x.flatten(1).mean(0, keepdim=True)


class Pair(nn.Module):
    def forward(self, x):
        return x.flatten(1), x


class Small(nn.Module):
    """Take nothing but 32 × 32."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 32 * 32, 4)

    def forward(self, x):
        return self.linear(x.flatten(1))


@pytest.fixture
def stand_in(tmp_path):
    """Save a module as TorchScript, and load features of it."""

    def save(module):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.script(module).save(tmp_path / "network.pt")
        return tmp_path / "network.pt"

    return save


@pytest.fixture
def load(stand_in):
    return lambda module, **options: inception_features(stand_in(module), verify=False, **options)


def test_pixels_arrive_as_the_network_was_trained_on_them(load, rng):
    """(255x − 128)/128; an image of 299 × 299 is not resized."""
    pixels = torch.rand(2, 3, 299, 299, generator=rng)
    answer = load(Whole(), normalization=PIXELS)(pixels)
    torch.testing.assert_close(answer, ((255 * pixels - 128) / 128).flatten(1))


def test_the_normalization_brings_images_back_to_pixels(load):
    pixels = np.full((1, 3, 8, 8), 51, dtype=np.uint8)
    expected = torch.full((1, 3), (51 - 128) / 128)
    for normalization in (PIXELS, Normalization((0.5,), 0.5), Normalization((0.1, 0.2, 0.7), 0.3)):
        images = torch.as_tensor(normalization.encode(pixels))
        torch.testing.assert_close(load(Channels(), normalization=normalization)(images), expected)


def test_images_in_the_interval_from_minus_one_to_one_are_the_default(load):
    torch.testing.assert_close(load(Channels())(torch.ones(1, 3, 8, 8)), torch.full((1, 3), (255 - 128) / 128))


def test_nothing_is_clipped(load):
    torch.testing.assert_close(
        load(Channels(), normalization=PIXELS)(torch.full((1, 1, 8, 8), 3.0)), torch.full((1, 3), (765 - 128) / 128)
    )


def test_one_channel_is_repeated_to_three(load, rng):
    features, gray = load(Whole()), torch.rand(2, 1, 9, 9, generator=rng)
    assert torch.equal(features(gray), features(gray.repeat(1, 3, 1, 1)))


def test_images_grow_by_linear_interpolation_between_the_centers_of_pixels(load):
    """Pixel i of 299 has its center at (i + ½)W/299 − ½, and a ramp stays a ramp between the outermost centers."""
    width = 23
    ramp = torch.arange(width, dtype=torch.float32).expand(1, 1, width, width) / width
    row = load(Whole(), normalization=PIXELS)(ramp).reshape(3, 299, 299)[1, 150]
    centers = ((torch.arange(299) + 0.5) * width / 299 - 0.5).clamp(0, width - 1)
    torch.testing.assert_close(row, (255 * centers / width - 128) / 128)


def test_images_shrink_without_aliasing(load):
    """Every third pixel of stripes is white or black; their average is gray."""
    stripes = (torch.arange(897) % 2).float().expand(1, 1, 897, 897)
    row = load(Whole(), normalization=PIXELS)(stripes).reshape(3, 299, 299)[0, 150]
    gray = (127.5 - 128) / 128
    assert (row[5:-5] - gray).abs().max() < 0.2


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_the_batch_size_changes_nothing(load, rng, batch_size):
    images = torch.randn(4, 3, 8, 8, generator=rng)
    features = load(Channels(), batch_size=batch_size)
    torch.testing.assert_close(features(images), torch.cat([features(image[None]) for image in images]))


def test_features_are_single_precision_without_gradients_and_arrays_for_arrays(load, rng):
    features, images = load(Channels()), torch.randn(2, 3, 8, 8, generator=rng, dtype=torch.float64)
    answer = features(images.requires_grad_())
    assert answer.dtype == torch.float32
    assert not answer.requires_grad
    array = features(images.detach().numpy())
    assert isinstance(array, np.ndarray)
    assert np.array_equal(array, answer.numpy())


def test_loading_and_computing_makes_no_noise(stand_in):
    path = stand_in(Channels())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features = inception_features(str(path), verify=False, device="cpu")
        features(torch.zeros(1, 1, 8, 8))
    assert repr(features) == "inception_features(normalization=Normalization(mean=(0.5,), deviation=0.5), device=cpu)"


def test_convolutions_are_exact_only_as_long_as_it_takes(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    with _convolutions(exact=True):
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32
    with _convolutions(exact=False):
        assert torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("channels", [2, 4])
def test_other_numbers_of_channels_are_refused(load, channels):
    with pytest.raises(ValueError, match=f"images must have 1 or 3 channels, gray or color; got {channels}"):
        load(Channels())(torch.zeros(1, channels, 8, 8))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "images must be floating"),
        (torch.zeros(3, 8, 8), "images must have shape"),
        (torch.full((1, 3, 8, 8), torch.nan), "images must be finite"),
    ],
)
def test_bad_images_are_named(load, images, message):
    with pytest.raises(ValueError, match=message):
        load(Channels())(images)


def test_a_missing_file_and_a_folder_are_named_with_where_to_get_it(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"there is no file or folder .*nowhere\.pt\. The network of the FID is default_1\.pt in",
    ):
        inception_features(tmp_path / "nowhere.pt")
    with pytest.raises(ValueError, match=r"path must be a file; .* is a folder"):
        inception_features(tmp_path)


def test_another_network_is_taken_only_where_that_was_meant(stand_in):
    path = stand_in(Channels())
    with pytest.raises(DamagedFileError, match=r"its checksum differs.*Pass verify=False if it is meant to be another"):
        inception_features(path)
    assert inception_features(path, verify=False)(torch.zeros(5, 1, 8, 8)).shape == (5, 3)


def test_a_file_that_is_not_torchscript_is_named(tmp_path):
    (tmp_path / "text.pt").write_text("weights")
    (tmp_path / "empty.pt").touch()
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "state.pt")
    for name in ("text.pt", "empty.pt", "state.pt"):
        with pytest.raises(DamagedFileError, match=rf"{name} is not a TorchScript network: \S.*wavelet_features needs"):
            inception_features(tmp_path / name, verify=False)


@pytest.mark.parametrize(
    ("module", "got"),
    [
        (Maps(), r"\(2, 3, 299\)"),
        (One(), r"\(1, 268203\)"),
        (Pair(), "tuple"),
        (Small(), "the error: .*shapes cannot be multiplied"),
    ],
)
def test_a_network_that_does_not_make_vectors_of_images_is_named(load, module, got):
    with pytest.raises(ValueError, match=rf"from \(n, 3, 299, 299\) to \(n, k\); for two images .* gives {got}"):
        load(module)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "abacus"}, "device must be one of torch's that there is here, like 'cpu'; got 'abacus'"),
        ({"batch_size": 0}, "batch_size must be a positive integer; got 0"),
        ({"normalization": 0.5}, r"normalization must be a Normalization\(mean, deviation\); got 0.5"),
    ],
)
def test_bad_options_are_named(load, options, message):
    with pytest.raises(ValueError, match=message):
        load(Channels(), **options)


@pytest.mark.gpu
def test_features_return_to_the_device_of_the_images(load, rng):
    images = torch.randn(3, 1, 8, 8, generator=rng)
    here = load(Channels())(images)
    there = load(Channels())(images.cuda())
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), here)
    assert not load(Channels(), device="cuda")(images).is_cuda
