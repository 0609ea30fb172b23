"""A class with the hub's mixin goes through all of the mixin's doors; without a network, and none is opened."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

from carre import LoadError, MetricMatching
from tests.samples import TINY, circle

hub = pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FILES = {"README.md", "config.json", "model.safetensors"}


class Shared(MetricMatching, hub.ModelHubMixin):
    """What a user writes."""


@pytest.fixture(scope="module")
def fitted():
    return Shared(**TINY, bandwidth=0.2).fit(circle(80))


def same(one, other):
    return np.array_equal(one.denoise(circle(9)), other.denoise(circle(9)))


def in_cache(geometry, place, name="somebody/circle"):
    """Lay a geometry into a cache as a download would."""
    folder = place / f"models--{name.replace('/', '--')}"
    geometry.save_pretrained(folder / "snapshots" / ("0" * 40))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)


def test_the_mixins_own_way_through_a_folder(fitted, tmp_path):
    """Twice: the mixin takes config.json away before it saves, and the folder may hold other files."""
    folder = tmp_path / "circle"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    for _ in range(2):
        hub.ModelHubMixin.save_pretrained(fitted, folder)
    assert {path.name for path in folder.iterdir()} == {*FILES, "notes.txt"}
    assert [path.name for path in tmp_path.iterdir()] == ["circle"]
    assert (folder / "README.md").read_text(encoding="utf-8").splitlines()[1] == "library_name: carre"
    loaded = hub.ModelHubMixin.from_pretrained.__func__(Shared, str(folder), device="cpu")
    assert type(loaded) is Shared
    assert same(loaded, fitted)


def test_our_way_through_a_folder_is_the_usual_one(fitted, tmp_path):
    assert fitted.save_pretrained(tmp_path / "circle", dtype="float16", n_landmarks=5) is None
    loaded = Shared.from_pretrained(tmp_path / "circle", device="cpu")
    assert type(loaded) is Shared
    assert len(loaded.landmarks_) == 5
    assert type(MetricMatching.from_pretrained(tmp_path / "circle")) is MetricMatching


@pytest.fixture
def uploads(monkeypatch, tmp_path):
    """A stand-in for the hub, which keeps what is uploaded in a folder."""
    asked = []

    class Hub:
        def __init__(self, **options):
            pass

        def create_repo(self, repo_id, **options):
            asked.append((repo_id, options))
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, *, repo_id, folder_path, **options):
            shutil.copytree(folder_path, tmp_path / "hub" / repo_id)
            asked.append((repo_id, options))
            return f"hub/{repo_id}"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Hub)
    return asked


def test_a_geometry_is_pushed_to_the_hub(fitted, uploads, tmp_path):
    assert fitted.push_to_hub("somebody/circle", private=True, commit_message="a circle") == "hub/somebody/circle"
    place = tmp_path / "hub" / "somebody" / "circle"
    assert {path.name for path in place.iterdir()} == FILES
    assert uploads[0][1]["private"] is True
    assert uploads[1][1]["commit_message"] == "a circle"
    assert same(Shared.from_pretrained(place, device="cpu"), fitted)


def test_saving_and_pushing_in_one(fitted, uploads, tmp_path):
    assert fitted.save_pretrained(tmp_path / "circle", push_to_hub=True) == "hub/circle"
    assert fitted.save_pretrained(tmp_path / "circle", push_to_hub=True, repo_id="a/b") == "hub/a/b"
    assert same(Shared.from_pretrained(tmp_path / "circle", device="cpu"), fitted)


def test_a_name_on_the_hub_is_looked_up_in_the_cache(fitted, tmp_path):
    in_cache(fitted, tmp_path)
    loaded = Shared.from_pretrained("somebody/circle", cache_dir=tmp_path, local_files_only=True, device="cpu")
    assert type(loaded) is Shared
    assert same(loaded, fitted)


@pytest.mark.slow
def test_offline_a_cached_geometry_is_found_and_another_one_is_refused_at_once(fitted, tmp_path):
    in_cache(fitted, tmp_path)
    code = """
import time
from huggingface_hub import ModelHubMixin
from carre import LoadError, MetricMatching

class Shared(MetricMatching, ModelHubMixin):
    pass

print(Shared.from_pretrained("somebody/circle").bandwidth_)
start = time.perf_counter()
try:
    Shared.from_pretrained("somebody/sphere")
except LoadError as error:
    print(time.perf_counter() - start < 10, error)
"""
    environment = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
    found, refused = done.stdout.splitlines()
    assert float(found) == fitted.bandwidth_
    assert refused.startswith("True 'somebody/sphere' could not be downloaded from the Hugging Face hub")


def test_what_is_not_to_be_had_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(LoadError, match=r"^'somebody/sphere' could not be downloaded .* or give the path of a folder$"):
        Shared.from_pretrained("somebody/sphere", cache_dir=tmp_path, local_files_only=True)


def test_a_damaged_download_is_refused_like_any_folder(fitted, tmp_path):
    in_cache(fitted, tmp_path)
    weights = next(tmp_path.rglob("model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(LoadError, match=r"model.safetensors is truncated: 1000 of"):
        Shared.from_pretrained("somebody/circle", cache_dir=tmp_path, local_files_only=True)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("nothing may go online")

    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", refuse)
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["./nowhere", "nowhere", "a/b/c", "/no/where"])
def test_what_cannot_be_a_name_on_the_hub_is_not_sought_there(name):
    with pytest.raises(LoadError, match="name_or_folder must be the path of an existing folder"):
        Shared.from_pretrained(name)


@pytest.mark.usefixtures("no_network")
def test_a_shipped_name_is_not_sought_on_the_hub():
    assert Shared.from_pretrained("mnist", device="cpu").sample_shape_ == (1, 28, 28)


@pytest.mark.usefixtures("no_network")
def test_without_the_mixin_nothing_goes_online_and_the_message_says_how_to_get_it():
    with pytest.raises(LoadError, match=r"huggingface_hub\.snapshot_download\('somebody/circle'\) returns$"):
        MetricMatching.from_pretrained("somebody/circle")


@pytest.mark.parametrize("call", ["save_pretrained", "from_pretrained"])
def test_options_of_the_hub_are_unknown_without_the_mixin(call, tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'revision'"):
        getattr(MetricMatching(), call)(tmp_path / "circle", revision="main")


def test_a_shared_class_is_an_estimator_like_any_other(fitted):
    assert clone(fitted).get_params() == fitted.get_params()
    assert fitted.get_params().keys() == MetricMatching().get_params().keys()
    assert Shared().set_params(rank=4).rank == 4
    again = pickle.loads(pickle.dumps(fitted))
    assert type(again) is Shared
    assert same(again, fitted)


def test_nothing_of_the_mixin_is_stored(fitted, tmp_path):
    """Parameters that were set after construction are those that count: the mixin remembers the first ones."""
    changed = clone(fitted).set_params(max_steps=3).fit(circle(80))
    changed.save_pretrained(tmp_path / "circle")
    config = json.loads(Path(tmp_path, "circle", "config.json").read_text(encoding="utf-8"))
    assert config["parameters"]["max_steps"] == 3
    assert "_hub_mixin_config" not in json.dumps(config)
