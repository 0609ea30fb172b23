"""Speed and memory of functions whose cost is known."""

import time

import pytest
import torch

from experiments.measures import peak_memory, speed, throughput

BLOCK = 2**25


def test_a_function_that_sleeps_has_the_throughput_of_its_sleep():
    measured = throughput(lambda y: time.sleep(0.02), torch.zeros(30, 2), batch=10, repeats=5, warmup=1)
    assert 0.02 <= measured.seconds_per_batch < 0.1
    assert measured.points_per_second == pytest.approx(10 / measured.seconds_per_batch)
    assert (measured.batch, measured.repeats, measured.device) == (10, 5, "cpu")


def test_the_first_calls_are_not_timed():
    delays = [0.1, 0.1] + [0.0] * 100
    measured = throughput(lambda y: time.sleep(delays.pop(0)), torch.zeros(3, 2), repeats=5, warmup=2)
    assert measured.seconds_per_batch < 0.05


def test_a_slow_function_is_timed_at_least_once_and_then_no_longer_than_asked():
    calls = []
    measured = throughput(
        lambda y: calls.append(time.sleep(0.05)), torch.zeros(3, 2), repeats=1000, warmup=1000, seconds=0.12
    )
    assert measured.repeats == 1
    assert len(calls) <= 5


def test_the_median_does_not_see_one_slow_call():
    delays = [0.01, 0.01, 0.2, 0.01, 0.01]
    measured = throughput(lambda y: time.sleep(delays.pop(0)), torch.zeros(3, 2), repeats=5, warmup=0)
    assert measured.seconds_per_batch < 0.05


def test_calls_take_one_full_batch_after_the_other():
    seen = []
    points = torch.arange(7.0)[:, None]
    throughput(lambda y: seen.append(y[:, 0].tolist()), points, batch=3, repeats=3, warmup=0)
    assert seen == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]


def test_the_spread_of_equal_times_is_small_and_of_unequal_ones_large():
    delays = [0.01, 0.04] * 4
    measured = throughput(lambda y: time.sleep(delays.pop(0)), torch.zeros(3, 2), repeats=8, warmup=0)
    assert measured.spread > 0.5


@pytest.mark.skipif(not speed._reset_resident_peak(), reason="this system keeps no record that can be reset")
def test_the_peak_is_that_of_a_block_of_known_size():
    """Also when it was freed before the call returned, and when malloc could have kept it from the call before."""

    def allocate(points):
        block = torch.ones(BLOCK // 4)
        return float(block[0])

    for _ in range(2):
        assert peak_memory(allocate, torch.zeros(1, 1)) == pytest.approx(BLOCK, abs=2**21)


@pytest.mark.skipif(not speed._reset_resident_peak(), reason="this system keeps no record that can be reset")
def test_small_blocks_count_as_well():
    def allocate(points):
        return [torch.ones(2**16) for _ in range(128)]

    assert peak_memory(allocate, torch.zeros(1, 1)) == pytest.approx(2**25, abs=2**21)


def test_without_a_warm_up_the_function_is_called_once(monkeypatch):
    calls = []
    monkeypatch.setattr(speed, "_reset_resident_peak", lambda: True)
    peak_memory(lambda y: calls.append(1), torch.zeros(1, 1), warmup=False)
    assert len(calls) == 1


@pytest.mark.skipif(not speed._reset_resident_peak(), reason="this system keeps no record that can be reset")
def test_the_measurement_after_one_that_failed_is_right():
    def fail(points):
        block = torch.ones(BLOCK // 4)
        raise torch.OutOfMemoryError(f"{block[0]}")

    with pytest.raises(torch.OutOfMemoryError):
        peak_memory(fail, torch.zeros(1, 1))
    assert peak_memory(lambda y: torch.ones(BLOCK // 4), torch.zeros(1, 1)) == pytest.approx(BLOCK, abs=2**21)


def test_where_memory_cannot_be_measured_there_is_none(monkeypatch):
    monkeypatch.setattr(speed, "_reset_resident_peak", lambda: False)
    assert peak_memory(lambda y: y + 1, torch.zeros(1, 1)) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch must lie between 1 and the number of points, 3; got 0"),
        ({"batch": 4}, "batch must lie between 1 and the number of points, 3; got 4"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"warmup": -1}, "warmup at least 0"),
        ({"seconds": 0.0}, "seconds must be positive"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        throughput(lambda y: y, torch.zeros(3, 2), **options)


def test_bad_points_are_named():
    for measure in (throughput, peak_memory):
        with pytest.raises(ValueError, match="points must have shape"):
            measure(lambda y: y, torch.zeros(3))


@pytest.mark.gpu
def test_on_a_gpu_the_call_is_timed_until_the_device_has_finished():
    matrix = torch.randn(4096, 4096, device="cuda")
    measured = throughput(lambda y: matrix @ matrix @ matrix, torch.zeros(3, 2, device="cuda"))
    assert measured.device == "cuda:0"
    assert measured.seconds_per_batch > 4 * 4096**3 / 1e15


@pytest.mark.gpu
def test_on_a_gpu_the_peak_is_that_of_a_block_of_known_size():
    def allocate(points):
        block = torch.ones(BLOCK // 4, device="cuda")
        return float(block[0])

    assert peak_memory(allocate, torch.zeros(1, 1, device="cuda")) == pytest.approx(BLOCK, abs=2**12)
