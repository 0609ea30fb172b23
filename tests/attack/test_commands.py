"""The command among closed streams, pipes that nobody reads, full disks and odd names: an answer, or one sentence."""

import json
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest

import carre
from carre.data import write_table
from tests.attack.kit import Verdict, isolated
from tests.attack.processes import command, run, start, wait
from tests.attack.questions import QUICK, X

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
NOT_UTF8 = os.fsdecode(b"caf\xe9")
NAMES = {
    "not UTF-8": NOT_UTF8,
    "a newline": "two\nlines",
    "a dash": "-o",
    "an option": "--json",
    "a percent sign": "%s%d",
    "very long": "n" * 240,
    "too long": "n" * 300,
    "a null": "nu\0ll",
    "blanks": " a b ",
    "a language": "σ 图 🎲",
    "markup": "<b>&amp;'\"",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    write_table(folder / "data.csv", {"x": X[:, 0], "y": X[:, 1]})
    carre.save(carre.fit(X[:, :2], **QUICK), folder / "model")
    return folder


def _is_answer(code, out, err):
    """Say whether it went well, or a sentence says what did not."""
    errors = [line for line in err.splitlines() if not line.startswith("warning: ") and "% after" not in line]
    is_sentence = len(errors) == 1 and errors[0].startswith("error: ") and "Traceback" not in err and "Errno" not in err
    is_sentence = is_sentence and "_TRACEBACK" not in err
    return not errors if code == 0 else is_sentence and not out


def ask(ledger, case, arguments, folder, *, codes=(0, 1, 2)):
    """Run a command in a folder, and judge it by its streams and by what it leaves."""
    out, err = folder / "stdout", folder / "stderr"
    code = run(*arguments, out=out, err=err)
    said, errors = (path.read_bytes().decode("utf-8", "backslashreplace") for path in (out, err))
    is_clean = not [path for path in folder.rglob(".carre.*")]
    is_right = code in codes and _is_answer(code, said, errors) and is_clean
    verdict = (Verdict.RIGHT if code == 0 else Verdict.CLEAR) if is_right else Verdict.UNCLEAR
    ledger.note(case, verdict, f"{code}: {said[-100:]!r} {errors[-300:]!r}")
    return said


def test_names_of_every_kind(place, ledger, dose, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["denoise", place / "model", place / "data.csv"]
    for kind, name in list(NAMES.items())[: dose(1, len(NAMES))]:
        data, model = f"{name}.csv", Path(name)
        if "\0" not in name and len(name) < 255:
            Path(data).write_bytes((place / "data.csv").read_bytes())
            Path("of " + name).mkdir(parents=True, exist_ok=True)
        ask(ledger, f"data named by {kind}", ["dimension", place / "model", "--", data], tmp_path)
        ask(
            ledger,
            f"JSON of {kind}",
            [*asked, "--json", f"--out={name}.npy"],
            tmp_path,
        )
        ask(
            ledger,
            f"table to {kind}",
            [*asked, f"--out={name}.new.csv"],
            tmp_path,
        )
        ask(ledger, f"model at {kind}", ["info", "--", model], tmp_path)
        fit = ["fit", place / "data.csv", "--steps", "2", "--sigma", "0.3", f"--out=of {name}/{name}"]
        ask(ledger, f"fit to {kind}", fit, tmp_path)
    ledger.check()


@pytest.mark.slow
def test_a_report_of_every_name_and_of_hardly_any_rows(place, ledger, dose, tmp_path, short_reports):
    geometry = carre.load(place / "model")
    for count in (5, 3, 2, 1)[: dose(1, 4)]:
        page = tmp_path / f"{count}.html"
        ledger.ask(f"{count} rows", lambda count=count, page=page: carre.write_report(geometry, X[:count, :2], page))
    line = carre.fit(X[:, :1], **QUICK)
    ledger.ask("one column", lambda: carre.write_report(line, X[:5, :1], tmp_path / "line.html"))
    (tmp_path / f"{NOT_UTF8}.csv").write_bytes((place / "data.csv").read_bytes())
    told = ["report", place / "model", tmp_path / f"{NOT_UTF8}.csv", "-o", tmp_path / f"{NOT_UTF8}.html"]
    ask(ledger, "a name that is not UTF-8", told, tmp_path)
    (tmp_path / f"{NOT_UTF8}.html").read_text(encoding="utf-8")
    ledger.check()


def test_streams_that_are_closed_or_full_or_read_by_nobody(place, ledger, dose, tmp_path):
    told = ["dimension", place / "model", place / "data.csv"]
    answer = ["denoise", place / "model", place / "data.csv", "--out", tmp_path / "answer.csv"]
    for name, streams, codes in (
        ("no stdout", {"out": -1, "err": tmp_path / "err"}, {0}),
        ("no stderr", {"err": -1}, {0}),
        ("neither", {"out": -1, "err": -1}, {0}),
        ("full stdout", {"out": Path("/dev/full"), "err": tmp_path / "err"}, {1}),
        ("full stderr", {"err": Path("/dev/full")}, {0}),
    ):
        for arguments in (answer, told, [*told, "--json"])[: dose(1, 3)]:
            code = run(*arguments, **streams)
            ledger.note(f"{name}: {arguments[0]}", Verdict.RIGHT if code in codes else Verdict.WRONG, str(code))
            if arguments is answer:
                written = (tmp_path / "answer.csv").read_text()
                ledger.note(
                    f"{name}: file", Verdict.RIGHT if written.startswith("x,y\n") else Verdict.WRONG, written[:99]
                )
    ledger.check()


def test_a_pipe_that_nobody_reads(place, ledger, tmp_path):
    for stream in ("out", "err"):
        reader, writer = os.pipe()
        os.close(reader)
        streams = {stream: writer} | ({"err": tmp_path / "err"} if stream == "out" else {})
        code = run("dimension", place / "model", place / "data.csv", **streams)
        os.close(writer)
        expected = {"out": 1, "err": 0}[stream]
        said = (tmp_path / "err").read_text()
        verdict = Verdict.RIGHT if code == expected and "rror" not in said else Verdict.WRONG
        ledger.note(f"nobody reads {stream}", verdict, f"{code}: {said}")
    ledger.check()


def test_a_terminal_without_the_letters(place, ledger, dose, tmp_path):
    for encoding in ("latin-1", "ascii", "utf-8")[: dose(1, 3)]:

        def spoken(encoding=encoding):
            import sys  # noqa: PLC0415

            sys.stdout.reconfigure(encoding=encoding)
            return command("dimension", place / "model", place / "data.csv")()

        code = wait(start(spoken, out=tmp_path / "out", err=tmp_path / "err"))
        said = (tmp_path / "out").read_bytes()
        is_said = "σ".encode() in said or b"\\u03c3" in said
        verdict = Verdict.RIGHT if code == 0 and is_said else Verdict.WRONG
        ledger.note(encoding, verdict, f"{code}: {said} {(tmp_path / 'err').read_text()}")
    ledger.check()


def _with_little_room(call, most):
    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        return call()

    return limited


def test_a_disk_that_is_full(place, ledger, dose, tmp_path):
    geometry = carre.load(place / "model")
    writers = {
        "model": lambda path: carre.save(geometry, path),
        "table.csv": lambda path: write_table(path, {"x": np.arange(10_000)}),
        "table.npz": lambda path: write_table(path, {"x": np.arange(10_000)}),
        "table.parquet": lambda path: write_table(path, {"x": np.random.default_rng(0).normal(size=10_000)}),
    }
    for name, write in list(writers.items())[: dose(2, 4)]:
        for most in (100, 0, 4096)[: dose(1, 3)]:
            outcome = isolated(_with_little_room(lambda name=name, write=write: write(tmp_path / name), most))
            ledger.take(f"{name} in {most} bytes", outcome, must_refuse=True)
            left = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".carre.lock")]
            ledger.note(f"{name} in {most} bytes leaves nothing", Verdict.WRONG if left else Verdict.RIGHT, str(left))
    ledger.check()


