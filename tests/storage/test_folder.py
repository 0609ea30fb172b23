"""Folders: what is written comes back to the last bit, what is damaged is named, what is there is not lost."""

import dataclasses
import hashlib
import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from carre.fields.protocol import NoDenoiserError
from carre.networks import build_model
from carre.storage import LoadError, load, save
from tests.storage.states import HULL, RANK, answers, history, image_state, randomized, tiny_state

FILES = {"config.json", "model.safetensors", "README.md"}


def edit(place, change):
    """Change config.json as JSON."""
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    change(config)
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")


def change_tensors(place, change):
    """Change the tensors and, unlike somebody who tampers, also what config.json says about the file."""
    tensors = load_file(place / "model.safetensors")
    change(tensors)
    save_file(tensors, place / "model.safetensors")
    content = (place / "model.safetensors").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    edit(place, lambda config: config["weights"].update(bytes=len(content), sha256=digest))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [tiny_state, image_state])
def test_answers_are_the_same_to_the_last_bit(tmp_path, make, dtype):
    state = make()
    save(state, tmp_path / "x")
    for before, after in zip(answers(state, dtype), answers(load(tmp_path / "x"), dtype), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("make", [tiny_state, image_state])
def test_everything_beside_the_network_comes_back_exactly(tmp_path, make):
    state = make()
    save(state, tmp_path / "x")
    again = load(tmp_path / "x")
    np.testing.assert_equal(dataclasses.asdict(again.history), dataclasses.asdict(state.history))
    assert again.history.evaluations == state.history.evaluations
    for attribute in dataclasses.fields(state.scale_profile):
        before, after = (getattr(s.scale_profile, attribute.name) for s in (state, again))
        np.testing.assert_array_equal(after, before)
        assert getattr(after, "dtype", None) == getattr(before, "dtype", None)
    assert torch.equal(again.landmarks, state.landmarks)
    assert again.landmarks.dtype == state.landmarks.dtype
    assert torch.equal(again.field.frame.center, state.field.frame.center)
    assert (again.field.frame.scale, again.field.ridge) == (state.field.frame.scale, state.field.ridge)
    np.testing.assert_array_equal(again.feature_names_in, state.feature_names_in)
    assert again.parameters == state.parameters
    for name in ("bandwidth", "bandwidth_range", "supported_from", "is_centered", "rank", "n_features_in"):
        assert getattr(again, name) == getattr(state, name)
    assert (again.sample_shape, again.normalization) == (state.sample_shape, state.normalization)


def test_an_uncentered_geometry_without_a_choice_of_scale_comes_back(tmp_path):
    model = randomized(build_model(HULL, RANK, width=8, n_blocks=1, spread=0.7, block="plain", with_mean=False))
    state = tiny_state(model, is_centered=False, history=history(with_mean=False), scale_profile=None)
    save(state, tmp_path / "x")
    again = load(tmp_path / "x")
    assert torch.equal(again.field.metric(state.landmarks, 0.2).factor, state.field.metric(state.landmarks, 0.2).factor)
    assert np.isnan(again.history.evaluations[0].predictive_loss)
    assert again.scale_profile is None
    with pytest.raises(NoDenoiserError):
        again.field.denoise(state.landmarks, 0.2)


def test_rounding_of_products_is_remembered(tmp_path):
    save(tiny_state(field=tiny_state().field.with_mixed_precision()), tmp_path / "x")
    assert load(tmp_path / "x").field.mixed_precision


def test_the_folder_holds_three_files_that_others_may_read(saved):
    assert {path.name for path in saved.iterdir()} == FILES
    umask = os.umask(0)
    os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in saved.iterdir()} == {0o666 & ~umask}


