"""config.json: plain values survive it exactly, and what somebody has edited is refused before it does harm."""

import json
import math
import re

import numpy as np
import pytest

from carre.networks import UNetSettings
from carre.storage import LoadError, load, save
from carre.storage._description import decode, encode, plain_only
from tests.storage.geometries import image_geometry, tiny_geometry
from tests.storage.test_folder import edit

VALUES = {
    "none": None,
    "flag": True,
    "count": 3,
    "third": 1 / 3,
    "tiny": 5e-324,
    "infinite": -math.inf,
    "text": "σ",
    "pair": (0.1, (1, "a")),
    "settings": UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1, attention=()),
}


@pytest.mark.parametrize("name", sorted(VALUES))
def test_values_come_back_with_their_types(name):
    again = decode(json.loads(json.dumps(encode(VALUES[name]), allow_nan=False)))
    assert again == VALUES[name]
    assert type(again) is type(VALUES[name])


def test_what_is_not_a_number_stays_none():
    assert math.isnan(decode(json.loads(json.dumps(encode(math.nan), allow_nan=False))))


@pytest.mark.parametrize("value", [np.float64(0.1), np.int64(3), np.bool_(True), np.array([0.1, 0.2])])
def test_numbers_of_numpy_become_pythons(value):
    encoded = encode(value)
    assert json.loads(json.dumps(encoded)) == value.tolist()


def test_numbers_in_single_precision_are_widened_exactly():
    assert encode(np.float32(0.1)) == float(np.float32(0.1))


def test_what_is_not_plain_is_left_out():
    values = {"seed": np.random.RandomState(0), "names": {1: "a"}, "rank": 3}
    assert plain_only(values) == {"rank": 3}
    with pytest.raises(TypeError, match="not a plain value"):
        encode(values["seed"])


POSITIVE, NOT_NEGATIVE, SIZE = "a positive number", "a number that is not negative", "a positive integer"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saved once: what a test changes in config.json, it writes back."""
    place = tmp_path_factory.mktemp("checking")
    save(tiny_geometry(), place / "table")
    save(image_geometry(), place / "images")
    return place


def sentence_of(place, section, change):
    """What loading says after a change of a section of config.json."""
    before = (place / "config.json").read_bytes()
    edit(place, lambda config: config[section].update(change))
    try:
        with pytest.raises(LoadError) as caught:
            load(place)
    finally:
        (place / "config.json").write_bytes(before)
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "name", "value", "kind"),
    [
        ("fitted", "bandwidth", -1, POSITIVE),
        ("fitted", "bandwidth", 0.0, POSITIVE),
        ("fitted", "bandwidth", "a", POSITIVE),
        ("fitted", "bandwidth", None, POSITIVE),
        ("fitted", "bandwidth", True, POSITIVE),
        ("fitted", "bandwidth", {"float": "nan"}, POSITIVE),
        ("fitted", "bandwidth", 10**400, POSITIVE),
        ("fitted", "bandwidth_range", [1.0, 0.1], "with low < high"),
        ("fitted", "bandwidth_range", [0.1, 0.1], "with low < high"),
        ("fitted", "bandwidth_range", [-0.1, 1], "two positive numbers"),
        ("fitted", "bandwidth_range", [1], "two positive numbers"),
        ("fitted", "bandwidth_range", 1, "two positive numbers"),
        ("fitted", "supported_from", -0.1, NOT_NEGATIVE),
        ("fitted", "supported_from", "a", NOT_NEGATIVE),
        ("fitted", "is_centered", "yes", "true or false"),
        ("fitted", "rank", 0, SIZE),
        ("fitted", "rank", 4.0, SIZE),
        ("fitted", "rank", 7, "be 4, like that of the architecture"),
        ("fitted", "n_features_in", "5", SIZE),
        ("fitted", "n_features_in", 6, "be 5, like that of the center"),
        ("fitted", "sample_shape", [1, 5], r"three positive integers"),
        ("fitted", "sample_shape", [1, 2, 4], "have 5 numbers in all"),
        ("fitted", "feature_names_in", 3, "a list of strings"),
        ("fitted", "feature_names_in", ["a", "b"], "be 5 names"),
        ("field", "scale", "a", POSITIVE),
        ("field", "scale", -1.0, POSITIVE),
        ("field", "ridge", -0.1, NOT_NEGATIVE),
        ("field", "ridge", "a", NOT_NEGATIVE),
        ("field", "mixed_precision", 3, "true or false"),
    ],
)
def test_a_value_that_no_fit_gives_is_named_with_what_it_must_be(saved, section, name, value, kind):
    sentence = sentence_of(saved / "table", section, {name: value})
    assert re.match(f"{name} in config.json must .*{kind}.*; got .*copy the folder again", sentence), sentence


@pytest.mark.parametrize("shape", [[1, 4, 16], [64, 1, 1], None])
def test_the_shape_of_images_is_that_of_the_network(saved, shape):
    sentence = sentence_of(saved / "images", "fitted", {"sample_shape": shape})
    assert sentence.startswith("sample_shape in config.json must be (1, 8, 8), like that of the architecture"), sentence


def test_samples_that_repeat_have_neighbors_at_every_scale(tmp_path):
    save(tiny_geometry(supported_from=0.0), tmp_path / "x")
    assert load(tmp_path / "x").supported_from == 0
