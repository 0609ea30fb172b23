"""A geometry is written whole or not at all, and nothing of others is lost."""

from pathlib import Path

import pytest

from carre.storage import folder, load, save
from tests.storage.states import tiny_state

FILES = {"config.json", "model.safetensors", "README.md"}


def test_a_saved_geometry_is_replaced_as_a_whole(saved):
    (saved / "README.md").write_text("the former page", encoding="utf-8")
    save(tiny_state(bandwidth=0.2), saved)
    assert load(saved).bandwidth == 0.2
    assert "the former page" not in (saved / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in saved.parent.iterdir()] == ["geometry"], "no litter"


def test_an_empty_folder_and_folders_that_are_not_there_yet_are_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/and/deep"):
        save(tiny_state(), tmp_path / name)
        assert load(tmp_path / name).bandwidth == 0.3


@pytest.mark.parametrize("step", ["model.safetensors", "config.json", "README.md", "rename"])
def test_an_error_while_writing_leaves_the_former_geometry_and_no_litter(saved, monkeypatch, step):
    def broken_write(path, content, write=folder.write_and_sync):
        write(path, content[:10])
        if path.name == step:
            raise OSError("the disk is full")

    def broken_rename(path, target, rename=Path.rename):
        if Path(target).name == "geometry" and not path.name.endswith(".former"):
            raise OSError("the disk is full")
        return rename(path, target)

    if step == "rename":
        monkeypatch.setattr(Path, "rename", broken_rename)
    else:
        monkeypatch.setattr(folder, "write_and_sync", broken_write)
    with pytest.raises(OSError, match="the disk is full"):
        save(tiny_state(bandwidth=0.2), saved)
    assert load(saved).bandwidth == 0.3
    assert [path.name for path in saved.parent.iterdir()] == ["geometry"]


def test_an_interruption_before_the_first_save_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "write_and_sync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tiny_state(), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"folder must be new, empty or a saved geometry; .* holds other files"):
        save(tiny_state(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json"}


def test_files_beside_a_saved_geometry_are_not_lost(saved):
    (saved / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"also has notes.txt. Move that elsewhere"):
        save(tiny_state(), saved)
    assert (saved / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_files_and_the_working_directory_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"is a file. Choose another name"):
        save(tiny_state(), tmp_path / "file")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must not be the working directory"):
        save(tiny_state(), ".")


def test_a_link_to_a_folder_stays_a_link(saved):
    link = saved.with_name("link")
    link.symlink_to(saved, target_is_directory=True)
    save(tiny_state(bandwidth=0.2), link)
    assert link.is_symlink()
    assert load(saved).bandwidth == 0.2
