"""A fit that is interrupted, or killed, goes on from its checkpoint."""

import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone

import carre
from carre import MetricMatching
from carre.training import CheckpointError
from tests.samples import TINY, circle

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
# A given scale saves the time to choose one.
QUICK = {**TINY, "bandwidth": 0.3}


def interrupt(step, samples, settings, path):
    """Interrupt a fit after a step, as Ctrl-C would."""

    def stop(progress):
        if progress.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carre.fit(samples, **settings, checkpoint=path, progress=stop)


def same(one, other, samples):
    return all(
        np.array_equal(one_answer, other_answer)
        for one_answer, other_answer in zip(answers(one, samples), answers(other, samples), strict=True)
    )


def answers(geometry, samples):
    return geometry.metric(samples).factor.numpy(), geometry.denoise(samples), geometry.bandwidth


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 13, 20])
def test_a_fit_goes_on_to_the_same_bits_and_removes_its_file(step, tmp_path):
    samples, path = circle(80), tmp_path / "fit.safetensors"
    wanted = carre.fit(samples, **QUICK)
    interrupt(step, samples, QUICK, path)
    assert path.exists()
    geometry = carre.fit(samples, **QUICK, checkpoint=path)
    assert same(geometry, wanted, samples)
    assert geometry.history.steps == wanted.history.steps
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_choice_of_scale_that_is_interrupted_does_not_cost_the_training(tmp_path, monkeypatch):
    samples, settings = circle(80), {**TINY, "checkpoint": str(tmp_path / "fit")}

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["carre.fitting._fit"], "choose_bandwidth", stop)
        with pytest.raises(KeyboardInterrupt):
            carre.fit(samples, **settings)
    steps = []
    again = carre.fit(samples, **settings, progress=lambda progress: steps.append(progress.step))
    assert same(again, carre.fit(samples, **TINY), samples)
    assert steps == [], "it did not train again"
    assert list(tmp_path.iterdir()) == []


def test_without_a_seed_that_of_the_interrupted_fit_is_taken(tmp_path):
    settings, path, steps = {**QUICK, "random_state": None}, tmp_path / "fit", []
    interrupt(7, circle(80), settings, path)
    carre.fit(circle(80), **settings, checkpoint=path, progress=lambda progress: steps.append(progress.step))
    assert steps == list(range(8, 21))


def test_another_seed_is_refused(tmp_path):
    interrupt(7, circle(80), QUICK, tmp_path / "fit")
    with pytest.raises(CheckpointError, match=r"same settings; .* another seed \(\d+ there, \d+ here\)"):
        carre.fit(circle(80), **{**QUICK, "random_state": 1}, checkpoint=tmp_path / "fit")


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
def test_other_settings_are_refused_by_the_name_that_the_user_knows(change, named, tmp_path):
    interrupt(3, circle(80), QUICK, tmp_path / "fit")
    with pytest.raises(CheckpointError, match=rf"must be of the same settings; .*another {named}"):
        carre.fit(circle(80), **{**QUICK, **change}, checkpoint=tmp_path / "fit")


@pytest.mark.slow
def test_other_samples_are_refused_and_the_earlier_fit_stays(tmp_path):
    interrupt(3, circle(80), QUICK, tmp_path / "fit")
    estimator = MetricMatching(**QUICK).fit(circle(80))
    before = estimator.geometry_.denoise(circle(5))
    with pytest.raises(CheckpointError, match="must be of the same samples"):
        estimator.set_params(checkpoint=tmp_path / "fit").fit(circle(81))
    np.testing.assert_array_equal(estimator.geometry_.denoise(circle(5)), before)


def test_what_does_not_matter_to_training_may_change(tmp_path):
    interrupt(3, circle(80), QUICK, tmp_path / "fit")
    options = {**QUICK, "bandwidth": 0.31, "verbose": True, "cuda_graph": False}
    assert carre.fit(circle(80), **options, checkpoint=tmp_path / "fit").bandwidth == 0.31


@pytest.mark.parametrize("name", ["", "no folder/fit", "."])
def test_a_place_where_no_file_can_be_is_refused_before_training(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"^checkpoint must"):
        carre.fit(circle(80), **QUICK, checkpoint=name)


def test_a_checkpoint_is_a_parameter_like_any_other(tmp_path):
    geometry = MetricMatching(**QUICK, checkpoint=tmp_path / "fit")
    assert clone(geometry).checkpoint == tmp_path / "fit"
    assert pickle.loads(pickle.dumps(geometry)).get_params()["checkpoint"] == tmp_path / "fit"


def test_a_checkpoint_is_no_part_of_a_saved_geometry(tmp_path):
    geometry = carre.fit(circle(80), **QUICK, checkpoint=tmp_path / "fit")
    carre.save(geometry, tmp_path / "geometry")
    assert str(tmp_path) not in (tmp_path / "geometry" / "config.json").read_text()
    assert "checkpoint" not in carre.load(tmp_path / "geometry").parameters


@pytest.mark.slow
def test_a_process_that_was_killed_goes_on_from_its_last_file(tmp_path):
    """SIGKILL leaves no time for anything: the last evaluation is where it goes on."""
    samples, path = circle(80), tmp_path / "fit"
    code = f"""
import os, signal, numpy as np, torch
torch.set_num_threads({torch.get_num_threads()})
import carre

def kill(progress):
    if progress.step == 15:
        os.kill(os.getpid(), signal.SIGKILL)

carre.fit(np.load({str(tmp_path / "samples.npy")!r}), **{QUICK!r}, checkpoint={str(path)!r}, progress=kill)
"""
    np.save(tmp_path / "samples.npy", samples)
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    steps = []
    resumed = carre.fit(samples, **QUICK, checkpoint=path, progress=lambda progress: steps.append(progress.step))
    # Ten evaluations in twenty steps: the last one was after step 14.
    assert steps == list(range(15, 21))
    assert same(resumed, carre.fit(samples, **QUICK), samples)
    assert not path.exists()


@pytest.mark.gpu
def test_a_fit_on_a_gpu_goes_on(tmp_path):
    """Close to the uninterrupted one: what is learned of a circle, not its bits."""
    options = {"max_steps": 300, "width": 64, "bandwidth": 0.2, "random_state": 0, "verbose": False, "device": "cuda"}
    samples = circle(1000)
    wanted = carre.fit(samples, **options)
    interrupt(211, samples, options, tmp_path / "fit")
    geometry = carre.fit(samples, **options, checkpoint=tmp_path / "fit")
    loss, other = (found.history.evaluations[-1].loss for found in (geometry, wanted))
    assert loss == pytest.approx(other, abs=0.1)
    np.testing.assert_allclose(geometry.denoise(samples), wanted.denoise(samples), atol=0.05)
