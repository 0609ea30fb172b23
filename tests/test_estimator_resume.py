"""A fit that is interrupted, or killed, goes on from its checkpoint."""

import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone

from carre import MetricMatching
from carre.training import CheckpointError
from tests.samples import TINY, circle

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
# A given scale saves the time to choose one.
QUICK = {**TINY, "bandwidth": 0.3}


@pytest.fixture
def interrupt(monkeypatch):
    """Interrupt a fit after a step, as Ctrl-C would."""

    def at(step, geometry, samples):
        def draw(bar, progress):
            if progress.step == step:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("carre.estimator.matching._draw", draw)
            with pytest.raises(KeyboardInterrupt):
                geometry.fit(samples)

    return at


def same(one, other, samples):
    return all(
        np.array_equal(one_answer, other_answer)
        for one_answer, other_answer in zip(answers(one, samples), answers(other, samples), strict=True)
    )


def answers(geometry, samples):
    return geometry.metric(samples).factor.numpy(), geometry.denoise(samples), geometry.bandwidth_


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 13, 20])
def test_a_fit_goes_on_to_the_same_bits_and_removes_its_file(step, interrupt, tmp_path):
    samples, path = circle(80), tmp_path / "fit.safetensors"
    wanted = MetricMatching(**QUICK).fit(samples)
    geometry = MetricMatching(**QUICK, checkpoint=path)
    interrupt(step, geometry, samples)
    assert not hasattr(geometry, "field_")
    assert path.exists()
    assert same(geometry.fit(samples), wanted, samples)
    assert geometry.history_.steps == wanted.history_.steps
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_choice_of_scale_that_is_interrupted_does_not_cost_the_training(tmp_path, monkeypatch):
    samples, geometry = circle(80), MetricMatching(**TINY, checkpoint=str(tmp_path / "fit"))

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("carre.fitting.pipeline.choose_bandwidth", stop)
        with pytest.raises(KeyboardInterrupt):
            geometry.fit(samples)
    steps = []
    monkeypatch.setattr("carre.estimator.matching._draw", lambda bar, progress: steps.append(progress.step))
    assert same(geometry.fit(samples), MetricMatching(**TINY).fit(samples), samples)
    assert len(steps) == TINY["max_steps"], "only the fit without a checkpoint trained"
    assert list(tmp_path.iterdir()) == []


def test_without_a_seed_that_of_the_interrupted_fit_is_taken(interrupt, tmp_path, monkeypatch):
    geometry = MetricMatching(**{**QUICK, "random_state": None}, checkpoint=tmp_path / "fit")
    interrupt(7, geometry, circle(80))
    steps = []
    monkeypatch.setattr("carre.estimator.matching._draw", lambda bar, progress: steps.append(progress.step))
    geometry.fit(circle(80))
    assert steps == list(range(8, 21))


def test_another_seed_is_refused(interrupt, tmp_path):
    interrupt(7, MetricMatching(**QUICK, checkpoint=tmp_path / "fit"), circle(80))
    with pytest.raises(CheckpointError, match=r"same settings; .* another seed \(\d+ there, \d+ here\)"):
        MetricMatching(**{**QUICK, "random_state": 1}, checkpoint=tmp_path / "fit").fit(circle(80))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"width": 24}, r"width \(16 there, 24 here\).*network"),
        ({"validation_fraction": 0.2}, r"validation_fraction \(0.1 there, 0.2 here\)"),
        ({"rank": 2}, r"rank \(\d there, 2 here\)"),
        ({"bandwidth_range": (0.1, 2.0)}, r"bandwidth_range"),
        ({"ridge": 0.5}, r"ridge \(0.0 there, 0.5 here\)"),
    ],
    ids=str,
)
def test_other_settings_are_refused_by_the_name_that_the_user_knows(change, named, interrupt, tmp_path):
    interrupt(3, MetricMatching(**QUICK, checkpoint=tmp_path / "fit"), circle(80))
    with pytest.raises(CheckpointError, match=rf"must be of the same settings; .*another {named}"):
        MetricMatching(**{**QUICK, **change}, checkpoint=tmp_path / "fit").fit(circle(80))


