"""What goes to people, to programs and to logs."""

import io
import json
import sys
import warnings

import pytest
from tqdm import tqdm

from carre.cli.options import pair_of, seconds_of
from carre.cli.output import BarLines, bars_as_lines, show, warnings_as_lines


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
    assert pair_of("--pair", "3, 17", 20) == (3, 17)


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


def test_on_a_terminal_facts_are_a_table(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    show({"length": 3, "a": "long [name]"}, {}, as_json=False)
    assert "long [name]" in stream.getvalue()


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


def test_bars_become_lines_in_a_log(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", BarLines(stream, seconds=0.0))
    for _ in tqdm(range(1000), desc="fit", disable=None, mininterval=0.0):
        pass
    print("warning: done", file=sys.stderr)
    lines = stream.getvalue().splitlines()
    assert lines == [*(f"fit: {10 * i}% after 0 s" for i in range(1, 11)), "warning: done"]


def test_short_work_leaves_no_lines(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with bars_as_lines():
        for _ in tqdm(range(100), desc="fit", disable=None, mininterval=0.0):
            pass
    assert stream.getvalue() == ""
    assert sys.stderr is stream
