"""What goes to people, to programs and to logs."""

import io
import json
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import carre
from carre.cli import _output as output
from carre.cli._inputs import Rows, pair_of, seconds_of
from carre.cli._output import naming, progress, show, stopped_like_ctrl_c, warnings_as_lines, worded
from carre.training import Evaluation, Progress


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2m", 120),
        ("1h30m", 5400),
        ("0.5h", 1800),
        ("45", 45),
        ("1h 1m 1s", 3661),
        ("2M", 120),
        ("3min", 180),
    ],
)
def test_spans_of_time_are_read_as_people_write_them(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-5s", "5d", "1m1h", "1..5s", "nan", "inf", "0"])
def test_what_is_no_span_of_time_is_refused(text):
    with pytest.raises(ValueError, match="--budget must be a span of time"):
        seconds_of(text)


def test_pairs_are_rows():
    rows = Rows(np.zeros((20, 1)), ["x"], {})
    assert pair_of("--pair", "3, 17", rows, None) == (3, 17)
    with pytest.raises(ValueError, match="--pair must be row numbers from 0 to 19; got 20"):
        pair_of("--pair", "3,20", rows, None)
    whole = Rows(np.zeros((3, 1)), ["x"], {}, np.array([0, 2, 5]), 7)
    assert pair_of("--pair", "2,5", whole, None) == (1, 2)
    with pytest.raises(ValueError, match="--pair must be rows without missing cells; row 4 was left out"):
        pair_of("--pair", "2,4", whole, None)
    with pytest.raises(ValueError, match="row 6 was left out"):
        pair_of("--pair", "2,6", whole, None)
    with pytest.raises(ValueError, match="--pair must be row numbers from 0 to 6; got 7"):
        pair_of("--pair", "2,7", whole, None)


def test_json_knows_neither_nan_nor_infinity_nor_paths(capsys, tmp_path):
    show(
        {},
        {"a": float("nan"), "e": [float("inf"), -float("inf")], "b": tmp_path, "c": (1, None), "d": {2: 0.5}},
        as_json=True,
    )
    expected = {"a": None, "e": [None, None], "b": str(tmp_path), "c": [1, None], "d": {"2": 0.5}}
    assert json.loads(capsys.readouterr().out) == expected


def test_in_a_pipe_facts_are_plain_lines(capsys):
    show({"length": 3, "a": "long [name]"}, {}, as_json=False)
    assert capsys.readouterr().out == "length  3\na       long [name]\n"


def test_on_a_terminal_the_names_of_facts_are_bold(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    show({"length": 3, "a": "long [name]"}, {}, as_json=False)
    assert "\x1b[1ma     \x1b[0m  long [name]\n" in stream.getvalue()


def test_warnings_of_the_library_are_lines_and_those_for_developers_are_not(capsys):
    with warnings_as_lines():
        warnings.warn("too few\n samples", UserWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        warnings.warn("older", FutureWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: too few samples\n"


def test_a_warning_is_written_once(capsys):
    with warnings_as_lines():
        for _ in range(2):
            # Each with a memory of its own, as from two places: Python would show both.
            warnings.warn_explicit("too few samples", UserWarning, "here.py", 1, registry={})
    assert capsys.readouterr().err == "warning: too few samples\n"


def test_warnings_name_options(capsys):
    with warnings_as_lines():
        warnings.warn("train longer (raise max_steps or max_seconds)", UserWarning, stacklevel=1)
        warnings.warn("bandwidth lies outside. Fit with a wider bandwidth_range", UserWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == [
        "warning: train longer (give more --steps or --budget)",
        "warning: --sigma lies outside. Fit with wider --sigma-min and --sigma-max",
    ]


def test_progress_becomes_lines_in_a_log(capsys, monkeypatch):
    monkeypatch.setattr("carre.progress._SECONDS", 0.0)
    with progress("fit") as tell:
        for step in range(1000):
            tell(Progress(step, (step + 1) / 1000, 0.0, None, "settling") if step % 2 else (step + 1) / 1000)
    assert capsys.readouterr().err.splitlines() == [f"fit: {10 * i}% after 0 s, settling" for i in range(1, 11)]


def test_lines_are_two_seconds_apart(capsys, monkeypatch):
    """The work takes ten seconds: a line at two, four, six and eight, and one at its end."""
    now = [0.0]
    monkeypatch.setattr("carre.progress.time.monotonic", lambda: now[0])
    with progress("dimension") as tell:
        for step in range(1, 101):
            now[0] = step / 10
            tell(step / 100)
    assert capsys.readouterr().err.splitlines() == [
        f"dimension: {percent}% after {percent // 10} s" for percent in (20, 40, 60, 80, 100)
    ]


def test_the_first_line_of_a_fit_says_how_long_it_will_take(capsys, monkeypatch):
    """As soon as that is known, long before a tenth of its budget is spent."""
    now = [0.0]
    monkeypatch.setattr("carre.progress.time.monotonic", lambda: now[0])
    with progress("fit") as tell:
        for step in range(1, 31):
            now[0] = step / 10
            tell(Progress(step, step / 6000, now[0], None, likely=(100.0, 460.0) if now[0] > 1 else None))
    assert capsys.readouterr().err.splitlines() == ["fit: 0% after 2 s, learning, likely 2 to 8 min of training"]


@pytest.mark.parametrize("quiet", [True, False])
def test_short_and_quiet_work_leaves_no_lines(capsys, quiet):
    with progress("fit", quiet=quiet) as tell:
        for step in range(101):
            tell(step / 100)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_progress_is_a_bar(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("carre.progress._SECONDS", 0.0)
    with progress("fit") as tell:
        tell(Progress(50, 0.5, 1.0, Evaluation(50, 1.0, 0.9, 0.4, -0.2, gain=(0.1, 0.3)), likely=(20.0, 91.0)))
    text = stream.getvalue().split("\r")[-1]
    assert "fit: 100%|" in text
    # The end is not known: a time left would be that of the budget.
    assert "loss -0.200, gain 0.30, learning, likely 20 to 91 s of training" in text
    assert "<" not in text


def test_the_library_gives_the_advice_that_is_replaced():
    """Advice that the library words anew would be passed on with names of arguments."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(carre.__file__).parent.rglob("*.py"))
    outside = source.replace(Path(output.__file__).read_text(encoding="utf-8"), "")
    assert [advice for advice in output.ADVICE if advice not in outside] == []


def test_errors_name_options_and_keep_what_they_are():
    with pytest.raises(carre.CheckpointError) as caught, naming({"checkpoint": "the fit"}):
        raise carre.CheckpointError("checkpoint", "be whole", got="half of it")
    assert worded(caught.value) == "the fit must be whole; got half of it"
    assert worded(carre.ArgumentError("bandwidth", "be positive", got=-1)) == "--sigma must be positive; got -1"
    assert worded(carre.ArgumentError("device", "be 'cpu' or None")) == "--device must be 'cpu' or left out"
    assert worded(ValueError("bandwidth\nis a word")) == "bandwidth is a word"


def test_signals_mean_what_they_meant_when_a_command_is_done():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with stopped_like_ctrl_c():
            # Who is to outlive a terminal does (nohup).
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)