def test_the_description_is_strict_json(saved):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    config = json.loads((saved / "config.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert (config["format"], config["format_version"]) == ("carre", 1)
    assert set(config["versions"]) == {"carre", "torch", "numpy", "python"}
    assert config["weights"]["sha256"] == hashlib.sha256((saved / "model.safetensors").read_bytes()).hexdigest()


def test_loading_does_not_touch_the_callers_random_numbers(saved):
    torch.manual_seed(0)
    load(saved)
    found = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(3))


def test_nothing_is_unpickled(saved, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    load(saved)


def test_a_missing_folder_is_named():
    with pytest.raises(LoadError, match="there is no folder 'not/here'"):
        load("not/here")


@pytest.mark.parametrize("name", sorted(FILES - {"README.md"}))
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(LoadError, match=f"has no {name}. Copy the whole folder"):
        load(saved)


def test_the_page_is_not_needed(saved):
    (saved / "README.md").unlink()
    assert load(saved).bandwidth == 0.3


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_file_is_told_from_a_changed_one(saved, verify):
    content = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(content[:-1])
    with pytest.raises(LoadError, match=rf"truncated: {len(content) - 1} of {len(content)} bytes. Copy it again"):
        load(saved, verify=verify)


def test_a_pointer_of_git_lfs_is_recognized(saved):
    (saved / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(LoadError, match="git lfs pull"):
        load(saved)


def test_one_changed_bit_is_noticed_unless_told_not_to_look(saved):
    content = bytearray((saved / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (saved / "model.safetensors").write_bytes(bytes(content))
    with pytest.raises(LoadError, match="not the file that was saved: its SHA-256 is"):
        load(saved)
    assert load(saved, verify=False).bandwidth == 0.3


def test_what_is_appended_is_noticed(saved):
    with (saved / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(LoadError, match="not the file that was saved"):
        load(saved)


def test_a_file_that_is_not_one_of_safetensors_is_named(saved):
    size = (saved / "model.safetensors").stat().st_size
    (saved / "model.safetensors").write_bytes(b"\xff" * size)
    with pytest.raises(LoadError, match="must be a file of safetensors; it is damaged"):
        load(saved, verify=False)


@pytest.mark.parametrize("text", ["", "{", "\xff\xfe", '{"format": "carre",}'])
def test_a_description_that_is_not_json_is_named(saved, text):
    (saved / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(LoadError, match=r"config.json must be JSON"):
        load(saved)


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"model_type": "bert"}', '{"format": "other"}'])
def test_descriptions_of_other_libraries_are_refused(saved, text):
    (saved / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(LoadError, match="must describe a geometry of carre; this is one of something else"):
        load(saved)


def test_a_later_format_asks_for_an_upgrade(saved):
    edit(saved, lambda config: config.update(format_version=2, weights=None, versions={"carre": "9.0"}))
    with pytest.raises(LoadError, match=r"written by carre 9.0 in format 2; .* reads up to format 1. Upgrade carre"):
        load(saved)


def test_another_class_is_named(saved):
    edit(saved, lambda config: config.update({"class": "LearnedCarreDuChamp"}))
    with pytest.raises(LoadError, match="holds a LearnedCarreDuChamp, not a MetricMatching"):
        load(saved)


@pytest.mark.parametrize("name", ["class", "model", "fitted", "history", "weights", "format_version"])
def test_a_missing_part_of_the_description_is_named(saved, name):
    edit(saved, lambda config: config.pop(name))
    with pytest.raises(LoadError, match=f"config.json must have .*'{name}'"):
        load(saved)


@pytest.mark.parametrize(
    ("section", "name"),
    [("weights", "sha256"), ("weights", "bytes"), ("fitted", "bandwidth"), ("field", "scale"), ("model", "needs")],
)
def test_a_missing_value_of_the_description_is_named(saved, section, name):
    edit(saved, lambda config: config[section].pop(name))
    with pytest.raises(LoadError, match=f"must (have|hold) .*'{name}'"):
        load(saved)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("model", {"architecture": {"kind": "transformer"}}),
        ("model", {"architecture": {"kind": "mlp", "dim": 3}}),
        ("model", {"architecture": 3}),
        ("model", {"architecture": {"kind": "mlp", "dim": -1, "rank": 1, "width": 8, "n_blocks": 1, "spread": 1.0}}),
        ("history", {"evaluations": [{"nonsense": 1}]}),
        ("landmarks", {"dtype": "nonsense"}),
        ("fitted", {"normalization": {"nonsense": 1}}),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_a_sentence(saved, section, change):
    edit(saved, lambda config: config[section].update(change))
    with pytest.raises(LoadError, match=r"config.json"):
        load(saved)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda tensors: tensors.pop("model.mean.trunk.inlet.bias"), "Missing key.*mean.trunk.inlet.bias"),
        (lambda tensors: tensors.update({"model.extra": torch.zeros(2)}), "Unexpected key.*extra"),
        (lambda tensors: tensors.update({"model.mean.trunk.inlet.bias": torch.zeros(2)}), "size mismatch.*inlet.bias"),
    ],
    ids=["missing", "too many", "another shape"],
)
def test_weights_that_do_not_fit_the_architecture_are_named(saved, change, complaint):
    change_tensors(saved, change)
    with pytest.raises(LoadError, match=f"do not fit the architecture in config.json: {complaint}"):
        load(saved)


@pytest.mark.parametrize("name", ["frame.center", "landmarks", "scale_profile.gap"])
def test_a_missing_tensor_is_named(saved, name):
    change_tensors(saved, lambda tensors: tensors.pop(name))
    with pytest.raises(LoadError, match=f"must hold '{name}'"):
        load(saved)
