"""Rows that stay where they are are the samples that copies of them would be."""

import numpy as np
import pytest
import torch

import carre
from carre.backend.rows import Rows, in_blocks

OPTIONS = {"max_steps": 12, "width": 16, "n_blocks": 1, "random_state": 0, "verbose": False, "device": "cpu"}


@pytest.fixture
def table():
    return torch.arange(40.0).reshape(10, 4)


def test_rows_are_indexed_like_the_tensor_that_they_stand_for(table, monkeypatch):
    order = torch.tensor([7, 2, 9, 0, 2])
    rows, copy = Rows(table, order).then(lambda part: part[:, :3].double() / 2), table[order][:, :3].double() / 2
    assert (len(rows), rows.shape, rows.dtype, rows.device) == (5, (5, 3), torch.float64, copy.device)
    for which in (slice(2), slice(None), torch.tensor([4, 4, 1])):
        assert torch.equal(rows[which], copy[which])
    assert torch.equal(rows.sorted()[:], copy[order.argsort(stable=True)])
    monkeypatch.setattr("carre.backend.rows.LARGE", 0)
    monkeypatch.setattr("carre.backend.rows._NUMBERS_AT_ONCE", 8)
    assert [len(part) for part in in_blocks(rows)] == [2, 2, 1], "four columns of the table make three"
    assert torch.equal(torch.cat(list(in_blocks(rows))), copy)
    assert torch.equal(rows.whole(), copy)


@pytest.mark.parametrize(
    "more",
    [{}, {"scale": "standardize"}, {"scale": "robust"}, {"validation_fraction": 0.0}, {"method": "uncentered"}],
    ids=str,
)
def test_a_fit_on_rows_is_the_fit_on_copies(more, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1.0, 2.0, 3.0]
    copied = carre.fit(X, **OPTIONS, **more)
    for name in ("backend.rows", "boundary", "data.columns", "fitting.samples", "fitting.plan", "metric.frame"):
        monkeypatch.setattr(f"carre.{name}.LARGE", 0)
    monkeypatch.setattr("carre.backend.rows._NUMBERS_AT_ONCE", 200)
    read = carre.fit(X, **OPTIONS, **more)
    assert read.bandwidth == pytest.approx(copied.bandwidth, rel=1e-6)
    assert read.bandwidth_range == pytest.approx(copied.bandwidth_range, rel=1e-6)
    np.testing.assert_allclose(read.landmarks, copied.landmarks, rtol=1e-12)
    np.testing.assert_allclose(read.eigenvalues(X[:20]), copied.eigenvalues(X[:20]), rtol=0, atol=1e-3)
