"""An edited config.json is refused with the reason, before a number of it does harm."""

import re

import pytest

from carre.storage import LoadError, load, save
from tests.storage.states import image_state, tiny_state
from tests.storage.test_folder import edit

POSITIVE, NOT_NEGATIVE, SIZE = "a positive number", "a number that is not negative", "a positive integer"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saved once: what a test changes in config.json, it writes back."""
    place = tmp_path_factory.mktemp("checking")
    save(tiny_state(), place / "table")
    save(image_state(), place / "images")
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
    save(tiny_state(supported_from=0.0), tmp_path / "x")
    assert load(tmp_path / "x").supported_from == 0
