"""Columns that can spoil a geometry are found, and innocent ones are left in peace."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from carre.data import column_concerns


def findings(values, names=None):
    return {concern.columns: concern.finding for concern in column_concerns(np.asarray(values, dtype=float), names)}


@pytest.fixture
def plain():
    return np.random.default_rng(0).normal(size=(200, 3))


@pytest.mark.parametrize(
    "numbers",
    [np.arange(200), np.arange(1, 201)[::-1], 1000 + 3 * np.arange(200), np.random.default_rng(1).permutation(200)],
    ids=["from 0", "backwards", "with gaps", "shuffled"],
)
def test_a_column_that_numbers_the_rows_is_named(plain, numbers):
    found = column_concerns(np.column_stack([plain, numbers]), ("a", "b", "c", "id"))
    assert [concern.columns for concern in found if "number the rows" in concern.finding] == [("id",)]
    assert str(found[0]).startswith("column 'id' seems to number the rows")
    assert "Leave it out" in str(found[0])


@pytest.mark.parametrize("other", [np.linspace(0, 1, 200), np.random.default_rng(2).integers(0, 10**6, 200)])
def test_times_and_large_whole_numbers_do_not_number_rows(plain, other):
    assert not any("number the rows" in text for text in findings(np.column_stack([plain, other])).values())


def test_categories_are_named_unless_most_columns_are_whole(plain):
    kinds = np.arange(200) % 3
    assert findings(np.column_stack([plain, kinds]))[("3",)].startswith("holds 3 whole numbers only")
    assert findings(np.column_stack([plain, kinds, kinds > 1]))[("3", "4")].startswith("hold 2 to 3 whole numbers")
    # Counts, or pixels.
    assert findings(np.random.default_rng(0).poisson(2.0, size=(200, 5))) == {}


def test_a_column_that_has_the_say_and_units_of_its_own(plain):
    (text,) = findings(plain * [1.0, 1.0, 50.0]).values()
    assert text == "has more than 99% of the variance"
    several = np.column_stack([plain, 300 * plain[:, ::-1]])
    assert findings(several + np.random.default_rng(3).normal(size=several.shape))[("3", "4", "5")].startswith("vary ")
    assert findings(plain) == {}
    assert findings(np.ones((10, 2))) == {}


@pytest.mark.parametrize("load", [load_iris, load_digits, load_diabetes])
def test_well_known_tables_are_left_in_peace(load):
    assert findings(load().data) == {}


def test_wine_and_its_row_numbers():
    wine = load_wine()
    names = ["id", *wine.feature_names]
    found = findings(np.column_stack([np.arange(178), wine.data]), names)
    assert found[("id",)].startswith("seems to number the rows")
    assert found[("proline",)].endswith("of the variance")
    (text,) = findings(load_breast_cancer().data).values()
    assert "times as much as the one in the middle" in text


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        (np.zeros(5), None, "values must have shape"),
        (np.zeros((5, 2, 2)), None, "values must have shape"),
        (np.zeros((0, 3)), None, "values must not be empty"),
        ([[np.nan, 1.0], [2.0, 3.0]], None, "values must be finite"),
        ([["a", "b"]], None, "values must be numeric"),
        (np.zeros((5, 2)), ("a",), "names must be as many as the columns, 2; got 1"),
    ],
)
def test_what_is_no_table_is_named(values, names, message):
    with pytest.raises(ValueError, match=message):
        column_concerns(values, names)


def test_few_rows_and_huge_numbers_say_nothing_odd(plain):
    assert findings([[1, 2], [2, 3], [3, 5]]) == {}
    assert findings(1e200 * plain) == {}
