import numpy as np
import pytest
from PIL import Image

from carre.data import DamagedFileError, load_celeba, load_ffhq


def draw(file, level, width=12, height=14):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (level, level, level)).save(file)


def levels(dataset):
    """The gray level of each image."""
    return dataset.pixels[:, 0, 0, 0].tolist()


def write_celeba(folder, partition="0 0 1 2 0", images="img_align_celeba", separator=" ", end="txt"):
    names = [f"{i:06}.png" for i in range(1, 6)]
    for i, name in enumerate(names):
        draw(folder / images / name, 10 * i)
    heading = ["image_id,partition"] if end == "csv" else []
    lines = heading + [f"{name}{separator}{part}" for name, part in zip(names, partition.split(), strict=False)]
    (folder / f"list_eval_partition.{end}").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    ("split", "expected"), [("train", [0, 10, 40]), ("valid", [20]), ("validation", [20]), ("test", [30])]
)
@pytest.mark.parametrize(
    "spelling",
    [
        {},
        {"separator": ",", "end": "csv"},
        {"images": "img_align_celeba/img_align_celeba", "separator": ",", "end": "csv"},
    ],
)
def test_the_partition_decides_on_the_split(tmp_path, split, expected, spelling):
    faces = load_celeba(write_celeba(tmp_path, **spelling), split, size=4, crop=8)
    assert levels(faces) == expected
    assert faces.sample_shape == (3, 4, 4)
    assert faces.name == f"CelebA {split}"


def test_the_folder_of_the_images_will_do(tmp_path):
    assert levels(load_celeba(write_celeba(tmp_path) / "img_align_celeba", crop=8)) == [0, 10, 40]


def test_faces_are_cropped_to_148_and_resized_to_64_in_minus_one_to_one(tmp_path):
    """Of 178 × 218 the crop keeps columns 15 to 162 and rows 35 to 182: a white frame around them is gone."""
    picture = np.full((218, 178, 3), 255, dtype=np.uint8)
    picture[35:183, 15:163] = 0
    (tmp_path / "img_align_celeba").mkdir()
    Image.fromarray(picture).save(tmp_path / "img_align_celeba" / "000001.png")
    (tmp_path / "list_eval_partition.txt").write_text("000001.png 0\n")
    faces = load_celeba(tmp_path)
    np.testing.assert_array_equal(faces.images, np.full((1, 3, 64, 64), -1.0))


def test_a_limit_is_spread_over_the_split(tmp_path):
    assert levels(load_celeba(write_celeba(tmp_path), crop=8, limit=2)) == [0, 10]


@pytest.mark.parametrize(
    ("partition", "sentence"),
    [
        ("0 0 1 2", r"has no line for 000005.png \(1 such images\)"),
        ("0 0 3 2 0", "with 0, 1 or 2; line 3 is '000003.png 3'"),
        ("0 0 0 0 0", "must hold all images of the split 'test'; 0 of 0 are missing"),
    ],
)
def test_a_damaged_partition_is_refused(tmp_path, partition, sentence):
    with pytest.raises(DamagedFileError, match=sentence):
        load_celeba(write_celeba(tmp_path, partition), "test", crop=8)


def test_a_missing_face_is_named(tmp_path):
    (write_celeba(tmp_path) / "img_align_celeba" / "000002.png").unlink()
    with pytest.raises(DamagedFileError, match=r"1 of 3 are missing, the first being 000002.png"):
        load_celeba(tmp_path, crop=8)


def test_a_missing_partition_or_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder must hold img_align_celeba"):
        load_celeba(tmp_path)
    (write_celeba(tmp_path) / "list_eval_partition.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"must hold list_eval_partition.txt or list_eval_partition.csv"):
        load_celeba(tmp_path)


def write_ffhq(folder, name="thumbnails128x128", side=6, level=0):
    for i, number in enumerate((0, 42, 59_999, 60_000, 69_999)):
        draw(folder / name / f"{number // 1000 * 1000:05}" / f"{number:05}.png", level + 10 * i, side, side)
    return folder


@pytest.mark.parametrize(
    ("split", "expected"), [(None, [0, 10, 20, 30, 40]), ("train", [0, 10, 20]), ("validation", [30, 40])]
)
@pytest.mark.parametrize("name", ["thumbnails128x128", "images1024x1024"])
@pytest.mark.parametrize("inside", [False, True])
def test_the_number_decides_on_the_split(tmp_path, split, expected, name, inside):
    write_ffhq(tmp_path, name)
    faces = load_ffhq(tmp_path / name if inside else tmp_path, split=split)
    assert levels(faces) == expected
    assert faces.labels is None
    assert faces.sample_shape == (3, 6, 6)


@pytest.mark.parametrize(("size", "expected"), [(None, 100), (4, 0), (128, 0), (129, 100)])
def test_thumbnails_serve_for_small_sizes_if_both_are_there(tmp_path, size, expected):
    write_ffhq(tmp_path)
    write_ffhq(tmp_path, "images1024x1024", side=8, level=100)
    assert levels(load_ffhq(tmp_path, size=size, limit=1)) == [expected]


def test_numbers_are_ordered_as_numbers_in_a_flat_folder(tmp_path):
    for number in (10, 9, 100):
        draw(tmp_path / "images1024x1024" / f"{number}.png", number)
    assert levels(load_ffhq(tmp_path)) == [9, 10, 100]


def test_a_name_without_a_number_is_refused(tmp_path):
    draw(write_ffhq(tmp_path) / "thumbnails128x128" / "cover.png", 0)
    with pytest.raises(ValueError, match=r"must be named by numbers, .* got .*cover.png"):
        load_ffhq(tmp_path)


def test_missing_folders_and_empty_splits_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold images1024x1024 or thumbnails128x128"):
        load_ffhq(tmp_path)
    draw(tmp_path / "thumbnails128x128" / "00001.png", 0)
    with pytest.raises(FileNotFoundError, match=r"for the split 'validation'; there are none in .* \(of 1 images\)"):
        load_ffhq(tmp_path, split="validation")


@pytest.mark.parametrize("load", [load_celeba, load_ffhq])
def test_an_unknown_split_is_refused(tmp_path, load):
    with pytest.raises(ValueError, match=r"split must be one of .*'train', 'validation'.*; got 'dev'"):
        load(tmp_path, split="dev")
