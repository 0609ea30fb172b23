"""Samples that do not fit into memory: drawn from fairly, read on while training goes on, and bounded."""

import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import carre
from carre.backend.reservoir import Refill, Terms, gather
from carre.data import open_source
from carre.fitting import FitSettings, Reading, accept_samples, expected_seconds
from tests.samples import TINY, circle

TERMS = Terms(capacity=100, held_out_share=0.1, most_held_out=50, seed=0)
QUICK = {**TINY, "max_steps": 30}


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch):
    """Hold 2,500 rows of five numbers at a time, where 20,000 are given."""
    monkeypatch.setattr("carre.fitting.samples._HELD_BYTES", 100_000)


def many(n=20_000):
    return np.pad(circle(n), ((0, 0), (0, 2))).astype(np.float32)


def weights_of(geometry):
    return torch.cat([value.flatten() for value in geometry.field.model.state_dict().values()])


class Stream(IterableDataset):
    """Rows one after the other, of each worker its share."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        part = slice(None) if info is None else slice(info.id, None, info.num_workers)
        return iter(torch.from_numpy(self.rows[part]))


def test_each_row_is_as_likely_to_be_drawn_as_any_other():
    """Of 400 draws of 100 of 1,000 rows a row is in 40, with a deviation of 6."""
    rows, counts = np.arange(1000.0)[:, None], np.zeros(1000)
    for seed in range(400):
        found = gather(open_source(rows), Terms(100, 0.0, 1, seed=seed))
        assert (len(found.rows), found.n_rows, found.is_whole) == (100, 1000, False)
        counts[found.rows[:, 0].long()] += 1
    assert counts.sum() == 400 * 100
    assert counts.std() == pytest.approx(6, rel=0.15)
    assert abs(counts[:100].mean() - counts[-100:].mean()) < 4 * 6 * np.sqrt(2 / 100)


def test_rows_are_held_out_by_what_is_in_them_in_every_pass():
    rows = np.random.default_rng(0).normal(size=(5000, 4))
    is_held = TERMS.is_held_out(rows)
    assert is_held.mean() == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 5000))
    order = np.random.default_rng(1).permutation(5000)
    np.testing.assert_array_equal(TERMS.is_held_out(rows[order]), is_held[order])
    found, samples = gather(open_source(rows), TERMS), torch.zeros(500, 4, dtype=torch.float64)
    assert not TERMS.is_held_out(found.rows.numpy()).any()
    assert TERMS.is_held_out(found.held_out.numpy()).all()
    with Refill(open_source(rows), TERMS, samples, lambda some: some, per_call=2000) as refill:
        for _ in range(5):
            refill()
    assert refill.n_replaced >= 10_000
    assert (samples != 0).any(1).all()
    assert not TERMS.is_held_out(samples.numpy()).any()


def test_what_fails_while_reading_ahead_is_raised_where_training_is():
    def breaking():
        yield np.ones((50, 2))
        yield np.full((3, 2), np.nan)

    source = open_source(breaking)
    refill = Refill(source, TERMS, torch.zeros(10, 2), lambda some: some.float(), per_call=1000)
    with pytest.raises(carre.ArgumentError, match=r"row 50 .* is missing"), refill:
        refill()
    assert not refill.thread.is_alive()


def test_an_iterator_that_is_handed_out_twice_is_no_source_without_an_end():
    """Each call should begin a new pass; this one goes on where the one before has ended."""
    batches = iter(np.split(many(4500), 9))
    with pytest.raises(carre.ArgumentError, match="have rows whenever it is read"):
        carre.fit(lambda: batches, **QUICK)


def test_a_source_that_fits_into_memory_gives_the_fit_of_its_rows(tmp_path):
    samples = circle(300)
    np.save(tmp_path / "a.npy", samples[:100])
    np.save(tmp_path / "b.npy", samples[100:])
    plain = weights_of(carre.fit(samples, **QUICK))
    for given in (tmp_path, open_source(samples), TensorDataset(torch.from_numpy(samples))):
        torch.testing.assert_close(weights_of(carre.fit(given, **QUICK)), plain, rtol=0, atol=0)


def test_shards_beyond_memory_are_drawn_from_and_read_on_the_same_each_time(tmp_path):
    for i, part in enumerate(np.split(many(), 4)):
        np.save(tmp_path / f"{i}.npy", part)
    fits = [carre.fit(tmp_path, **QUICK) for _ in range(2)]
    assert fits[0].n_samples == 20_000
    assert len(fits[0].landmarks) <= 2500
    torch.testing.assert_close(*map(weights_of, fits), rtol=0, atol=0)


@pytest.mark.slow
def test_a_fit_that_never_holds_its_samples_is_as_good_as_one_that_does():
    """The errors of both are those of three hundred steps, and vary by some tenths from seed to seed."""
    samples, settings = many(), {**TINY, "max_steps": 300, "width": 32, "bandwidth": 0.1}
    points = torch.from_numpy(samples[:200])
    across = torch.stack([-points[:, 1], points[:, 0]], 1)

    def error(**more):
        bases = carre.fit(**settings, **more).tangent_basis(points, 1)[:, :2, 0]
        return float((1 - (bases * across).sum(1).square()).clamp_min(0).sqrt().mean())

    assert error(X=open_source(samples)) < 1.5 * error(X=samples) + 0.005


@pytest.mark.slow
def test_loaders_with_workers_and_data_without_an_end_are_learned():
    samples = many()
    endless = np.random.default_rng(0)

    def forever():
        while True:
            yield samples[endless.integers(0, len(samples), 500)], "labels"

    loader = DataLoader(Stream(samples), batch_size=500, num_workers=2)
    # Of a length that nobody knows, the beginning is looked at before training.
    for given in (loader, forever):
        geometry = carre.fit(given, **QUICK)
        assert geometry.n_samples >= 4 * 2500
        assert geometry.dim == 5


def test_a_stream_that_is_sorted_is_noticed_and_an_array_is_read_in_any_order():
    samples = many()
    ordered = samples[np.argsort(samples[:, 0])]
    with pytest.warns(UserWarning, match="X seems to be sorted, and its length is known only after a pass"):
        accept_samples(lambda: iter(np.split(ordered, 40)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accept_samples(open_source(ordered))
        accept_samples(lambda: iter(np.split(samples, 40)))


def test_columns_that_number_rows_or_hardly_vary_are_named_in_a_draw_too():
    samples = many()
    samples[:, 3] = np.arange(len(samples))
    samples[7, 4] = 1.0
    # Row 7 is in one draw of eight.
    with pytest.warns(UserWarning, match=r"columns that hardly ever vary \(4\)"):
        given = accept_samples(open_source(samples), how=Reading(seed=2))
    assert any("'3' seems to number the rows" in concern for concern in given.concerns())


def test_units_of_columns_hold_for_rows_that_come_later():
    samples = many() * np.array([1, 1000, 1, 1, 1], dtype=np.float32)
    given = accept_samples(open_source(samples), scale="standardize")
    plan = given.plan(FitSettings(width=16, batch_size=32), seed=0, device=torch.device("cpu"))
    before = plan.training[:].clone()
    with plan.refill(plan.training) as refill:
        for _ in range(1000):
            refill()
    after = plan.training[:]
    assert (before != after).any(1).float().mean() > 0.9
    torch.testing.assert_close(after.std(0), before.std(0), rtol=0.1, atol=0)


def test_little_is_read_of_data_without_an_end_before_training_begins(monkeypatch):
    """However short its rows: half a gigabyte holds 67 million numbers."""
    monkeypatch.undo()
    read = []

    def forever():
        while True:
            read.append(2**14)
            yield np.random.default_rng(len(read)).normal(size=(2**14, 1))

    accept_samples(forever)
    assert sum(read) < 2**20 + 2**16


def test_what_is_too_little_memory_is_said_before_anything_is_trained():
    source = open_source(many())
    for given, must in ((1000, "memory must be at least 0.1 MB"), (200_000, "memory must leave room for residual MLP")):
        with pytest.raises(carre.ArgumentError, match=must):
            carre.fit(source, memory=given, **QUICK)
    with pytest.raises(carre.ArgumentError, match="memory must be left out for samples that are in memory already"):
        carre.fit(many(), memory=10**9, **QUICK)


def test_a_look_for_a_dry_run_reads_a_part(monkeypatch):
    monkeypatch.undo()
    read = []

    class Counted:
        shape, dtype = (10**7, 50), np.dtype(np.float32)

        def __getitem__(self, some):
            read.append(some.stop - some.start)
            return np.random.default_rng(some.start).normal(size=(read[-1], 50)).astype(np.float32)

    given = accept_samples(open_source(Counted()), how=Reading(looks_only=True))
    plan = given.plan(FitSettings(max_steps=5, width=16), seed=0, device=torch.device("cpu"))
    assert plan.n_samples == 10**7
    assert sum(read) < 300_000
    assert 2**29 < plan.costs()[1] < 2**30
    assert 0 < expected_seconds(plan)[-1] < 60


def test_an_interrupted_fit_of_a_source_goes_on(tmp_path):
    source, told = open_source(many()), {**QUICK, "max_steps": 60}

    def stop(progress):
        if progress.step == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carre.fit(source, **told, checkpoint=tmp_path / "run", progress=stop)
    steps = []
    carre.fit(source, **told, checkpoint=tmp_path / "run", progress=lambda progress: steps.append(progress.step))
    assert steps[0] == 41
    assert steps[-1] == 60
