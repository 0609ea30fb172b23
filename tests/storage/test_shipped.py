"""Names of geometries that ship with the library, and paths."""

from pathlib import Path

import pytest

from carre.storage import LoadError, find, load, pretrained_models, save, shipped
from tests.storage.states import tiny_state


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A place with two geometries, and a folder that is none."""
    monkeypatch.setattr(shipped, "_location", lambda: tmp_path / "pretrained")
    for name in ("torus", "circle"):
        save(tiny_state(), tmp_path / "pretrained" / name)
    (tmp_path / "pretrained" / "notes").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_names_are_those_of_the_saved_geometries(shelf):
    assert pretrained_models() == ["circle", "torus"]


def test_a_library_without_a_shelf_ships_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "_location", lambda: tmp_path / "nowhere")
    assert pretrained_models() == []
    with pytest.raises(LoadError, match=r"\(there are none\); got 'circle'"):
        find("circle")


def test_the_shelf_is_a_folder_of_the_package():
    assert shipped._location() == Path(shipped.__file__).parents[1] / "pretrained"


def test_everything_that_ships_can_be_loaded():
    for name in pretrained_models():
        assert load(find(name)).bandwidth > 0


def test_a_name_means_the_shipped_geometry_even_beside_a_folder_of_that_name(shelf):
    save(tiny_state(bandwidth=0.2), shelf / "circle")
    assert load(find("circle")).bandwidth == 0.3
    assert load(find("./circle")).bandwidth == 0.2
    assert load(find(Path("circle"))).bandwidth == 0.2


def test_an_unknown_name_lists_the_known_ones_and_asks_for_a_path_that_exists(shelf):
    with pytest.raises(LoadError, match=r"path of an existing folder, or .* \(circle, torus\); got 'sphere'"):
        find("sphere")


@pytest.mark.parametrize("name", ["my/models/sphere", "./sphere", "sphere/", Path("sphere")])
def test_a_path_that_does_not_exist_is_named_with_the_shipped_models(shelf, name):
    with pytest.raises(LoadError, match=rf"\(circle, torus\); got '{name}'$"):
        find(name)


@pytest.mark.parametrize("name", ["circle/", "./circle", Path("circle")])
def test_a_path_like_the_name_of_a_shipped_geometry_is_told_the_name(shelf, name):
    with pytest.raises(LoadError, match=rf"got '{name}'. Write 'circle' for the shipped one$"):
        find(name)


def test_what_could_be_a_name_on_a_hub_is_told_how_to_get_it(shelf):
    with pytest.raises(
        LoadError, match=r"got 'models/sphere'\. If that .*snapshot_download\('models/sphere'\) returns$"
    ):
        find("models/sphere")
