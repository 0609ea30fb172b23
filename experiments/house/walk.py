"""Measure a house: its size, its import graph, and which files a call walks through.

python experiments/house/walk.py            # this one: walk.json
python path/to/experiments/house/walk.py --first-release   # in a checkout of 96a37f8, PYTHONPATH=src: walk_before.json
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import carre
from data import HERE, SMALL, swiss_roll

SOURCE = Path(carre.__file__).parent
DECISIONS = HERE.parent.parent / "docs" / "decisions.md"
_BEGIN, _END = "<!-- house -->", "<!-- /house -->"


def files_of(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Run a call twice and list the files of the package whose functions it entered: the first time also imports."""
    call()
    seen: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        answer = call()
    finally:
        sys.setprofile(None)
    inside = [Path(name) for name in seen if name.startswith(str(SOURCE))]
    return answer, sorted(str(path.relative_to(SOURCE)) for path in inside)


def checks_of(call: Callable[[], Any]) -> int:
    """Count how often one question has its points checked: calls of `as_points` and of scikit-learn's validation."""
    count = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        if event == "call" and frame.f_code.co_name in ("as_points", "check_array"):
            count += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def size() -> dict[str, int]:
    """Count files and lines of the package and of its tests."""
    sources = sorted(SOURCE.rglob("*.py"))
    tests = sorted((SOURCE.parent.parent / "tests").rglob("*.py"))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (*sources, *tests)}
    return {
        "files": len(sources),
        "lines": sum(lines[path] for path in sources),
        "longest_file": max(lines[path] for path in sources),
        "test_files": len(tests),
        "test_lines": sum(lines[path] for path in tests),
        "files_with_one_importer": len(single_importers(sources)),
    }


def modules_imported(path: Path) -> set[tuple[str, bool]]:
    """List what a file imports of the package, and whether that is hidden: in a function, or through the package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "carre":
            hidden = id(node) not in top or node.module == "carre"
            found |= {(f"{node.module}.{alias.name}", hidden) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, id(node) not in top) for alias in node.names if alias.name.startswith("carre.")}
    return found


def single_importers(sources: list[Path]) -> list[str]:
    """List files that exactly one other file of the package imports, packages' own doors apart."""
    importers: dict[str, set[Path]] = {}
    for path in sources:
        for name, _ in modules_imported(path):
            parts = name.split(".")[1:]
            for end in range(len(parts), 0, -1):
                if (SOURCE / Path(*parts[:end])).with_suffix(".py").exists():
                    importers.setdefault("/".join(parts[:end]) + ".py", set()).add(path)
                    break
    return sorted(name for name, paths in importers.items() if len(paths) == 1)


def graph() -> dict[str, int]:
    """Count imports between rooms, those among them that a look at the top of a file does not show, and rounds."""
    names = getattr(carre, "_HOMES", None) or {
        name: module.split(".")[1] for module, found in carre._WHEN_ASKED.items() for name in found
    }
    edges: dict[tuple[str, str], bool] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for name, hidden in modules_imported(path):
            target = name.split(".")[1]
            target = names.get(target, target)
            if target != room and not target.startswith("__"):
                edges[room, target] = edges.get((room, target), True) and hidden
    both = sum((b, a) in edges for a, b in edges) // 2
    return {"edges": len(edges), "seen_only_inside_functions": sum(edges.values()), "pairs_both_ways": both}


def public(kind: type) -> list[str]:
    """List the public methods and properties of a class."""
    return sorted(name for name, _ in inspect.getmembers(kind) if not name.startswith("_"))


def table(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Write both houses side by side in Markdown."""
    rows: list[tuple[str, Any, Any]] = [
        ("files of `src`", before["size"]["files"], after["size"]["files"]),
        ("lines of `src` (Python)", before["size"]["lines"], after["size"]["lines"]),
        ("longest file", before["size"]["longest_file"], after["size"]["longest_file"]),
        ("files that one other file imports", *(both["size"]["files_with_one_importer"] for both in (before, after))),
        ("public attributes of `MetricMatching`", *(both["public"]["MetricMatching"] for both in (before, after))),
        ("… of `Geometry`, of `Local`", "–", f"{after['public']['Geometry']}, {after['public']['Local']}"),
        *(
            (f"files on the way of {name}", before["files_walked"][key], after["files_walked"][key])
            for key, name in (
                ("fit", "a fit"),
                ("dimension", "`dimension`"),
                ("path", "a path"),
                ("report", "a report"),
            )
        ),
        *(
            (f"checks of the points of one `{name}`", before["points_checked"][name], count)
            for name, count in after["points_checked"].items()
        ),
        ("imports between rooms", before["graph"]["edges"], after["graph"]["edges"]),
        ("… that point both ways", *(both["graph"]["pairs_both_ways"] for both in (before, after))),
        (
            "files, lines of tests",
            *(f"{b['size']['test_files']}, {b['size']['test_lines']:,}" for b in (before, after)),
        ),
    ]
    cells = (f"| {name} | {_cell(old)} | {_cell(new)} |" for name, old, new in rows)
    return "\n".join(["| | first house | second house |", "|---|---|---|", *cells])


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def fill(found: dict[str, Any]) -> None:
    """Put the table where docs/decisions.md has its place."""
    before = json.loads((HERE / "walk_before.json").read_text())
    text = DECISIONS.read_text(encoding="utf-8")
    start, end = text.index(_BEGIN) + len(_BEGIN), text.index(_END)
    DECISIONS.write_text(f"{text[:start]}\n{table(before, found)}\n{text[end:]}", encoding="utf-8")


def main() -> None:
    """Fit a Swiss roll, ask, and write what was walked through."""
    warnings.simplefilter("ignore")
    X, old = swiss_roll()[:300], "--first-release" in sys.argv
    settings = {**SMALL, "max_steps": 20}
    if old:
        geometry, fit = files_of(lambda: carre.MetricMatching(**settings).fit(X))
        path, report = lambda: geometry.geodesic(X[0], X[1]), lambda name: geometry.report(X, name, seconds=2.0)
    else:
        geometry, fit = files_of(lambda: carre.fit(X, **settings))
        path = lambda: geometry.path(X[0], X[1])  # noqa: E731
        report = lambda name: carre.write_report(geometry, X, name, seconds=2.0)  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        walks = {
            "fit": fit,
            "dimension": files_of(lambda: geometry.dimension(X))[1],
            "path": files_of(path)[1],
            "report": files_of(lambda: report(folder + "/page.html"))[1],
        }
    found = {
        "size": size(),
        "graph": graph(),
        "files_walked": {name: len(files) for name, files in walks.items()},
        "points_checked": {
            "dimension": checks_of(lambda: geometry.dimension(X)),
            "gradient": checks_of(lambda: geometry.gradient(lambda x: x[:, 0], X)),
            "denoise": checks_of(lambda: geometry.denoise(X)),
        },
        "public": {
            "MetricMatching": len(public(carre.MetricMatching)),
            **({} if old else {"Geometry": len(public(carre.Geometry)), "Local": len(public(carre.Local))}),
        },
        "walks": walks,
    }
    (HERE / ("walk_before.json" if old else "walk.json")).write_text(json.dumps(found, indent=2) + "\n")
    if not old:
        fill(found)
    print(json.dumps({name: value for name, value in found.items() if name != "walks"}, indent=2))


if __name__ == "__main__":
    main()
