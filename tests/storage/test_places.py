"""Names of geometries that ship with the library, paths, names on the hub; and no network is opened."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from carre.boundary import ArgumentError
from carre.storage import LoadError, load, places, pretrained_models, push_to_hub, save
from carre.storage.places import find
from tests.storage.geometries import answers, tiny_geometry

NO_PATHS = [3, None, 3.0, ["mnist"], b"mnist"]
FILES = {"README.md", "config.json", "model.safetensors"}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A place with two geometries, and a folder that is none."""
    monkeypatch.setattr(places, "_location", lambda: tmp_path / "pretrained")
    for name in ("torus", "circle"):
        save(tiny_geometry(), tmp_path / "pretrained" / name)
    (tmp_path / "pretrained" / "notes").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_names_are_those_of_the_saved_geometries(shelf):
    assert pretrained_models() == ["circle", "torus"]


def test_a_library_without_a_shelf_ships_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "_location", lambda: tmp_path / "nowhere")
    assert pretrained_models() == []
    with pytest.raises(LoadError, match=r"\(there are none\); got 'circle'"):
        load("circle")


def test_the_shelf_is_a_folder_of_the_package():
    assert places._location() == Path(places.__file__).parents[1] / "pretrained"


def test_everything_that_ships_can_be_loaded():
    for name in pretrained_models():
        assert load(name).bandwidth > 0


def test_a_name_means_the_shipped_geometry_even_beside_a_folder_of_that_name(shelf):
    save(tiny_geometry(bandwidth=0.2), shelf / "circle")
    assert load("circle").bandwidth == 0.3
    assert load("./circle").bandwidth == 0.2
    assert load(Path("circle")).bandwidth == 0.2


def test_an_unknown_name_lists_the_known_ones_and_asks_for_a_path_that_exists(shelf):
    with pytest.raises(LoadError, match=r"path of an existing folder, or .* \(circle, torus\); got 'sphere'"):
        load("sphere")


@pytest.mark.parametrize("name", ["my/models/sphere", "./sphere", "sphere/", Path("sphere"), Path("my/sphere")])
def test_a_path_that_does_not_exist_is_named_with_the_shipped_models(shelf, name):
    with pytest.raises(LoadError, match=rf"\(circle, torus\); got '{name}'$"):
        load(name)


@pytest.mark.parametrize("name", ["circle/", "./circle", Path("circle")])
def test_a_path_like_the_name_of_a_shipped_geometry_is_told_the_name(shelf, name):
    with pytest.raises(LoadError, match=rf"got '{name}'. Write 'circle' for the shipped one$"):
        load(name)


def test_a_name_of_nothing_is_also_a_wrong_argument_which_faces_word_anew():
    with pytest.raises(ArgumentError) as caught:
        load("nowhere")
    assert caught.value.worded("MODEL").startswith("MODEL must be the path of an existing folder, or the name of a")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("value", NO_PATHS, ids=repr)
def test_what_is_no_path_is_refused(value):
    for use in (load, find):
        with pytest.raises(ArgumentError) as caught:
            use(value)
        assert str(caught.value) == f"name_or_folder must be a path or a name; got {value!r}"
    with pytest.raises(ArgumentError, match="folder must be a path; got") as caught:
        save(tiny_geometry(), value)
    assert str(caught.value).endswith(repr(value))


@pytest.mark.parametrize(
    ("use", "name"), [(load, "name_or_folder"), (lambda folder: save(tiny_geometry(), folder), "folder")]
)
def test_an_empty_string_is_not_the_working_directory(use, name):
    with pytest.raises(
        ArgumentError, match=f"^{name} must be a path.*; got an empty string. Say which folder is meant"
    ):
        use("")


@pytest.mark.parametrize("kind", [str, Path])
def test_of_a_file_the_folder_is_asked_for(tmp_path, kind):
    file = tmp_path / "config.json"
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(LoadError, match=r"must be the folder that holds config.json; .* is a file. Give a folder"):
        load(kind(file))


def test_home_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save(tiny_geometry(), "~/circle")
    assert load("~/circle").bandwidth == load(tmp_path / "circle").bandwidth


@pytest.mark.parametrize("below", ["x", "x/y"])
def test_nothing_is_saved_below_a_file(tmp_path, below):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"folder must lie in a folder; got .*file' is a file. Choose another name"):
        save(tiny_geometry(), Path(tmp_path, "file", below))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_wrong_device_is_refused_before_anything_is_read():
    with pytest.raises(ArgumentError, match="device must be one of torch's"):
        load("nowhere", device="toaster")


@pytest.mark.usefixtures("unchecked")
def test_a_class_is_not_a_network(saved):
    with pytest.raises(ArgumentError, match="network must be a torch module or None"):
        load(saved, network=torch.nn.Linear)


def test_a_folder_has_no_revisions(saved):
    with pytest.raises(ArgumentError, match="revision must be None for a folder, which holds one version; got 'main'"):
        load(saved, revision="main")


