"""The examples in the docstrings of experiments hold."""

import doctest
import importlib

import pytest

MODULES = [
    "measures.accuracy",
    "measures.command",
    "measures.speed",
    "measures.stability",
    "measures.wavelets",
    "attack.run",
    "own_loop.run",
    "sphere.settings",
    "sphere.step",
    "sphere.tables",
    "stability.blobs",
    "stability.comparison",
    "stability.cost",
    "stability.figures",
    "stability.settings",
    "stability.tables",
    "distances.run",
    "streams.run",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    failed, tried = doctest.testmod(importlib.import_module(f"experiments.{name}"))
    assert tried > 0
    assert failed == 0
