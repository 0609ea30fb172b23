import sys

import numpy as np
import pytest
from PIL import Image

from carre.data import DamagedFileError, Normalization, load_image_folder

RANDOM = np.random.default_rng(0)


def draw(file, width=6, height=4, mode="RGB", color=None):
    """Write an image, of random pixels or of one color, and return its pixels as (C, H, W)."""
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    pixels = RANDOM.integers(0, 256, shape, dtype=np.uint8) if color is None else np.full(shape, color, dtype=np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)


@pytest.mark.parametrize("suffix", ["png", "PNG", "bmp", "ppm", "tif"])
def test_lossless_formats_are_read_bit_by_bit(tmp_path, suffix):
    expected = draw(tmp_path / f"one.{suffix}")
    np.testing.assert_array_equal(load_image_folder(tmp_path).pixels, expected[None])


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "webp"])
def test_lossy_formats_are_read_too(tmp_path, suffix):
    draw(tmp_path / f"one.{suffix}", 16, 16, color=90)
    assert np.abs(load_image_folder(tmp_path).pixels.astype(int) - 90).max() <= 2


def test_images_come_in_the_order_of_their_names(tmp_path):
    expected = {name: draw(tmp_path / name) for name in ("c.png", "a.bmp", "b.png")}
    dataset = load_image_folder(tmp_path)
    np.testing.assert_array_equal(dataset.pixels, [expected[name] for name in sorted(expected)])
    assert dataset.labels is None
    assert dataset.name == tmp_path.name


def test_subfolders_are_classes(tmp_path):
    for name in ("dogs/1.png", "cats/2.png", "cats/more/3.png", "cats/1.png"):
        draw(tmp_path / name)
    (tmp_path / "empty").mkdir()
    dataset = load_image_folder(tmp_path)
    np.testing.assert_array_equal(dataset.labels, [0, 0, 0, 1])
    assert dataset.class_names == ("cats", "dogs")


def test_other_and_hidden_files_are_passed_over(tmp_path):
    draw(tmp_path / "one.png")
    draw(tmp_path / ".trash" / "two.png")
    (tmp_path / "._one.png").write_bytes(b"what another system left")
    (tmp_path / "notes.txt").write_text("not an image")
    assert len(load_image_folder(tmp_path)) == 1


def test_a_size_keeps_the_central_square(tmp_path):
    """Resizing to the side of the square is no resizing: what is left is the crop."""
    wide, tall = draw(tmp_path / "1.png", 8, 4), draw(tmp_path / "2.png", 4, 7)
    pixels = load_image_folder(tmp_path, size=4).pixels
    np.testing.assert_array_equal(pixels, [wide[:, :, 2:6], tall[:, 1:5, :]])


def test_a_crop_alone_leaves_the_scale(tmp_path):
    expected = draw(tmp_path / "1.png", 9, 7)
    np.testing.assert_array_equal(load_image_folder(tmp_path, crop=3).pixels, expected[None, :, 2:5, 3:6])


def test_shrinking_averages_instead_of_dropping_pixels(tmp_path):
    """A checkerboard becomes gray; every fourth pixel of it would be black or white."""
    board = np.indices((32, 32)).sum(0) % 2 * 255
    Image.fromarray(board.astype(np.uint8)).save(tmp_path / "board.png")
    inside = load_image_folder(tmp_path, size=8).pixels[0, 0, 1:-1, 1:-1].astype(int)
    assert np.abs(inside - 127.5).max() < 5


def test_images_of_different_sizes_are_refused_and_the_first_is_named(tmp_path):
    for i in range(40):
        draw(tmp_path / f"{i:02}.png", *((5, 4) if i in (7, 30) else (6, 4)))
    with pytest.raises(ValueError, match=r"07.png is 5 × 4, and 00.png is 6 × 4. Pass size=… to crop and resize them"):
        load_image_folder(tmp_path)


def test_one_color_image_makes_all_of_them_color(tmp_path):
    gray = draw(tmp_path / "1.png", mode="L")
    assert load_image_folder(tmp_path).sample_shape == (1, 4, 6)
    draw(tmp_path / "2.png")
    dataset = load_image_folder(tmp_path)
    assert dataset.sample_shape == (3, 4, 6)
    np.testing.assert_array_equal(dataset.pixels[0], np.repeat(gray, 3, axis=0))


