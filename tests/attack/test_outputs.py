"""What we write is harmless to those who open it: spreadsheets, terminals, browsers; and says what it said."""

import csv
import json
import re
import unicodedata
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

import carre
from carre.cli import app
from carre.data import load_table, write_table
from carre.plots import plot_dimension_by_class, plot_dimension_over_scales, render_png
from tests.attack.kit import Verdict

# What a spreadsheet takes for a formula where a cell begins with it; the wide ones are those of Japanese keyboards.
BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", " =", "  +", "\t=", "\r\n=")
FORMULAS = [
    f"{begin}{end}" for begin in BEGINS for end in ("cmd|' /C calc'!A0", 'HYPERLINK("http://x","y")', "1+1", "x")
]
QUOTED = ["'=1", "''=1", "'", "'-5", "'x", "''", "'\t", "' =1", "-", "@", "=", "+", "-5x", "1=", "a@b", "it's"]
NUMBERS = ["-5", "+3", "-1e5", "-.5", "007"]
UNSEEN = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\rb",
    "a\x08b",
    "\x00",
    "\x7f",
    "\u202egpj.exe",
    "\u2066x\u2069",
]
UNSEEN += ["a\u200bb", "a\u200db", "\ufeffa", "\u00ad", "\u2028", "\u2029x", "\u061c", "\U000e0041", "\u2060", "\x85"]
MARKUP = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onload="alert(1)',
    "{{ 7 * 7 }}",
    "<!--",
    "]]>",
]


def is_seen(text):
    """Say whether nothing in a text is hidden, moves the cursor, or turns lines around."""
    return all(
        letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in text
    )


def would_run(cell):
    """Say whether a spreadsheet may take a cell for more than text or a number."""
    begin = unicodedata.normalize("NFKC", cell).lstrip(" ")[:1]
    is_number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|-", cell, re.IGNORECASE)
    return begin in tuple("=+-@\t\r\n") and bool(cell.strip(" ")) and not is_number


@pytest.mark.parametrize("name", ["data.csv", "data.tsv"])
def test_cells_that_a_spreadsheet_would_run(ledger, tmp_path, name):
    cells = [*FORMULAS, *QUOTED, *NUMBERS, "text"]
    for number, cell in enumerate(cells):
        write_table(tmp_path / name, {"x": np.arange(3.0), "note": np.array([cell, "oak", "ash"])})
        with (tmp_path / name).open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream, delimiter="\t" if name.endswith("tsv") else ","))
        is_harmless = not any(would_run(part) for row in rows for part in row)
        is_same = load_table(tmp_path / name).other["note"].tolist() == [cell, "oak", "ash"]
        ledger.note(
            f"{number} {cell!r}", Verdict.RIGHT if is_harmless and is_same else Verdict.WRONG, f"{rows} {is_same}"
        )
    ledger.check(least=70)


def test_names_of_columns_that_a_spreadsheet_would_run(ledger, tmp_path):
    file = tmp_path / "data.csv"
    for name in [*FORMULAS, *QUOTED]:
        write_table(file, {"first": np.arange(3.0), name: np.arange(3.0)})
        with file.open(encoding="utf-8", newline="") as stream:
            is_harmless = not any(map(would_run, next(csv.reader(stream))))
        # Blanks around names are none of theirs; a first one without a name would be an index.
        is_same = load_table(file).names == ("first", name.strip())
        ledger.note(
            repr(name), Verdict.RIGHT if is_harmless and is_same else Verdict.WRONG, str(load_table(file).names)
        )
    ledger.check(least=70)


def test_numbers_are_written_as_they_are(tmp_path):
    write_table(tmp_path / "data.csv", {"x": np.array([-1.5, 2.0]), "n": np.array([-1, -2])})
    assert (tmp_path / "data.csv").read_text() == "x,n\n-1.5,-1\n2.0,-2\n"


def hostile_table(folder, names):
    """A table of a circle whose other columns have hostile names and texts."""
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    columns = {"x": np.cos(angle), "y": np.sin(angle)}
    file = folder / "points.csv"
    write_table(file, columns | {name: np.array(["a", name] * 30) for name in names})
    return file, np.stack(list(columns.values()), 1)