def test_outputs_onto_inputs_and_onto_something_else(place, ledger, dose, tmp_path):
    data = tmp_path / "data.csv"
    data.write_bytes((place / "data.csv").read_bytes())
    (tmp_path / "link.csv").symlink_to(data)
    before = data.read_bytes()
    for out in (data, tmp_path / "link.csv")[: dose(1, 2)]:
        for told in (["denoise"], ["tangent", "--dim", "1"], ["dimension"], ["gradient", "--of", "x"])[: dose(1, 4)]:
            asked = [*told, place / "model", data, "--out", out]
            ask(ledger, f"{told[0]} onto {out.name}", asked, tmp_path, codes=(2,))
            ledger.note("input stays", Verdict.RIGHT if data.read_bytes() == before else Verdict.WRONG)
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "cat.jpg").write_bytes(b"cat")
    for out in (tmp_path / "photographs", data, tmp_path, Path("/proc/model"), data / "model")[: dose(1, 5)]:
        told = ["fit", data, "--steps", "2", "--sigma", "0.3", "--overwrite", "--out", out]
        ask(ledger, f"fit to {out.name}", told, tmp_path, codes=(2,))
    assert (tmp_path / "photographs" / "cat.jpg").read_bytes() == b"cat"
    ledger.check()


def test_json_is_json_whatever_is_in_it(place, ledger, tmp_path):
    data = tmp_path / f"{NOT_UTF8} σ.csv"
    data.write_bytes((place / "data.csv").read_bytes())
    said = ask(
        ledger, "JSON", ["denoise", place / "model", data, "--json", "--out", tmp_path / f"{NOT_UTF8}.csv"], tmp_path
    )
    assert json.loads(said)["n"] == len(X)
    ledger.check()
