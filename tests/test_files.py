"""A file is written whole or not at all, whoever writes it and whatever happens meanwhile."""

import os
import stat
from pathlib import Path

import pytest

from carre.files import write_whole, written_whole


@pytest.mark.parametrize(("content", "stored"), [("Carré\n", "Carré\n".encode()), (b"\xff\n", b"\xff\n")])
def test_text_is_stored_in_utf_8_and_bytes_as_they_are(tmp_path, content, stored):
    (tmp_path / "file").write_text("before")
    write_whole(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == stored
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [OSError("the disk is full"), ValueError("wrong"), KeyboardInterrupt()], ids=repr)
def test_whatever_happens_leaves_the_former_file_and_no_litter(tmp_path, error):
    def write_half(file):
        with written_whole(file) as partial:
            partial.write_text("half")
            raise error

    (tmp_path / "file").write_text("before")
    with pytest.raises(type(error)):
        write_half(tmp_path / "file")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "before"}


def test_a_failing_replacement_leaves_the_former_file_and_no_litter(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_text("before")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", "after")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "before"}


def test_a_writer_that_wrote_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "file"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_folders_are_not_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "file", "text")
    assert list(tmp_path.iterdir()) == []


def test_the_content_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda file: (events.append(stat.S_ISDIR(os.fstat(file).st_mode) and "folder"), sync(file))
    )
    monkeypatch.setattr(os, "replace", lambda old, new: (events.append("renamed"), replace(old, new)))
    write_whole(tmp_path / "file", "text")
    assert events == [False, "renamed", *(["folder"] if os.name == "posix" else [])]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write_whole(tmp_path / "file", "text")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    file = tmp_path / "table.csv"
    with written_whole(file) as first, written_whole(file) as second:
        assert first != second
        assert {first.suffix, second.suffix} == {".csv"}
        first.write_text("first")
        second.write_text("second")
    assert file.read_text() == "first", "the last to finish"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_the_name_to_write_to_can_be_given(tmp_path):
    """What a killed process leaves is written over then."""
    left = tmp_path / ".run.partial"
    left.write_text("half of a former one, which is longer")
    write_whole(tmp_path / "run", "whole", partial=left)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"run": "whole"}


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path, monkeypatch):
    """The file is in place by then; some network drives refuse to sync folders."""

    def refuse(path, *arguments, real=os.open, **options):
        if Path(path) == tmp_path:
            raise OSError(22, "Invalid argument")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    write_whole(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"
