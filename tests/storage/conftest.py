"""A saved geometry to damage."""

import pytest

from carre.storage import save
from tests.storage.states import tiny_state


@pytest.fixture
def saved(tmp_path):
    save(tiny_state(), tmp_path / "geometry")
    return tmp_path / "geometry"
