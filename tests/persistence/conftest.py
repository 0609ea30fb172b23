"""A saved geometry to damage."""

import pytest

from carre.persistence import save
from tests.persistence.states import tiny_state


@pytest.fixture
def saved(tmp_path):
    save(tiny_state(), tmp_path / "geometry")
    return tmp_path / "geometry"
