"""The table of costs says what was measured, what was not, and why."""

import copy
import dataclasses
import json
import time

import pytest
import torch

from carre.networks import UNetSettings
from experiments.stability.cost import (
    AT_ONCE,
    DECOMPOSED,
    IN_CHUNKS,
    MATCHING,
    QUICK_COST,
    CostSettings,
    CostShape,
    Method,
    Pilot,
    _random_model,
    cost_ratios,
    measure_cell,
    measure_cost,
    precision,
)
from experiments.stability.tables import cost_tables

pytestmark = pytest.mark.slow

TINY = CostShape("tiny", (1, 4, 4), 2, UNetSettings(4, (1,), 1, ()), 3)
ONE = dataclasses.replace(QUICK_COST, shapes=(TINY,), repeats=1, seconds=0.01, limit=100.0)
POINT = torch.zeros(1, 8)


@pytest.fixture(scope="module")
def results():
    lines, saved = [], []
    found = measure_cost(ONE, report=lines.append, save=lambda so_far: saved.append(len(so_far["rows"])))
    assert saved == list(range(1, 19)), "six methods, three of them in two batches, in two precisions"
    assert len(lines) == 18
    return found


def cell_of(method, *, repeats=2, seconds=10.0, limit=100.0):
    return measure_cell(method, POINT, repeats, seconds, limit)


def sleeping(duration):
    return lambda y: time.sleep(duration)


def test_every_cell_is_measured_and_can_be_written(results):
    for row in json.loads(json.dumps(results))["rows"]:
        assert row["status"] == "measured"
        assert row["seconds"] > 0
        assert row["repeats"] >= 1
        assert not row["extrapolated"]
    assert [row["batch"] for row in results["rows"] if row["method"] == MATCHING] == [1, 3, 1, 3]
    assert {row["n_products"] for row in results["rows"] if row["method"] in (AT_ONCE, IN_CHUNKS, DECOMPOSED)} == {16}


def test_sizes_are_those_of_the_networks_and_answers(results):
    (shape,) = results["shapes"]
    assert shape["factor_bytes"] == 4 * shape["factor_parameters"]
    assert (shape["answer_bytes"], shape["jacobian_bytes"]) == (4 * 2 * 16, 4 * 16**2)
    row = next(row for row in results["rows"] if row["method"] == MATCHING and row["batch"] == 3)
    assert row["result_bytes"] == 3 * shape["answer_bytes"]


def test_ratios_compare_single_images_in_the_same_precision(results):
    for ratio in results["ratios"]:
        own, base = (
            next(
                row
                for row in results["rows"]
                if (row["method"], row["precision"], row["batch"]) == (method, ratio["precision"], 1)
            )
            for method in (ratio["method"], MATCHING)
        )
        assert ratio["times_slower"] == own["seconds"] / base["seconds"]
    assert len(results["ratios"]) == 2 * 4


def test_the_weights_hold_no_zeros_and_leave_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, second = (_random_model(TINY, 5) for _ in range(2))
    assert torch.equal(torch.rand(1), expected)
    assert all(bool((value != 0).all()) for name, value in first.named_parameters() if "weight" in name)
    assert all(map(torch.equal, first.parameters(), second.parameters()))


def test_what_runs_out_of_memory_is_recorded_and_nothing_is_raised():
    def full(points):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 74 GiB\nand more")

    cell = cell_of(Method("greedy", full, 1000))
    assert (cell["status"], cell["seconds"], cell["peak_bytes"]) == ("out of memory", None, None)
    assert cell["result_bytes"] == 4000
    assert cell["message"] == "CUDA out of memory. Tried to allocate 74 GiB"


def test_what_was_known_before_the_memory_was_full_is_kept():
    calls = []

    def full_later(points):
        calls.append(1)
        raise RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")

    cell = cell_of(Method("greedy", full_later, 8, False, 10, Pilot(sleeping(0.01), 5), is_at_once=True))
    assert cell["status"] == "out of memory"
    assert cell["predicted_seconds"] == pytest.approx(0.02, rel=0.5)
    assert calls


def test_another_failure_is_called_one():
    def broken(points):
        raise RuntimeError("an illegal instruction")

    cell = cell_of(Method("broken", broken, 8))
    assert (cell["status"], cell["message"]) == ("failed", "an illegal instruction")


def test_a_mistake_in_the_program_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        cell_of(Method("wrong", lambda y: 1 / 0, 8))


