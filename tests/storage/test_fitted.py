"""A loaded geometry is the fitted one: its answers to the last bit, what it holds, and what one can do with it."""

import dataclasses
import json
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import carre
from carre import LoadError, load, save
from carre.data import ImageDataset, Normalization
from carre.networks import UNetSettings
from tests.samples import TINY, circle
from tests.storage.geometries import image_geometry

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
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


def table():
    return pd.DataFrame(circle(80), columns=["a", "b", "c"])


def images():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 1, 6, 6), dtype=np.uint8)
    return ImageDataset(pixels, normalization=Normalization((0.5,), 0.25))


# A given scale saves the time to choose one; the first case does without.
GIVEN = {"bandwidth": 0.2}
# What is fitted, to what, and what has to be brought along to load it.
CASES = {
    "joint, in a plane of three columns": ({}, table, {}),
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


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """A fitted geometry, what was loaded of it, its samples, and what was brought along."""
    options, make_samples, brought = CASES[request.param]
    samples = make_samples()
    fitted = carre.fit(samples, **{**TINY, **options})
    folder = tmp_path_factory.mktemp("saved") / "geometry"
    save(fitted, folder)
    return fitted, load(folder, device="cpu", **brought), samples, brought


def answers(geometry, samples):
    """What a geometry says at samples, by the methods that need each of its parts."""
    found = [geometry.metric(samples).factor, geometry.dimension(samples), geometry.eigenvalues(samples)]
    if geometry.is_centered:
        found += [geometry.denoise(samples), geometry.score(samples), geometry.check(samples).nearest]
    return [np.asarray(part) for part in found]


@pytest.mark.slow
def test_answers_are_the_same_to_the_last_bit(pair):
    fitted, loaded, samples, _ = pair
    for before, after in zip(answers(fitted, samples), answers(loaded, samples), strict=True):
        np.testing.assert_array_equal(after, before)
        assert after.dtype == before.dtype


@pytest.mark.slow
def test_everything_that_a_fit_returns_is_there(pair):
    """Whatever a geometry holds has to be stored: an attribute that is added to it fails here until it is."""
    fitted, loaded, *_ = pair
    for attribute in dataclasses.fields(fitted):
        before, after = getattr(fitted, attribute.name), getattr(loaded, attribute.name)
        if attribute.name in ("field", "parameters", "_kept"):
            continue
        assert type(after) is type(before), attribute.name
        if attribute.name in ("history", "scale_profile") and before is not None:
            before, after = dataclasses.asdict(before), dataclasses.asdict(after)
        elif isinstance(before, torch.Tensor):
            before, after = before.numpy(), after.numpy()
        np.testing.assert_equal(after, before, err_msg=attribute.name)


@pytest.mark.slow
def test_the_parameters_are_those_of_the_fit(pair):
    """Neither the device nor a checkpoint is stored; a network of one's own is the one that was brought along."""
    fitted, loaded, _, brought = pair
    before = {name: value for name, value in fitted.parameters.items() if name not in ("device", "checkpoint")}
    if not callable(before["denoiser"]):
        del before["denoiser"]
    assert loaded.parameters == {**before, **brought}
    assert fitted.parameters["device"] == "cpu"


@pytest.mark.slow
def test_a_loaded_geometry_can_be_pickled(pair):
    fitted, loaded, samples, _ = pair
    again = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_array_equal(again.dimension(samples), fitted.dimension(samples))


@pytest.mark.slow
def test_a_loaded_geometry_can_be_saved_again(pair, tmp_path):
    fitted, loaded, samples, brought = pair
    save(loaded, tmp_path / "again")
    again = load(tmp_path / "again", device="cpu", **brought)
    np.testing.assert_array_equal(again.metric(samples).factor, fitted.metric(samples).factor)


@pytest.fixture(scope="module")
def fitted():
    return carre.fit(table(), **TINY, **GIVEN)


@pytest.mark.slow
def test_another_process_gives_the_same_bits(fitted, tmp_path):
    """Tables, and images, whose convolutions are another library's."""
    save(fitted, tmp_path / "geometry")
    save(image_geometry(), tmp_path / "images")
    np.save(tmp_path / "samples.npy", circle(80))
    code = f"""
import os, numpy as np, torch
import carre
os.chdir({str(tmp_path)!r})
torch.set_num_threads({torch.get_num_threads()})
images = carre.load("images", device="cpu")
print(images.field.metric(images.landmarks, 0.2).factor.numpy().tobytes().hex())
geometry = carre.load("geometry", device="cpu")
samples = np.load("samples.npy")
for dtype in (np.float32, np.float64):
    x = samples.astype(dtype)
    print(geometry.metric(x).factor.numpy().tobytes().hex(), geometry.denoise(x).tobytes().hex())
    print(geometry.dimension(x).tobytes().hex(), geometry.score(x).hex())
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = iter(done.stdout.split())
    geometry = image_geometry()
    assert next(found) == geometry.field.metric(geometry.landmarks, 0.2).factor.numpy().tobytes().hex()
    for dtype in (np.float32, np.float64):
        x = circle(80).astype(dtype)
        assert next(found) == fitted.metric(x).factor.numpy().tobytes().hex()
        assert next(found) == fitted.denoise(x).tobytes().hex()
        assert next(found) == fitted.dimension(x).tobytes().hex()
        assert next(found) == fitted.score(x).hex()


@pytest.mark.slow
def test_paths_find_their_way_over_the_stored_landmarks(fitted, tmp_path):
    save(fitted, tmp_path / "geometry", n_landmarks=30)
    loaded = load(tmp_path / "geometry", device="cpu")
    assert torch.equal(loaded.landmarks, fitted.landmarks[:30])
    assert loaded.path(circle(80)[0], circle(80)[1]).nodes.shape[-1] == 3


def test_column_names_are_checked_after_loading(fitted, tmp_path):
    save(fitted, tmp_path / "geometry")
    loaded = load(tmp_path / "geometry")
    with pytest.raises(ValueError, match="points must have the columns of the fit, a, b, c; got none called a"):
        loaded.dimension(pd.DataFrame(circle(80), columns=["z", "b", "c"]))


def test_a_generator_is_no_part_of_a_geometry(fitted, tmp_path):
    told = {**fitted.parameters, "random_state": np.random.RandomState(0)}
    save(dataclasses.replace(fitted, parameters=told), tmp_path / "geometry")
    assert "random_state" not in load(tmp_path / "geometry").parameters


def test_whether_bars_are_drawn_comes_back(fitted, tmp_path):
    told = {**fitted.parameters, "verbose": True}
    for geometry in (fitted, dataclasses.replace(fitted, parameters=told, verbose=True)):
        save(geometry, tmp_path / "geometry")
        assert load(tmp_path / "geometry").verbose == geometry.verbose


def test_a_parameter_of_a_later_version_asks_for_an_upgrade(fitted, tmp_path):
    save(fitted, tmp_path / "geometry")
    path = tmp_path / "geometry" / "config.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"ridge": 0.0,', '"ridge": 0.0, "magic": 1,', 1))
    with pytest.raises(LoadError, match=r"carre.fit does not know: \['magic'\]. Upgrade carre"):
        load(tmp_path / "geometry")


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def tamper(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)


WRONGS = {
    "is truncated": truncate,
    "is not the file that was saved": tamper,
    "holds a FunctionMatching, not a Geometry": lambda folder: edit(folder, **{"class": "FunctionMatching"}),
    "Upgrade carre": lambda folder: edit(folder, format_version=99),
    "must be JSON": lambda folder: (folder / "config.json").write_text("{", encoding="utf-8"),
    "this is one of something else": lambda folder: edit(folder, format="another library"),
    "it has no config.json": lambda folder: (folder / "config.json").unlink(),
}


def test_every_wrong_has_its_own_sentence(fitted, tmp_path):
    messages = []
    for wanted, spoil in WRONGS.items():
        folder = tmp_path / f"folder {len(messages)}"
        save(fitted, folder)
        spoil(folder)
        with pytest.raises(LoadError, match=wanted) as caught:
            load(folder)
        messages.append(str(caught.value))
    for wanted in WRONGS:
        assert sum(wanted in message for message in messages) == 1, wanted


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_geometry_that_was_fitted_on_one_device_is_loaded_on_any(device, tmp_path):
    X = circle(200)
    fitted = carre.fit(X, max_steps=50, width=16, verbose=False, random_state=0, device=device)
    save(fitted, tmp_path / "geometry")
    assert load(tmp_path / "geometry").device.type == "cuda"
    for place in ("cpu", "cuda"):
        loaded = load(tmp_path / "geometry", device=place)
        assert loaded.device.type == place
        tolerance = {"atol": 0, "rtol": 0} if place == device else {"atol": 1e-6}
        np.testing.assert_allclose(loaded.denoise(X), fitted.denoise(X), **tolerance)
        np.testing.assert_allclose(loaded.eigenvalues(X), fitted.eigenvalues(X), **tolerance)
