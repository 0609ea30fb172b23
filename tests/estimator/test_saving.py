"""A loaded geometry is the fitted one: its answers to the last bit, its attributes, and what one can do with it."""

import copy
import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from carre import MetricMatching
from carre.data import ImageDataset, Normalization
from carre.networks import UNetSettings
from carre.storage import LoadError, save, shipped
from tests.samples import TINY, circle
from tests.storage.states import image_state

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
UNET = UNetSettings(channels=4, multipliers=(1, 2), n_blocks=1, attention=())
IMAGES = {"network": UNET, "width": None, "n_blocks": 3, "rank": 2, "bandwidth": 1.0, "max_steps": 3, "batch_size": 8}


class Own(nn.Module):
    """A network of the user's own, for points in three coordinates."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 9)

    def forward(self, points, bandwidth):
        rows = self.head(torch.cat([points, bandwidth[:, None]], 1)).reshape(-1, 3, 3)
        return points + rows[:, 0], rows[:, 1:]


def shrink(points, bandwidth):
    return points / (1 + bandwidth[:, None] ** 2)


def images():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 1, 6, 6), dtype=np.uint8)
    return ImageDataset(pixels, normalization=Normalization((0.5,), 0.25))


# A given scale saves the time to choose one; the first case does without.
GIVEN = {"bandwidth": 0.2}
# What is fitted, to what, and what has to be brought along to load it.
CASES = {
    "joint, in a plane of three columns": ({}, lambda: pd.DataFrame(circle(80), columns=["a", "b", "c"]), {}),
    "uncentered": ({**GIVEN, "method": "uncentered", "ridge": 0.1}, lambda: circle(80), {}),
    "float32, all coordinates": (
        {**GIVEN, "reduce": False, "block": "plain"},
        lambda: circle(80, dtype=np.float32),
        {},
    ),
    "images": (IMAGES, images, {}),
    "network of one's own": ({**GIVEN, "network": Own()}, lambda: circle(80), {"network": Own()}),
    "around a denoiser": (
        {**GIVEN, "method": "two-stage", "denoiser": shrink},
        lambda: circle(80),
        {"denoiser": shrink},
    ),
}

# These go through the same code as the others, or are also tested in tests/storage.
SLOW = ("float32, all coordinates", "images", "around a denoiser")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES],
)
def pair(request, tmp_path_factory):
    """A fitted geometry, what was loaded of it, and its samples."""
    options, make_samples, brought = CASES[request.param]
    samples = make_samples()
    fitted = MetricMatching(**{**TINY, **options}).fit(samples)
    folder = tmp_path_factory.mktemp("saved") / "geometry"
    fitted.save_pretrained(folder)
    return fitted, MetricMatching.from_pretrained(folder, device="cpu", **brought), samples


def answers(geometry, samples):
    """What a geometry says at samples, by the methods that need each of its parts."""
    found = [geometry.metric(samples).factor, geometry.dimension(samples), geometry.eigenvalues(samples)]
    if geometry.is_centered_:
        found += [geometry.denoise(samples), geometry.score(samples), geometry.check(samples).nearest]
    return [np.asarray(part) for part in found]


def test_answers_are_the_same_to_the_last_bit(pair):
    fitted, loaded, samples = pair
    for before, after in zip(answers(fitted, samples), answers(loaded, samples), strict=True):
        np.testing.assert_array_equal(after, before)
        assert after.dtype == before.dtype


def test_every_fitted_attribute_is_there(pair):
    """Whatever a fit learns has to be stored: an attribute that is added to the fit fails here until it is."""
    fitted, loaded, _ = pair
    learned = {name for name in vars(fitted) if name.endswith("_")}
    assert learned == {name for name in vars(loaded) if name.endswith("_")}
    for name in learned - {"field_", "history_", "scale_profile_"}:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(fitted, name))
        assert type(getattr(loaded, name)) is type(getattr(fitted, name)), name
    for name in ("history_", "scale_profile_"):
        before, after = getattr(fitted, name), getattr(loaded, name)
        assert type(after) is type(before)
        if before is not None:
            np.testing.assert_equal(dataclasses.asdict(after), dataclasses.asdict(before))


def test_the_parameters_are_those_of_the_fit(pair):
    fitted, loaded, _ = pair
    before, after = fitted.get_params(), loaded.get_params()
    own = isinstance(before["network"], nn.Module)
    assert {name for name in before if before[name] != after[name]} == ({"network"} if own else set())
    assert isinstance(after["network"], nn.Module) == own


def test_a_loaded_geometry_is_an_estimator_like_any_other(pair):
    fitted, loaded, samples = pair
    again = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_array_equal(again.dimension(samples), fitted.dimension(samples))
    fresh = clone(loaded)
    assert not hasattr(fresh, "field_")
    assert fresh.get_params()["max_steps"] == fitted.max_steps


def test_a_loaded_geometry_can_be_saved_again(pair, tmp_path):
    fitted, loaded, samples = pair
    loaded.save_pretrained(tmp_path / "again")
    brought = {name: getattr(loaded, name) for name in ("network", "denoiser")}
    brought = {name: value for name, value in brought.items() if callable(value)}
    again = MetricMatching.from_pretrained(tmp_path / "again", device="cpu", **brought)
    np.testing.assert_array_equal(again.metric(samples).factor, fitted.metric(samples).factor)


@pytest.fixture(scope="module")
def fitted():
    return MetricMatching(**TINY, **GIVEN).fit(pd.DataFrame(circle(80), columns=["a", "b", "c"]))


@pytest.mark.slow
def test_another_process_gives_the_same_bits(fitted, tmp_path):
    """Tables, and images, whose convolutions are another library's."""
    fitted.save_pretrained(tmp_path / "geometry")
    save(image_state(), tmp_path / "images")
    np.save(tmp_path / "samples.npy", circle(80))
    code = f"""
import os, numpy as np, torch
from carre import MetricMatching
from carre.storage import load
os.chdir({str(tmp_path)!r})
torch.set_num_threads({torch.get_num_threads()})
state = load("images")
print(state.field.metric(state.landmarks, 0.2).factor.numpy().tobytes().hex())
geometry = MetricMatching.from_pretrained("geometry", device="cpu")
samples = np.load("samples.npy")
for dtype in (np.float32, np.float64):
    x = samples.astype(dtype)
    print(geometry.metric(x).factor.numpy().tobytes().hex(), geometry.denoise(x).tobytes().hex())
    print(geometry.dimension(x).tobytes().hex(), geometry.score(x).hex())
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = iter(done.stdout.split())
    state = image_state()
    assert next(found) == state.field.metric(state.landmarks, 0.2).factor.numpy().tobytes().hex()
    for dtype in (np.float32, np.float64):
        x = circle(80).astype(dtype)
        assert next(found) == fitted.metric(x).factor.numpy().tobytes().hex()
        assert next(found) == fitted.denoise(x).tobytes().hex()
        assert next(found) == fitted.dimension(x).tobytes().hex()
        assert next(found) == fitted.score(x).hex()


def test_paths_find_their_way_over_the_stored_landmarks(fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "geometry", n_landmarks=30)
    loaded = MetricMatching.from_pretrained(tmp_path / "geometry", device="cpu")
    assert torch.equal(loaded.landmarks_, fitted.landmarks_[:30])
    assert loaded.geodesic(circle(80)[0], circle(80)[1]).nodes.shape[-1] == 3


def test_column_names_are_checked_after_loading(fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "geometry")
    loaded = MetricMatching.from_pretrained(tmp_path / "geometry")
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.dimension(pd.DataFrame(circle(80), columns=["z", "b", "c"]))


def test_what_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        MetricMatching().save_pretrained(tmp_path / "geometry")
    assert list(tmp_path.iterdir()) == []


def test_a_generator_is_no_part_of_a_geometry(fitted, tmp_path):
    geometry = copy.deepcopy(fitted).set_params(random_state=np.random.RandomState(0))
    geometry.save_pretrained(tmp_path / "geometry")
    assert MetricMatching.from_pretrained(tmp_path / "geometry").random_state is None


def test_a_shipped_geometry_is_loaded_by_its_name(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "_location", lambda: tmp_path)
    fitted.save_pretrained(tmp_path / "circle")
    assert MetricMatching.from_pretrained("circle").bandwidth_ == fitted.bandwidth_
    with pytest.raises(LoadError, match=r"\(circle\); got 'sphere'"):
        MetricMatching.from_pretrained("sphere")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("value", [3, None, ["mnist"], b"mnist"], ids=repr)
def test_what_is_no_path_is_refused_with_a_sentence(fitted, value):
    with pytest.raises(LoadError, match=r"^name_or_folder must be a path or a name; got"):
        MetricMatching.from_pretrained(value)
    with pytest.raises(ValueError, match=r"^folder must be a path; got"):
        fitted.save_pretrained(value)


def test_a_parameter_of_a_later_version_asks_for_an_upgrade(fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "geometry")
    path = tmp_path / "geometry" / "config.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"ridge": 0.0,', '"ridge": 0.0, "magic": 1,', 1))
    with pytest.raises(LoadError, match=r"MetricMatching does not know: \['magic'\]. Upgrade carre"):
        MetricMatching.from_pretrained(tmp_path / "geometry")


def test_a_wrong_device_is_refused_before_anything_is_read():
    with pytest.raises(ValueError, match="device must be one of torch's"):
        MetricMatching.from_pretrained("nowhere", device="toaster")


@pytest.mark.gpu
def test_a_geometry_that_was_fitted_on_a_gpu_is_loaded_anywhere(tmp_path):
    fitted = MetricMatching(max_steps=50, width=16, verbose=False, random_state=0, device="cuda").fit(circle(200))
    fitted.save_pretrained(tmp_path / "geometry")
    on_gpu = MetricMatching.from_pretrained(tmp_path / "geometry", device="cuda")
    np.testing.assert_array_equal(on_gpu.denoise(circle(200)), fitted.denoise(circle(200)))
    on_cpu = MetricMatching.from_pretrained(tmp_path / "geometry", device="cpu")
    assert on_cpu.device_.type == "cpu"
    np.testing.assert_allclose(on_cpu.denoise(circle(200)), fitted.denoise(circle(200)), atol=1e-6)
