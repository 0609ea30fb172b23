"""A run that was interrupted goes on as if it had not been: to the last bit, on a CPU with a budget of steps."""

import dataclasses
import os
import signal

import pytest
import torch

from carre.training import TrainingDivergedError
from tests.training.runs import STEPS, circle, interrupt, make_model, run, stop_at

pytestmark = pytest.mark.slow


def assert_same(one, other):
    """The same weights and the same record, but for the seconds."""
    (model, history), (twin, record) = one, other
    for name, value in model.state_dict().items():
        assert torch.equal(value, twin.state_dict()[name]), name
    assert without_seconds(history) == without_seconds(record)


def without_seconds(history):
    found = dataclasses.asdict(history)
    del found["seconds"]
    for evaluation in found["evaluations"]:
        del evaluation["seconds"]
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["ours", "a network with dropout"])
def uninterrupted(request):
    return request.param, run(make_model(request.param))


@pytest.mark.slow
# Evaluations are after the steps 4, 8 and 12: before the first one, at one, after one, and when all is done.
@pytest.mark.parametrize("step", [1, 4, 9, STEPS])
def test_a_run_goes_on_to_the_same_bits(uninterrupted, step, tmp_path):
    own, wanted = uninterrupted
    path = tmp_path / "run.safetensors"
    interrupt(path, step, make_model(own))
    seen = []
    resumed = run(make_model(own), path=path, callback=seen.append)
    assert [progress.step for progress in seen] == list(range(step + 1, STEPS + 1))
    assert_same(resumed, wanted)


def test_a_run_can_be_interrupted_again_and_again(uninterrupted, tmp_path):
    own, wanted = uninterrupted
    for step in (2, 3, 7, 11):
        interrupt(tmp_path / "run", step, make_model(own))
    assert_same(run(make_model(own), path=tmp_path / "run"), wanted)


def test_the_initial_weights_of_a_network_do_not_matter_when_a_run_goes_on(uninterrupted, tmp_path):
    """In a new process a user's network starts from other random numbers; also a weight that takes no part."""
    own, wanted = uninterrupted
    interrupt(tmp_path / "run", 5, make_model(own))
    model = make_model(own)
    for parameter in model.parameters():
        parameter.data.normal_()
    assert_same(run(model, path=tmp_path / "run"), wanted)


def test_a_checkpoint_changes_nothing(uninterrupted, tmp_path):
    own, wanted = uninterrupted
    assert_same(run(make_model(own), path=tmp_path / "run", every=0.0), wanted)


def test_what_is_done_is_not_done_again(tmp_path):
    first = run(path=tmp_path / "run")
    seen = []
    assert_same(run(path=tmp_path / "run", callback=seen.append), first)
    assert seen == []


@pytest.mark.slow
def test_the_end_comes_at_the_same_step_across_interruptions(tmp_path):
    settings = {"max_steps": 5000, "round_steps": 35, "learning_rate": 0.01, "worth": 0.5, "n_references": 0}
    wanted = run(**settings)
    assert wanted[1].stop_reason == "done"
    # While the evidence is gathered, while the rate falls, and in the polish.
    for share in (0.2, 0.5, 0.9):
        interrupt(tmp_path / "run", int(share * wanted[1].steps), **settings)
    assert_same(run(path=tmp_path / "run", **settings), wanted)


@pytest.mark.slow
def test_a_decay_that_was_cut_short_stays_so_across_interruptions(tmp_path, monkeypatch):
    """All gets worse: the decay from step 150 to 350 is cut when half of it is over, and the polish is shorter."""
    monkeypatch.setattr("carre.training.loop.is_done", lambda *given: False)
    monkeypatch.setattr("carre.training.loop.is_worse", lambda *given: True)
    settings = {"max_steps": 500, "round_steps": 20, "decay": 0.4, "polish": 0.3, "n_references": 0}
    wanted = run(**settings)
    assert wanted[1].stop_reason == "done"
    cut, end = (evaluation.step for evaluation in wanted[1].evaluations[-2:])
    assert 250 <= cut < 290
    assert end == wanted[1].steps == pytest.approx(cut / 0.7, abs=1)
    interrupt(tmp_path / "run", cut + 10, **settings)
    assert_same(run(path=tmp_path / "run", **settings), wanted)


