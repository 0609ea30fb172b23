"""Files of AnnData on the command line: variables are found by their names, as columns of tables are."""

import anndata
import numpy as np
import pandas as pd
import pytest

import carre
from carre.cli._inputs import load_data
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")


@pytest.fixture
def file(tmp_path):
    cells = anndata.AnnData(circle(60), var=pd.DataFrame(index=["A", "B", "C"]))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    cells[:, ["C", "A", "B"]].copy().write_h5ad(tmp_path / "turned.h5ad")
    return tmp_path / "cells.h5ad"


def test_variables_in_another_order_are_found_by_name(file):
    geometry = carre.fit(carre.data.load_samples(file), bandwidth=0.2, **TINY)
    rows = load_data(geometry, str(file.with_name("turned.h5ad")))
    np.testing.assert_allclose(rows.values, circle(60))
    assert list(rows.names) == ["A", "B", "C"]


def test_a_matrix_of_another_size_is_chosen_by_its_key(file):
    geometry = carre.fit(circle(60)[:, :2], bandwidth=0.2, **TINY)
    with pytest.raises(ValueError, match=r"has 3 \(A, B, C\). Choose a matrix by .*cells.h5ad::key"):
        load_data(geometry, str(file))
