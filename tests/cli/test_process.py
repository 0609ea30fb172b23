"""The command as a program of its own: fast to start, and interrupted like one."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import carre
from tests.cli.conftest import invoke

CARRE = [sys.executable, "-m", "carre"]
COMMANDS = ["fit", "dimension", "tangent", "denoise", "path", "gradient", "map", "report", "info", "demo"]


def test_the_help_does_not_wait_for_torch():
    code = "import sys; from carre.cli import app; app(['--help'], standalone_mode=False); "
    code += "print([name for name in ('torch', 'numpy', 'sklearn', 'matplotlib') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith("[]")


def test_the_program_says_its_version_and_without_arguments_what_it_can_do():
    assert invoke("--version").stdout == f"carre {carre.__version__}\n"
    text = invoke().stdout
    assert all(command.split()[0] in text for command in COMMANDS)
    assert "--install-completion" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_examples(command):
    text = invoke(*command.split(), "--help").stdout
    assert "Examples:" in text
    assert f"carre {command}" in text.partition("Examples:")[2]


def test_a_program_exits_with_two_and_a_sentence_for_wrong_input(tmp_path):
    result = subprocess.run([*CARRE, "fit", "--out"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_what_was_interrupted_is_resumed_to_the_same_model(place, tmp_path, monkeypatch):
    def fit(out, *more):
        return ["fit", str(place / "points.csv"), "--drop", "energy", "--steps", "60", "--out", out, *more]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*CARRE, *fit("model")],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # A first look at the held-out samples is kept.
    deadline = time.monotonic() + 120
    while not (tmp_path / "model.checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    last = stderr.splitlines()[-1]
    assert last.startswith("interrupted; what was learned is kept. Go on with: carre fit ")
    assert last.endswith("--out model --resume")
    assert not (tmp_path / "model").exists()

    def finish(out, *more):
        """Here, which is another process than the one that was interrupted."""
        done = invoke(*fit(out, "--json", *more))
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    monkeypatch.chdir(tmp_path)

    resumed, whole = finish("model", "--resume"), finish("other")
    same = ("bandwidth", "dimension", "steps", "rank")
    assert {name: resumed[name] for name in same} == {name: whole[name] for name in same}
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("model", "other")]
    assert weights[0] == weights[1]
    assert not (tmp_path / "model.checkpoint").exists()