def test_terminals(ledger, tmp_path, dose):
    """Names of columns and of files, in facts, in JSON and in errors."""
    names = [name for name in ["two\nerror: lines", *UNSEEN] if name != "\x00"]
    for name in names[: dose(3, len(names))]:
        file, _ = hostile_table(tmp_path, [name])
        odd = tmp_path / f"{name.replace('/', '')}.csv"
        odd.write_text(f'x,"{name}"\n1,2\n2,b\n3,4\n', encoding="utf-8")
        commands = (
            ["fit", str(file), "--out", str(tmp_path / "model"), "--dry-run"],
            ["fit", str(file), "--out", str(tmp_path / "model"), "--dry-run", "--json"],
            ["fit", str(odd), "--out", str(tmp_path / "model"), "--dry-run"],
            ["fit", str(tmp_path / f"no{name}.csv"), "--out", str(tmp_path / "model")],
            ["fit", str(file), "--columns", f"x,{name}", "--out", str(tmp_path / "model")],
        )
        for number, command in enumerate(commands):
            result = CliRunner().invoke(app, command)
            is_right = is_seen(result.output) and "\nerror: lines" not in result.output
            if number == 1 and result.exit_code == 0:
                is_right = is_right and isinstance(json.loads(result.stdout), dict)
            ledger.note(f"{number} {name!r}", Verdict.RIGHT if is_right else Verdict.WRONG, ascii(result.output))
    ledger.check(least=15)


class Alive(HTMLParser):
    """Count what a browser would run: scripts, and attributes that are called when something happens."""

    def __init__(self, text):
        super().__init__()
        self.count = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.count += (tag == "script") + sum(name.startswith("on") for name, _ in attrs)


def test_what_is_alive_is_counted():
    assert Alive('<p title="&#34; onload=&#34;1">&lt;script&gt;</p>').count == 0
    assert Alive('<p title="" onload="1"></p><script></script><img onerror=x>').count == 3


@pytest.mark.slow
def test_reports(ledger, tmp_path, dose):
    """The page has as many scripts as a plain one, shows everything, and its data can be read."""
    _, circle = hostile_table(tmp_path, ["plain"])
    geometry = carre.fit(circle, max_steps=10, width=16, bandwidth=0.2, random_state=0, verbose=False)

    def page(text):
        labels, columns = np.array([text, "b"] * 30), {text: circle[:, 0]}
        told = {"title": text, "command": text, "pairs": 0, "seconds": 0.5}
        carre.write_report(geometry, circle, tmp_path / "page.html", labels=labels, columns=columns, **told)
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    plain = Alive(page("plain")).count
    texts = ["".join(UNSEEN), "".join(MARKUP), *UNSEEN, *MARKUP]
    for text in texts[: dose(2, len(texts))]:
        made = page(f"a{text}")
        scripts = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', made, re.DOTALL)
        is_right = is_seen(made) and all(isinstance(json.loads(script), dict) for script in scripts) and scripts
        is_right = is_right and Alive(made).count == plain and "49" not in re.findall("<title>(.*?)</title>", made)[0]
        ledger.note(repr(text), Verdict.RIGHT if is_right else Verdict.WRONG)
    ledger.check(least=2)


@pytest.mark.filterwarnings("ignore:Glyph")
def test_pictures(ledger, dose):
    """Names of classes are drawn as they are: no formula is parsed, nothing hidden is written."""
    names = ["$x^$", UNSEEN[0], "$$", r"$\frac{$", "a$b", r"\$", "%", "_^{}", "名", *UNSEEN[1:]]
    for name in names[: dose(2, len(names))]:
        labels = np.array([name, "b"] * 5)

        def draw(labels=labels, name=name):
            axes = plot_dimension_by_class(np.arange(10) % 3, labels)
            above = plot_dimension_over_scales([0.1, 0.2], {name: [1.0, 2.0]})
            return all(is_seen(label.get_text()) for label in axes.get_xticklabels()) and bool(
                render_png(axes) and render_png(above)
            )

        ledger.ask(repr(name), draw, verdict=lambda seen: Verdict.RIGHT if seen else Verdict.WRONG)
    ledger.check(least=2)
