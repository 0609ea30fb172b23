"""What is no path, or one of something else, is answered with a sentence."""

from pathlib import Path

import pytest

from carre.storage import LoadError, find, load, save
from tests.storage.states import tiny_state

NO_PATHS = [3, None, 3.0, ["mnist"], b"mnist"]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("value", NO_PATHS, ids=repr)
def test_what_is_no_path_is_refused(value):
    with pytest.raises(LoadError) as caught:
        find(value)
    assert str(caught.value) == f"name_or_folder must be a path or a name; got {value!r}"
    for use in (load, lambda folder: save(tiny_state(), folder)):
        with pytest.raises(ValueError, match="folder must be a path; got") as caught:
            use(value)
        assert str(caught.value).endswith(repr(value))


@pytest.mark.parametrize(
    ("use", "name"), [(find, "name_or_folder"), (load, "folder"), (lambda folder: save(tiny_state(), folder), "folder")]
)
def test_an_empty_string_is_not_the_working_directory(use, name):
    with pytest.raises(ValueError, match=f"^{name} must be a path.*; got an empty string. Say which folder is meant"):
        use("")


@pytest.mark.parametrize("use", [find, load])
def test_of_a_file_the_folder_is_asked_for(tmp_path, use):
    file = tmp_path / "config.json"
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(LoadError, match=r"must be the folder that holds config.json; .* is a file. Give a folder"):
        use(file)


@pytest.mark.parametrize("below", ["x", "x/y"])
def test_nothing_is_saved_below_a_file(tmp_path, below):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"folder must lie in a folder; got .*file' is a file. Choose another name"):
        save(tiny_state(), Path(tmp_path, "file", below))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
