"""A saved geometry to damage."""

import pytest

from carre.storage import save
from tests.storage.geometries import tiny_geometry


@pytest.fixture
def saved(tmp_path):
    save(tiny_geometry(), tmp_path / "geometry")
    return tmp_path / "geometry"
