"""A file is written whole or not at all, whoever writes it and whatever happens meanwhile."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from carre.files import BusyError, UnwritableError, alone, is_path, write_whole, written_whole


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
    with pytest.raises(UnwritableError, match=r"the output must .*No such file"), written_whole(tmp_path / "file"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_folders_are_not_made(tmp_path):
    with pytest.raises(UnwritableError, match=r"got '.*none/file', which could not be written: No such file"):
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


def test_of_two_writers_one_wins_and_the_other_is_told(tmp_path):
    """Two threads are as two programs."""
    file = tmp_path / "table.csv"
    with ThreadPoolExecutor(1) as other, written_whole(file) as partial:
        assert partial.suffix == ".csv"
        with pytest.raises(BusyError, match=r"the output must be written by one program at a time; got '.*table.csv'"):
            other.submit(write_whole, file, "second").result()
        partial.write_text("first")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"table.csv": "first"}
    write_whole(file, "third")
    assert file.read_text() == "third"


def test_who_is_alone_with_a_file_may_write_it(tmp_path):
    with alone(tmp_path / "file"), alone(tmp_path / "file"):
        write_whole(tmp_path / "file", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_is_swept_and_nothing_else_is(tmp_path):
    for name in (".carre.partial.run", ".carre.lock.run", ".carre.partial.other", ".run.partial"):
        (tmp_path / name).write_text("half of a former one, which is longer")
    write_whole(tmp_path / "run", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"run", ".carre.partial.other", ".run.partial"}
    assert (tmp_path / "run").read_text() == "whole"


def test_a_link_that_stands_where_a_file_is_written_leads_nowhere(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".carre.partial.run").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "run", "whole")
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_lock_that_was_removed_meanwhile_is_none(tmp_path, monkeypatch):
    """Between opening it and locking it, who had it may go."""
    opened = []

    def open_and_lose(path, *arguments, real=os.open):
        descriptor = real(path, *arguments)
        opened.append(path)
        if len(opened) == 1:
            Path(path).unlink()
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_and_lose)
        with alone(tmp_path / "file"):
            assert len(opened) == 2
            assert (tmp_path / ".carre.lock.file").exists()


@pytest.mark.parametrize(
    "name", ["a" * 255, "σ" * 100, "two\nlines.csv", "-o.csv", os.fsdecode(b"caf\xe9.csv")], ids=ascii
)
def test_any_name_that_a_system_takes_is_written_to(name, tmp_path):
    write_whole(tmp_path / name, name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_name_that_no_system_takes_is_refused_by_a_sentence(tmp_path):
    with pytest.raises(UnwritableError, match="which could not be written: File name too long"):
        write_whole(tmp_path / ("a" * 256), "text")
    assert not is_path("two\0names")


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path, monkeypatch):
    """The file is in place by then; some network drives refuse to sync folders."""

    def refuse(path, *arguments, real=os.open, **options):
        if Path(path) == tmp_path:
            raise OSError(22, "Invalid argument")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    write_whole(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"
