"""Folders: what is written comes back to the last bit, what is damaged is named, what is there is not lost."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from carre.boundary import ArgumentError
from carre.fields import ExactField, NoDenoiserError
from carre.manifolds import Sphere
from carre.networks import build_model
from carre.storage import LoadError, export, folder, load, save
from tests.storage.geometries import HULL, RANK, answers, history, image_geometry, randomized, tiny_geometry

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
@pytest.mark.parametrize("make", [tiny_geometry, image_geometry])
def test_answers_are_the_same_to_the_last_bit(tmp_path, make, dtype):
    geometry = make()
    save(geometry, tmp_path / "x")
    for before, after in zip(answers(geometry, dtype), answers(load(tmp_path / "x"), dtype), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("make", [tiny_geometry, image_geometry])
def test_everything_beside_the_network_comes_back_exactly(tmp_path, make):
    geometry = make()
    save(geometry, tmp_path / "x")
    again = load(tmp_path / "x")
    np.testing.assert_equal(dataclasses.asdict(again.history), dataclasses.asdict(geometry.history))
    assert again.history.evaluations == geometry.history.evaluations
    for attribute in dataclasses.fields(geometry.scale_profile):
        before, after = (getattr(s.scale_profile, attribute.name) for s in (geometry, again))
        np.testing.assert_array_equal(after, before)
        assert getattr(after, "dtype", None) == getattr(before, "dtype", None)
    assert torch.equal(again.landmarks, geometry.landmarks)
    assert again.landmarks.dtype == geometry.landmarks.dtype
    assert torch.equal(again.field.frame.center, geometry.field.frame.center)
    assert (again.field.frame.scale, again.field.ridge) == (geometry.field.frame.scale, geometry.field.ridge)
    assert again.feature_names == geometry.feature_names
    assert again.parameters == geometry.parameters
    for name in ("bandwidth", "bandwidth_range", "supported_from", "is_centered", "rank", "dim"):
        assert getattr(again, name) == getattr(geometry, name)
    assert (again.sample_shape, again.normalization) == (geometry.sample_shape, geometry.normalization)


def test_an_uncentered_geometry_without_a_choice_of_scale_comes_back(tmp_path):
    model = randomized(build_model(HULL, RANK, width=8, n_blocks=1, spread=0.7, block="plain", with_mean=False))
    geometry = tiny_geometry(model, is_centered=False, history=history(with_mean=False), scale_profile=None)
    save(geometry, tmp_path / "x")
    again = load(tmp_path / "x")
    assert torch.equal(
        again.field.metric(geometry.landmarks, 0.2).factor, geometry.field.metric(geometry.landmarks, 0.2).factor
    )
    assert np.isnan(again.history.evaluations[0].predictive_loss)
    assert again.scale_profile is None
    with pytest.raises(NoDenoiserError):
        again.field.denoise(geometry.landmarks, 0.2)


def test_rounding_of_products_is_remembered(tmp_path):
    save(tiny_geometry(field=tiny_geometry().field.with_mixed_precision()), tmp_path / "x")
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
    with pytest.raises(LoadError, match="holds a LearnedCarreDuChamp, not a Geometry; load it with"):
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


def test_a_saved_geometry_is_replaced_as_a_whole(saved):
    (saved / "README.md").write_text("the former page", encoding="utf-8")
    save(tiny_geometry(bandwidth=0.2), saved)
    assert load(saved).bandwidth == 0.2
    assert "the former page" not in (saved / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in saved.parent.iterdir()] == ["geometry"], "no litter"


def test_an_empty_folder_and_folders_that_are_not_there_yet_are_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/and/deep"):
        save(tiny_geometry(), tmp_path / name)
        assert load(tmp_path / name).bandwidth == 0.3


@pytest.mark.parametrize("step", ["model.safetensors", "config.json", "README.md", "rename"])
def test_an_error_while_writing_leaves_the_former_geometry_and_no_litter(saved, monkeypatch, step):
    def broken_write(path, content, write=folder.write_whole):
        write(path, content[:10])
        if path.name == step:
            raise OSError("the disk is full")

    def broken_rename(path, target, rename=Path.rename):
        if Path(target).name == "geometry" and ".former." not in path.name:
            raise OSError("the disk is full")
        return rename(path, target)

    if step == "rename":
        # As on a disk that cannot exchange folders.
        monkeypatch.setattr(folder, "_exchange", lambda one, other: False)
        monkeypatch.setattr(Path, "rename", broken_rename)
    else:
        monkeypatch.setattr(folder, "write_whole", broken_write)
    with pytest.raises(OSError, match="the disk is full"):
        save(tiny_geometry(bandwidth=0.2), saved)
    assert load(saved).bandwidth == 0.3
    assert [path.name for path in saved.parent.iterdir()] == ["geometry"]


def test_an_interruption_before_the_first_save_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "write_whole", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tiny_geometry(), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"folder must be new, empty or a saved geometry; .* holds other files"):
        save(tiny_geometry(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json"}


def test_files_beside_a_saved_geometry_are_not_lost(saved):
    (saved / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"also has notes.txt. Move that elsewhere"):
        save(tiny_geometry(), saved)
    assert (saved / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("use", [save, export], ids=["save", "export"])
def test_only_what_is_learned_can_be_kept(tmp_path, use):
    exact = tiny_geometry(field=ExactField(Sphere(2)))
    with pytest.raises(ArgumentError, match=r"must be one of a NeuralField, .*; got one of a ExactField, which is"):
        use(exact, tmp_path / "x.pt2")
    with pytest.raises(ArgumentError, match=r"geometry must be a Geometry; got .*NeuralField.*. carre.fit returns one"):
        use(tiny_geometry().field, tmp_path / "x.pt2")
    assert list(tmp_path.iterdir()) == []


def test_files_and_the_working_directory_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"is a file. Choose another name"):
        save(tiny_geometry(), tmp_path / "file")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must not be the working directory"):
        save(tiny_geometry(), ".")


def test_a_link_to_a_folder_stays_a_link(saved):
    link = saved.with_name("link")
    link.symlink_to(saved, target_is_directory=True)
    save(tiny_geometry(bandwidth=0.2), link)
    assert link.is_symlink()
    assert load(saved).bandwidth == 0.2
