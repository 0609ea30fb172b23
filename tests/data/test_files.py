import pytest

from carre import datasets

READERS = {
    "load_arrays": "path",
    "load_celeba": "folder",
    "load_cifar10": "folder",
    "load_ffhq": "folder",
    "load_image_folder": "folder",
    "load_images": "path",
    "load_mnist": "folder",
    "load_samples": "path",
    "load_table": "path",
    "read_idx": "path",
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("value", [3, None, ["data"], b"data"], ids=repr)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_path_is_refused(reader, value):
    with pytest.raises(ValueError, match=f"^{READERS[reader]} must be a path; got ") as caught:
        getattr(datasets, reader)(value)
    assert f"; got {value!r}. " in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_an_empty_string_is_not_the_working_directory(reader):
    with pytest.raises(ValueError, match=f"^{READERS[reader]} must be a path; got an empty string"):
        getattr(datasets, reader)("")


def test_every_reader_is_listed():
    assert {name for name in datasets.__all__ if name.startswith(("load_", "read_"))} == set(READERS)
