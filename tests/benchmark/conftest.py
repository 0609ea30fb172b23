"""What `pytest --bm` prints at its end, and keeps where `--bm-accept` says so."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

ACCEPTED = Path(__file__).parent / "accepted.json"
FOUND: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))


@pytest.fixture
def keep():
    """Keep a figure of a method on a task for the table at the end."""

    def kept(task: str, method: str, **figures: float) -> None:
        for name, value in figures.items():
            FOUND[task][method][name].append(value)

    return kept


@pytest.fixture(scope="session")
def accepted():
    return json.loads(ACCEPTED.read_text(encoding="utf-8")) if ACCEPTED.exists() else {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    known = json.loads(ACCEPTED.read_text(encoding="utf-8")) if ACCEPTED.exists() else {}
    write = terminalreporter.write_line
    for task, methods in FOUND.items():
        best = min(mean(figures["error"]) for figures in methods.values())
        for method, figures in methods.items():
            error = mean(figures["error"])
            more = "".join(f"  {name} {mean(values):.3g}" for name, values in figures.items() if name != "error")
            before = known.get(task, {}).get(method, {}).get("error")
            then = f" (accepted {mean(before):.4f})" if before else ""
            write(f"{task:24} {method:22} error {error:.4f}{'*' if error == best else ' '}{then}{more}")
    if FOUND:
        write("* the best of its task")
    if FOUND and config.getoption("--bm-accept"):
        text = json.dumps({**known, **FOUND}, indent=1, ensure_ascii=False)
        ACCEPTED.write_text(text + "\n", encoding="utf-8")
        write(f"accepted: {ACCEPTED.name}")