def test_a_mode_decides_on_the_channels(tmp_path):
    draw(tmp_path / "1.png", color=77)
    np.testing.assert_array_equal(load_image_folder(tmp_path, mode="L").pixels, np.full((1, 1, 4, 6), 77))
    draw(tmp_path / "1.png", mode="L")
    assert load_image_folder(tmp_path, mode="RGB").sample_shape == (3, 4, 6)


def test_transparency_is_ignored(tmp_path):
    expected = draw(tmp_path / "1.png", mode="RGBA")
    np.testing.assert_array_equal(load_image_folder(tmp_path).pixels[0], expected[:3])


def test_photographs_are_turned_upright(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6  # the top of the scene is at the right
    pixels = RANDOM.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "1.png", exif=turned)
    expected = np.rot90(pixels, -1).transpose(2, 0, 1)
    np.testing.assert_array_equal(load_image_folder(tmp_path).pixels[0], expected)


def test_a_limit_takes_its_share_of_every_class(tmp_path):
    for name in ("a", "b"):
        for i in range(10):
            draw(tmp_path / name / f"{i}.png")
    np.testing.assert_array_equal(load_image_folder(tmp_path, limit=4).labels, [0, 0, 1, 1])
    assert len(load_image_folder(tmp_path, limit=100)) == 20


def test_the_normalization_is_the_one_that_was_given(tmp_path):
    draw(tmp_path / "1.png")
    assert load_image_folder(tmp_path).normalization == Normalization((0.5,), 0.5)
    assert load_image_folder(tmp_path, normalization=Normalization((0.1,), 2.0)).normalization.deviation == 2.0


@pytest.mark.parametrize("mode", [None, "RGB"])
@pytest.mark.parametrize("content", [b"", b"no image", None])
def test_an_undecodable_image_is_named(tmp_path, mode, content):
    for i in range(3):
        draw(tmp_path / f"{i}.png", 60, 60, mode="L")
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(DamagedFileError, match=r"1.png cannot be decoded as an image"):
        load_image_folder(tmp_path, mode=mode)


def test_more_than_eight_bits_are_refused(tmp_path):
    Image.fromarray(np.full((4, 4), 1000, dtype=np.uint16)).save(tmp_path / "1.png")
    with pytest.raises(ValueError, match=r"images must have 8 bits for each value; .*1.png has more"):
        load_image_folder(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder must hold images; there are none"):
        load_image_folder(tmp_path)


def test_a_missing_folder_and_a_file_are_refused(tmp_path):
    draw(tmp_path / "1.png")
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*nowhere"):
        load_image_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"folder must be a folder; .*1.png is a file"):
        load_image_folder(tmp_path / "1.png")


def test_images_beside_classes_are_refused(tmp_path):
    draw(tmp_path / "1.png")
    draw(tmp_path / "cats" / "1.png")
    with pytest.raises(ValueError, match=r"has 1 in itself and others in cats. Move them apart"):
        load_image_folder(tmp_path)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 0}, "size must be a positive integer, or None; got 0"),
        ({"size": 2.5}, "size must be an integer or None; got 2.5"),
        ({"crop": 5}, "crop must be at most 4, the smaller side of .*1.png; got 5"),
        ({"limit": 0}, "limit must be a positive integer, or None; got 0"),
        ({"mode": "gray"}, "mode must be one of None, 'L', 'RGB'; got 'gray'"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_sentence(tmp_path, options, sentence):
    draw(tmp_path / "1.png")
    with pytest.raises(ValueError, match=sentence):
        load_image_folder(tmp_path, **options)


def test_without_pillow_the_remedy_is_named(tmp_path, monkeypatch):
    draw(tmp_path / "1.png")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"pip install 'carre\[images\]'"):
        load_image_folder(tmp_path)


def test_the_bar_counts_every_image(tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.setattr("carre.progress._SECONDS", 0.0)
    for i in range(20):
        draw(tmp_path / f"{i}.png")
    with caplog.at_level("INFO", logger="carre"):
        load_image_folder(tmp_path)
    assert caplog.messages == ["reading images: 80% after 0 s", "reading images: 100% after 0 s"]
    assert capsys.readouterr() == ("", "")