def in_cache(geometry, place, name="somebody/circle"):
    """Lay a geometry into a cache as a download would."""
    folder = place / f"models--{name.replace('/', '--')}"
    save(geometry, folder / "snapshots" / ("0" * 40))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A cache of the hub with one geometry in it, and no network."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    in_cache(tiny_geometry(), tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_on_the_hub_is_looked_up_in_the_cache(offline):
    for before, after in zip(answers(tiny_geometry()), answers(load("somebody/circle")), strict=True):
        assert torch.equal(before, after)
    assert load("somebody/circle", revision="0" * 40).bandwidth == 0.3


def test_a_folder_comes_before_a_name_on_the_hub(offline):
    save(tiny_geometry(bandwidth=0.2), offline / "somebody" / "circle")
    assert load("somebody/circle").bandwidth == 0.2


def test_what_is_not_to_be_had_is_refused_with_a_sentence(offline):
    with pytest.raises(LoadError, match=r"^'somebody/sphere' could not be downloaded .* or give the path of a folder$"):
        load("somebody/sphere")


def test_a_damaged_download_is_refused_like_any_folder(offline):
    weights = next(offline.rglob("model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(LoadError, match=r"model.safetensors is truncated: 1000 of"):
        load("somebody/circle")


@pytest.mark.slow
def test_offline_a_cached_geometry_is_found_and_another_one_is_refused_at_once(tmp_path):
    pytest.importorskip("huggingface_hub")
    in_cache(tiny_geometry(), tmp_path)
    code = """
import time
import carre

print(carre.load("somebody/circle").bandwidth)
start = time.perf_counter()
try:
    carre.load("somebody/sphere")
except carre.LoadError as error:
    print(time.perf_counter() - start < 10, error)
"""
    environment = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
    found, refused = done.stdout.splitlines()
    assert float(found) == 0.3
    assert refused.startswith("True 'somebody/sphere' could not be downloaded from the Hugging Face hub")


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("nothing may go online")

    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", refuse)
    monkeypatch.setattr(hub, "HfApi", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["./nowhere", "nowhere", "a/b/c", "/no/where", Path("no/where")])
def test_what_cannot_be_a_name_on_the_hub_is_not_sought_there(name):
    with pytest.raises(LoadError, match="name_or_folder must be the path of an existing folder"):
        load(name)


@pytest.mark.usefixtures("no_network")
def test_a_shipped_name_is_not_sought_on_the_hub():
    assert load("mnist", device="cpu").sample_shape == (1, 28, 28)


def test_without_its_library_nothing_goes_online_and_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LoadError, match=r"got 'somebody/circle'\. If that .* hub, install .* 'carre\[hub\]'$"):
        load("somebody/circle")
    with pytest.raises(ImportError, match=r"needs huggingface_hub; run: pip install 'carre\[hub\]'"):
        push_to_hub(tiny_geometry(), "somebody/circle")


@pytest.fixture
def uploads(monkeypatch, tmp_path):
    """A stand-in for the hub, which keeps what is uploaded in a folder."""
    hub, asked = pytest.importorskip("huggingface_hub"), []

    class Hub:
        def __init__(self, **options):
            asked.append(options)

        def create_repo(self, repo_id, **options):
            asked.append({"repo_id": repo_id, **options})
            return SimpleNamespace(repo_id=repo_id if "/" in repo_id else f"me/{repo_id}")

        def upload_folder(self, *, repo_id, folder_path, **options):
            shutil.copytree(folder_path, tmp_path / "hub" / repo_id)
            asked.append({"repo_id": repo_id, **options})
            request = f"hub/{repo_id}/pull" if options["create_pr"] else None
            return SimpleNamespace(commit_url=f"hub/{repo_id}", pr_url=request)

    monkeypatch.setattr(hub, "HfApi", Hub)
    return asked


def test_a_geometry_is_pushed_to_the_hub(uploads, tmp_path):
    options = {"private": True, "token": "secret", "commit_message": "a circle", "revision": "next", "n_landmarks": 5}
    assert push_to_hub(tiny_geometry(), "somebody/circle", **options) == "hub/somebody/circle"
    place = tmp_path / "hub" / "somebody" / "circle"
    assert {path.name for path in place.iterdir()} == FILES
    assert "# circle\n" in (place / "README.md").read_text(encoding="utf-8")
    assert len(load(place).landmarks) == 5
    assert uploads == [
        {"token": "secret"},
        {"repo_id": "somebody/circle", "private": True, "exist_ok": True},
        {"repo_id": "somebody/circle", "commit_message": "a circle", "revision": "next", "create_pr": False},
    ]


def test_without_an_owner_a_geometry_becomes_ones_own(uploads, tmp_path):
    assert push_to_hub(tiny_geometry(), "circle", create_pr=True) == "hub/me/circle/pull"
    assert load(tmp_path / "hub" / "me" / "circle").bandwidth == 0.3


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["", "two words", "a/b/c", "../circle", 3], ids=repr)
def test_what_is_no_name_on_the_hub_is_refused(uploads, name):
    with pytest.raises(ArgumentError, match=r"repo_id must be (a name on the hub, like 'somebody/circle'|text); got"):
        push_to_hub(tiny_geometry(), name)
    assert uploads == []


def test_what_cannot_be_saved_makes_no_repository(uploads):
    with pytest.raises(ArgumentError, match="dtype must be None"):
        push_to_hub(tiny_geometry(), "somebody/circle", dtype="float8")
    assert len(uploads) == 1, "only the connection"
