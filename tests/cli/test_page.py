"""The commands on the page about the command line run as printed, with less training of smaller networks."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import invoke

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
# Less training. After so little of it a kernel would answer instead of the network, which takes long.
SHORTER = {
    "--budget 1m": "--steps 40 --sigma 0.3",
    "carre demo": "carre demo --steps 5",
}


def shortened(command):
    for long, short in SHORTER.items():
        command = command.replace(long, short)
    return command


@pytest.mark.slow
def test_the_page_on_the_command_line_runs(tmp_path, monkeypatch, short_reports):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("carre.geometry.linear_phase", lambda history: None)
    monkeypatch.setattr("carre.cli.reporting._WIDTH", 32)
    monkeypatch.setattr("carre.cli.reporting._RANK", 8)
    text = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, {})
    commands = re.findall(r"^\$ (carre .*)$", text, re.MULTILINE)
    assert len(commands) >= 15
    for command in commands:
        result = invoke(*shlex.split(shortened(command))[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"
    written = {path.name for path in tmp_path.iterdir()}
    named = {
        shlex.split(command)[shlex.split(command).index("--out") + 1] for command in commands if "--out" in command
    }
    assert named | {"report.html"} <= written
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {
        "model",
        "nuclei.html",
        "report.html",
        "results.json",
    }
    assert not any(name.endswith(".checkpoint") or name.startswith(".") for name in written)


def test_the_page_names_every_command():
    text = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^│ ([a-z]+) ", invoke().stdout.partition("Commands")[2], re.MULTILINE)
    assert len(listed) >= 9
    assert [name for name in listed if f"carre {name}" not in text] == []
