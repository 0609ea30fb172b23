"""The file of a run: what is refused, each with its own sentence, and what is not. Ctrl-C, heard between two steps."""

import json
import re
import signal
import threading

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import carre
from carre.training import Checkpoint, CheckpointError
from carre.training.checkpoint import postponed
from tests.training.runs import circle, interrupt, make_model, run


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.safetensors"
    interrupt(path, 5)
    return path.read_bytes()


@pytest.fixture
def path(interrupted, tmp_path):
    path = tmp_path / "run.safetensors"
    path.write_bytes(interrupted)
    return path


def rewrite(path, change):
    """Change what the header says, and leave the tensors."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    notes = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["carre.checkpoint"])
    change(notes)
    save_file(load_file(path), path, metadata={"carre.checkpoint": json.dumps(notes)})


def refuse(path, message, **settings):
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=message):
        run(path=path, **settings)
    assert path.read_bytes() == before, "what is refused is left as it was"


def test_other_samples_are_refused(path):
    samples = circle()
    samples[3, 0] += 1e-6
    refuse(path, r"^checkpoint must be of the same samples; .* while fitting others\. Delete it", samples=samples)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_steps": 13}, r"max_steps \(12 there, 13 here\)"),
        ({"seed": 6}, r"seed \(5 there, 6 here\)"),
        ({"learning_rate": 1e-3}, r"learning_rate \(0.002 there, 0.001 here\)"),
        ({"max_seconds": 9.0, "polish": 0.1}, r"max_seconds \(None there, 9.0 here\); polish \(0.3 there, 0.1 here\)"),
    ],
    ids=str,
)
def test_other_settings_are_refused_by_name(path, settings, named):
    refuse(path, f"^checkpoint must be of the same settings; .* another {named}. Delete it", **settings)


def test_another_network_is_refused(path):
    with pytest.raises(CheckpointError, match=r"another network \(MetricModel of .* there, Own of .* here\)"):
        run(make_model(own=True), path=path)


def test_a_setting_without_effect_may_change(path):
    run(path=path, cuda_graph=False, reserved=1.0)


@pytest.mark.parametrize("length", [0, 4, 100, 3000, -1], ids=str)
def test_a_file_that_was_cut_is_damaged(path, length):
    path.write_bytes(path.read_bytes()[:length])
    message = "is one of something else" if length == 4 else "is damaged"
    refuse(path, message)


def test_a_bit_that_flipped_is_noticed(path):
    content = bytearray(path.read_bytes())
    content[-5000] ^= 1
    path.write_bytes(content)
    refuse(path, r"^checkpoint must be whole; .* is damaged: its SHA-256")


def test_a_header_that_was_edited_is_noticed(path):
    rewrite(path, lambda notes: notes["progress"].update(steps=3))
    refuse(path, "is damaged: its SHA-256")


def test_a_header_without_its_parts_is_damaged(path):
    rewrite(path, lambda notes: notes.pop("facts"))
    refuse(path, "is damaged: its header lacks something")


@pytest.mark.parametrize("content", [b"a diary\n" * 50, bytes(range(256)) * 4, b"\x05" + bytes(7) + b"[1,2]"])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "diary"
    path.write_bytes(content)
    refuse(path, r"^checkpoint must be a file that carre wrote; .* is one of something else. Name another file")


def test_weights_of_something_else_are_refused(tmp_path):
    save_file({"weight": torch.zeros(3)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    refuse(tmp_path / "model.safetensors", "is one of something else")


def test_a_later_format_asks_for_an_upgrade(path):
    rewrite(path, lambda notes: notes.update(format_version=99, versions={"carre": "9.9", "torch": "9"}))
    refuse(path, r"must be of format 1 at most; .* is of format 99, written by carre 9\.9\. Upgrade carre")


def test_another_version_of_carre_is_refused_and_another_torch_only_warns(path, monkeypatch):
    versions = {"carre": "0.0.1", "torch": "1.0"}
    monkeypatch.setattr("carre.training.checkpoint._versions", lambda: versions)
    refuse(path, rf"must be of carre 0\.0\.1; .* is of {re.escape(carre.__version__)}, which may train in another way")
    versions["carre"] = carre.__version__
    with pytest.warns(UserWarning, match=r"with torch .*, this is 1\.0: training goes on, but not to the same bits"):
        run(path=path)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(CheckpointError, match=r"^checkpoint must be a file; .* is a folder. Name a file in it"):
        Checkpoint(tmp_path)


def test_a_folder_that_is_missing_is_not_made(tmp_path):
    with pytest.raises(CheckpointError, match=r"^checkpoint must lie in a folder that exists; got .*Make its folder"):
        Checkpoint(tmp_path / "nowhere" / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("path", [3, "", b"run", True, ["run"]], ids=repr)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(
        CheckpointError, match=f"^checkpoint must be the path of a file, or None; got {re.escape(repr(path))}"
    ):
        Checkpoint(path)


def test_a_checkpoint_knows_its_seed(path):
    assert Checkpoint(path).told("seed") == 5
    assert Checkpoint(path.with_name("none")).told("seed") is None


def test_removing_takes_what_a_killed_process_left(path):
    left = path.with_name(f".carre.partial.{path.name}")
    left.write_bytes(b"half a file")
    Checkpoint(path).remove()
    assert list(path.parent.iterdir()) == []
    Checkpoint(path).remove()


def test_a_file_that_cannot_be_removed_warns(path, monkeypatch):
    def refuse_it(self, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.unlink", refuse_it)
    with pytest.warns(UserWarning, match="could not be removed .*Permission denied"):
        Checkpoint(path).remove()


def test_the_file_holds_no_code(interrupted):
    """Every byte is in the header, which is JSON, or in a tensor."""
    size = int.from_bytes(interrupted[:8], "little")
    header = json.loads(interrupted[8 : 8 + size])
    del header["__metadata__"]
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(interrupted) - 8 - size


def test_a_network_that_keeps_something_else_than_tensors_is_refused_before_training(tmp_path):
    class Diary(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make_model()

        def forward(self, points, bandwidth):
            return self.inner(points, bandwidth)

        def get_extra_state(self):
            return {"dear": "diary"}

        def set_extra_state(self, state):
            pass

    with pytest.raises(ValueError, match="network must keep nothing but tensors in its state_dict for a checkpoint"):
        run(Diary(), path=tmp_path / "run")


def press():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_waits_until_it_may_happen():
    with postponed() as interruption:
        press()
        with pytest.raises(KeyboardInterrupt):
            interruption.happen()
        interruption.happen()


def work(*, presses=1, fails=False, done=None):
    with postponed():
        for _ in range(presses):
            press()
        if fails:
            raise ZeroDivisionError
        if done is not None:
            done.append("the work")


def test_ctrl_c_happens_at_the_end_at_the_latest():
    done = []
    with pytest.raises(KeyboardInterrupt):
        work(done=done)
    assert done == ["the work"]


def test_the_second_ctrl_c_happens_at_once():
    done = []
    with pytest.raises(KeyboardInterrupt):
        work(presses=2, done=done)
    assert done == []


def test_another_error_is_not_hidden_by_ctrl_c():
    with pytest.raises(ZeroDivisionError):
        work(fails=True)


def test_the_former_handler_of_ctrl_c_is_back_afterwards():
    with postponed():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_ctrl_c_of_somebody_else_is_left_alone():
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with postponed():
            press()
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_changes_nothing_where_it_is_not_wanted_and_in_threads():
    with postponed(wanted=False):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    found = []

    def see():
        with postponed():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=see)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_who_asks_to_end_waits_for_the_end_of_a_step_where_that_means_ctrl_c(name):
    number = getattr(signal, name)
    before = signal.signal(number, signal.default_int_handler)
    try:
        with postponed() as interruption:
            signal.raise_signal(number)
            with pytest.raises(KeyboardInterrupt):
                interruption.happen()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_a_program_that_does_not_take_it_for_ctrl_c_keeps_its_handler():
    before = signal.getsignal(signal.SIGTERM)
    with postponed():
        assert signal.getsignal(signal.SIGTERM) is before