def test_what_would_take_too_long_is_extrapolated_in_proportion():
    """5 products in 20 ms are 500 in 2 s, which nobody waits for."""

    def never(points):
        raise AssertionError("called")

    method = Method("slow", never, 8, False, 500, Pilot(sleeping(0.02), 5))
    cell = cell_of(method, limit=1.0)
    assert cell["extrapolated"]
    assert cell["status"] == "extrapolated"
    assert cell["seconds"] == cell["predicted_seconds"] == pytest.approx(2.0, rel=0.3)
    twice = cell_of(dataclasses.replace(method, n_products=1000), limit=1.0)
    assert twice["seconds"] == pytest.approx(2 * cell["seconds"]), "measured once for both"


def test_what_takes_long_but_not_too_long_is_called_once():
    calls = []
    method = Method("slow", lambda y: calls.append(time.sleep(0.05)), 8, False, 5, Pilot(sleeping(0.02), 1))
    cell = cell_of(method, repeats=10, seconds=0.05)
    assert (len(calls), cell["repeats"], cell["status"]) == (1, 1, "measured")
    assert 0.05 <= cell["seconds"] < 0.2


def test_precisions_are_restored():
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    for name, allowed in (("float32", False), ("tf32", True)):
        with precision(name):
            assert torch.backends.cudnn.allow_tf32 == allowed
            assert torch.get_float32_matmul_precision() == "highest"
    assert (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()) == before


def test_the_table_tells_what_happened_in_every_cell(results):
    changed = copy.deepcopy(results)
    rows = {(row["method"], row["precision"], row["batch"]): row for row in changed["rows"]}
    rows[MATCHING, "float32", 1] |= {"seconds": 0.0123, "peak_bytes": 450_000_000}
    rows[MATCHING, "float32", 3] |= {"seconds": 0.03, "peak_bytes": 9_000_000_000}
    rows[AT_ONCE, "float32", 1] |= {"status": "out of memory", "seconds": None, "peak_bytes": None}
    rows[AT_ONCE, "float32", 1] |= {"estimated_bytes": 500_000_000_000}
    rows[IN_CHUNKS, "float32", 1] |= {"status": "extrapolated", "extrapolated": True, "seconds": 12.3}
    rows[IN_CHUNKS, "float32", 1] |= {"peak_bytes": 2_000_000_000}
    changed["ratios"] = cost_ratios(changed["rows"])
    table = cost_tables(changed)
    assert "| metric matching | 1 | 12.3 ms, 450 MB |" in table
    assert "| metric matching | 3 | 10.0 ms, 3.0 GB |" in table
    assert "| full Jacobian, all products at once | 1 | out of memory (about 500.0 GB) |" in table
    assert "| full Jacobian, in chunks | 1 | 12,300 ms, 2.0 GB† |" in table
    assert "| tiny: full Jacobian, in chunks | 1,000× the time, 4.4× the memory† |" in table
    assert "| tiny: full Jacobian, all products at once | out of memory, 1,111× the memory |" in table
    assert "† Extrapolated" in table
    assert "†" not in cost_tables(results)


def test_a_failure_is_not_called_a_lack_of_memory_among_the_ratios(results):
    changed = copy.deepcopy(results)
    for row in changed["rows"]:
        if row["method"] == AT_ONCE and row["precision"] == "float32":
            row |= {"status": "failed", "seconds": None, "peak_bytes": None, "message": "a reason"}
        if row["method"] == MATCHING and row["precision"] == "bfloat16":
            row |= {"status": "out of memory", "seconds": None, "peak_bytes": None}
    changed["ratios"] = cost_ratios(changed["rows"])
    assert [(row["precision"], row["method"] == AT_ONCE) for row in changed["ratios"]] == [("float32", False)] * 3
    table = cost_tables(changed)
    assert "failed: a reason" in table
    assert "out of memory, " not in table


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CostShape("x", (1, 2, 2), 5, UNetSettings(), 2), "rank must lie between 1 and .* 4; got 5"),
        (lambda: CostShape("x", (1, 2, 2), 1, UNetSettings(), 1), "batch must be at least 2"),
        (lambda: CostSettings(shapes=()), "shapes must name at least one"),
        (lambda: CostSettings(precisions=("half",)), "precisions must be among .*; got half"),
        (lambda: CostSettings(repeats=0), "repeats must be at least 1"),
        (lambda: CostSettings(limit=0.0), "limit must be positive"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shapes": ("a",)}, "shapes must name at least one shape, in a tuple of CostShape; got"),
        ({"precisions": None}, "precisions must be among .*; got None"),
        ({"repeats": "a"}, "repeats must be at least 1, a whole number; got 'a'"),
        ({"seconds": "a"}, "seconds must be positive, a finite number; got 'a'"),
    ],
)
def test_settings_of_another_kind_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        CostSettings(**wrong)