def test_seconds_before_the_interruption_count_towards_the_budget(tmp_path, monkeypatch):
    """By a clock that advances a second whenever it is read."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("carre.training.loop.time.perf_counter", lambda: float(next(ticks)))
    settings = {"max_steps": 10**6, "max_seconds": 40.0}
    whole = run(path=tmp_path / "whole", **settings)[1]
    interrupt(tmp_path / "run", 10, **settings)
    resumed = run(path=tmp_path / "run", **settings)[1]
    # The clock is read twice per step, and a few times more to write.
    assert abs(resumed.steps - whole.steps) <= 3
    assert resumed.evaluations[-1].seconds >= 40
    seconds = [evaluation.seconds for evaluation in resumed.evaluations]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError, SystemExit])
def test_whatever_a_callback_raises_the_run_is_kept(error, tmp_path):
    with pytest.raises(error):
        run(path=tmp_path / "run", callback=stop_at(2, error))
    assert (tmp_path / "run").exists()


def test_a_run_is_kept_at_evaluations_and_when_the_last_time_is_long_ago(tmp_path):
    """Evaluations are after the steps 4, 8 and 12."""
    seen, path = {}, tmp_path / "run"

    def note(progress):
        seen[progress.step] = path.stat().st_mtime_ns if path.exists() else None

    run(path=path, callback=note)
    assert [step for step in range(2, STEPS + 1) if seen[step] != seen[step - 1]] == [4, 8, 12]
    path.unlink()
    run(path=path, callback=note, every=0.0)
    assert len(set(seen.values()) - {None}) == STEPS


def test_nothing_is_left_beside_the_file(tmp_path):
    run(path=tmp_path / "run", every=0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_ctrl_c_in_the_middle_of_a_step_waits_for_its_end(tmp_path, monkeypatch, uninterrupted):
    """The signal comes between the update of the weights and that of their average."""
    own, wanted = uninterrupted
    real, calls = torch._foreach_sub, []

    def press(*arguments):
        calls.append(1)
        if len(calls) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(torch, "_foreach_sub", press)
    with pytest.raises(KeyboardInterrupt):
        run(make_model(own), path=tmp_path / "run")
    assert len(calls) == 6
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen = []
    assert_same(run(make_model(own), path=tmp_path / "run", callback=seen.append), wanted)
    assert seen[0].step == 7, "the step in which the signal came was finished, and kept"


def test_an_error_in_a_step_leaves_the_last_file(tmp_path, monkeypatch, uninterrupted):
    own, wanted = uninterrupted
    real, calls = torch._foreach_sub, []

    def fail(*arguments):
        calls.append(1)
        if len(calls) == 6:
            raise MemoryError
        return real(*arguments)

    monkeypatch.setattr(torch, "_foreach_sub", fail)
    with pytest.raises(MemoryError):
        run(make_model(own), path=tmp_path / "run")
    monkeypatch.undo()
    assert_same(run(make_model(own), path=tmp_path / "run"), wanted)


def test_a_run_that_diverged_leaves_no_file(tmp_path):
    """It would only diverge again, and refuse the smaller learning rate that helps."""
    samples = circle()
    with pytest.raises(TrainingDivergedError):
        run(path=tmp_path / "run", samples=samples * 1e30, every=0.0)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_warns_and_training_goes_on(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    wanted = run()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="the checkpoint could not be written .*No space left.*training goes on"):
        found = run(path=tmp_path / "run")
    assert_same(found, wanted)
    assert list(tmp_path.iterdir()) == [], "nothing half written may stay"


@pytest.mark.gpu
@pytest.mark.parametrize("cuda_graph", [True, False])
@pytest.mark.parametrize("mixed_precision", [True, False])
def test_a_run_on_a_gpu_goes_on(cuda_graph, mixed_precision, tmp_path):
    """Close, not to the bit: sums on a GPU are not in order, and a replayed step draws its batch one step ahead."""
    settings = {"device": "cuda", "cuda_graph": cuda_graph, "mixed_precision": mixed_precision}
    settings |= {"max_steps": 300, "batch_size": 256, "evaluations": 10}
    wanted = run(**settings)[1]
    interrupt(tmp_path / "run", 137, **settings)
    # The same file serves a replayed step and a plain one.
    for again in (cuda_graph, not cuda_graph):
        copy = tmp_path / f"copy {again}"
        copy.write_bytes((tmp_path / "run").read_bytes())
        model, history = run(path=copy, **{**settings, "cuda_graph": again})
        assert history.steps == 300
        assert len(history.evaluations) == 10
        assert history.evaluations[-1].loss == pytest.approx(wanted.evaluations[-1].loss, abs=0.05)
        assert all(torch.isfinite(value).all() for value in model.state_dict().values())
