"""Plain values survive JSON, exactly."""

import json
import math

import numpy as np
import pytest

from carre.networks import UNetSettings
from carre.storage.plain import decode, encode, plain_only

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