@pytest.mark.slow
def test_other_samples_are_refused_and_the_earlier_fit_stays(interrupt, tmp_path):
    interrupt(3, MetricMatching(**QUICK, checkpoint=tmp_path / "fit"), circle(80))
    geometry = MetricMatching(**QUICK).fit(circle(80))
    before = geometry.denoise(circle(5))
    with pytest.raises(CheckpointError, match="must be of the same samples"):
        geometry.set_params(checkpoint=tmp_path / "fit").fit(circle(81))
    np.testing.assert_array_equal(geometry.denoise(circle(5)), before)


def test_what_does_not_matter_to_training_may_change(interrupt, tmp_path):
    interrupt(3, MetricMatching(**QUICK, checkpoint=tmp_path / "fit"), circle(80))
    options = {**QUICK, "bandwidth": 0.31, "verbose": True, "cuda_graph": False}
    assert MetricMatching(**options, checkpoint=tmp_path / "fit").fit(circle(80)).bandwidth_ == 0.31


@pytest.mark.parametrize("name", ["", "no folder/fit", "."])
def test_a_place_where_no_file_can_be_is_refused_before_training(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"^checkpoint must"):
        MetricMatching(**QUICK, checkpoint=name).fit(circle(80))


def test_a_checkpoint_is_a_parameter_like_any_other(tmp_path):
    geometry = MetricMatching(**QUICK, checkpoint=tmp_path / "fit")
    assert clone(geometry).checkpoint == tmp_path / "fit"
    assert pickle.loads(pickle.dumps(geometry)).get_params()["checkpoint"] == tmp_path / "fit"


def test_a_checkpoint_is_no_part_of_a_saved_geometry(tmp_path):
    geometry = MetricMatching(**QUICK, checkpoint=tmp_path / "fit").fit(circle(80))
    geometry.save_pretrained(tmp_path / "geometry")
    assert str(tmp_path) not in (tmp_path / "geometry" / "config.json").read_text()
    assert MetricMatching.from_pretrained(tmp_path / "geometry").checkpoint is None


@pytest.mark.slow
def test_a_process_that_was_killed_goes_on_from_its_last_file(tmp_path):
    """SIGKILL leaves no time for anything: the last look is where it goes on."""
    samples, path = circle(80), tmp_path / "fit"
    code = f"""
import os, signal, numpy as np, torch
torch.set_num_threads({torch.get_num_threads()})
import carre.estimator.matching as matching
from carre import MetricMatching

def kill(bar, progress):
    if progress.step == 15:
        os.kill(os.getpid(), signal.SIGKILL)

matching._draw = kill
MetricMatching(**{QUICK!r}, checkpoint={str(path)!r}).fit(np.load({str(tmp_path / "samples.npy")!r}))
"""
    np.save(tmp_path / "samples.npy", samples)
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    steps = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("carre.estimator.matching._draw", lambda bar, progress: steps.append(progress.step))
        resumed = MetricMatching(**QUICK, checkpoint=path).fit(samples)
    # Ten looks in twenty steps: the last one was after step 14.
    assert steps == list(range(15, 21))
    assert same(resumed, MetricMatching(**QUICK).fit(samples), samples)
    assert not path.exists()


@pytest.mark.gpu
def test_a_fit_on_a_gpu_goes_on(interrupt, tmp_path):
    """Close to the uninterrupted one: what is learned of a circle, not its bits."""
    options = {"max_steps": 300, "width": 64, "bandwidth": 0.2, "random_state": 0, "verbose": False, "device": "cuda"}
    samples = circle(1000)
    wanted = MetricMatching(**options).fit(samples)
    geometry = MetricMatching(**options, checkpoint=tmp_path / "fit")
    interrupt(211, geometry, samples)
    geometry.fit(samples)
    loss, other = (found.history_.evaluations[-1].loss for found in (geometry, wanted))
    assert loss == pytest.approx(other, abs=0.1)
    np.testing.assert_allclose(geometry.denoise(samples), wanted.denoise(samples), atol=0.05)
