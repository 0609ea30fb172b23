"""Imports point upwards through the rooms, files stay small, and importing the library stays cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import carre

ROOT = Path(carre.__file__).parent
ORDER = [
    "boundary",
    "data",
    "backend",
    "metric",
    "neighbors",
    "manifolds",
    "matching",
    "networks",
    "training",
    "fields",
    "toolkit",
    "evaluation",
    "fitting",
    "function_matching",
    "storage",
    "report",
    "estimator",
    "benchmarks",
    "cli",
]
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            modules.append(str(node.module))
    return {name.split(".")[1] for name in modules if name.startswith("carre.")}


def test_every_room_is_listed():
    assert {room_of(path) for path in FILES} - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upwards_and_files_stay_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
    if room_of(path) == "__init__":
        return
    for room in imported_rooms(path):
        assert ORDER.index(room) <= ORDER.index(room_of(path)), f"{path.name} imports {room}"


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_library_leaves_out_what_is_slow_to_import():
    """scikit-learn and matplotlib take a second each; torch alone takes most of the two that are allowed."""
    loaded = run_python("import sys, carre; print([m for m in ('sklearn', 'matplotlib', 'scipy') if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_every_public_name_can_be_reached():
    names = run_python("import carre; print(all(getattr(carre, name) is not None for name in carre.__all__))")
    assert names.strip() == "True"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = carre.nonsense


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.rglob("*.py")), ids=lambda path: path.name)
def test_test_files_stay_small_too(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
