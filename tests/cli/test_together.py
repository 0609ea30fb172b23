"""One command in several processes: one summary, one model; one that dies ends the others, and --resume goes on."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import carre
from carre.cli._together import Crew
from tests.cli.conftest import invoke

STEPS = 60


def begin(folder, *arguments, size=2):
    """Start the command in several processes as any launcher does, with nobody who watches over them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "carre", *map(str, arguments)]
    return [
        subprocess.Popen(command, cwd=folder, env={**os.environ, **meeting, "RANK": str(rank)}, **pipes)
        for rank in range(size)
    ]


def end(processes):
    """Wait for all; return exit codes, and what each printed and said."""
    said = [process.communicate(timeout=90) for process in processes]
    return [process.returncode for process in processes], [out for out, _ in said], [err for _, err in said]


def fit(place, *more):
    return ["fit", place / "points.csv", "--drop", "energy", "--steps", STEPS, "--sigma", 0.3, "--out", "model", *more]


def wait_for(is_there, seconds=60):
    deadline = time.monotonic() + seconds
    while not is_there() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_there()


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_other_and_any_number_goes_on(place, tmp_path, monkeypatch):
    checkpoint, written = tmp_path / "model.checkpoint", 0
    for victim, more in ((0, []), (1, ["--resume"])):
        processes = begin(tmp_path, *fit(place, *more))
        wait_for(lambda: checkpoint.exists() and checkpoint.stat().st_mtime_ns > written)  # noqa: B023
        processes[victim].send_signal(signal.SIGKILL)
        start = time.monotonic()
        codes, printed, said = end(processes)
        assert time.monotonic() - start < 10
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] == 1
        assert printed == ["", ""]
        sentence = said[1 - victim].splitlines()[-1]
        assert "error: another of the 2 processes ended, or can no longer be reached" in sentence
        assert "with --resume, training goes on from its last checkpoint" in sentence
        assert not (tmp_path / "model").exists()
        written = checkpoint.stat().st_mtime_ns
    monkeypatch.chdir(tmp_path)
    result = invoke(*fit(place, "--resume", "--json"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["steps"] == STEPS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.slow
def test_torchrun_starts_them_and_one_speaks(place, tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "carre"]
    told = ["fit", str(place / "points.csv"), "--drop", "energy", "--steps", "20", "--sigma", "0.3", "--out", "model"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, *told], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()].count("saved") == 1
    assert carre.load(tmp_path / "model").history.steps == 20


@pytest.mark.slow
def test_what_is_wrong_is_said_once_and_all_end_alike(place, tmp_path):
    codes, printed, said = end(begin(tmp_path, *fit(place, "--rank", 100)))
    assert codes == [2, 2]
    assert printed == ["", ""]
    assert said == ["error: --rank must be at most 4, twice the columns of DATA; got 100\n", ""]


def test_one_process_and_other_commands_meet_nobody(monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert Crew(["dimension", "model"]).size == 1
    assert (Crew(["fit"]).size, Crew(["fit"]).rank) == (2, 1)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert (Crew(["fit"]).size, Crew(["fit"]).rank) == (1, 0)
