"""Imports point one way through the rooms, files stay small, and importing the library stays cheap."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import carre

ROOT = Path(carre.__file__).parent
HOUSE = Path(__file__).parent.parent / "docs" / "house.py"
# From the ground up: each room may import those before it, and none after it.
ORDER = [
    "text",
    "progress",
    "sketch",
    "boundary",
    "arguments",
    "files",
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
    "local",
    "geometry",
    "fitting",
    "function_matching",
    "storage",
    "mapping",
    "plots",
    "report",
    "estimator",
    "cli",
]
LONGEST, MOST_FILES, MOST_LINES = 500, 150, 32_100
FILES = sorted(ROOT.rglob("*.py"))


def _house():
    spec = importlib.util.spec_from_file_location("house", HOUSE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


house = _house()


def test_every_room_is_listed():
    assert {house.room_of(path) for path in FILES} - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way_and_files_stay_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST
    if house.room_of(path) == "__init__":
        return
    for room in house.imported_rooms(path):
        assert ORDER.index(room) < ORDER.index(house.room_of(path)), f"{path.name} imports {room}"


@pytest.mark.parametrize(
    "line",
    [
        "from carre import MetricMatching",
        "import carre.cli",
        "from carre.report import write_report",
        "def later():\n    from carre import write_report",
        "if TYPE_CHECKING:\n    from carre.estimator import MetricMatching",
        "from carre import plots",
        "import carre\n\ndef later():\n    return carre.MetricMatching",
    ],
)
def test_no_import_is_hidden_from_the_test_above(line, tmp_path, monkeypatch):
    monkeypatch.setattr(house, "SOURCE", tmp_path)
    path = tmp_path / "metric.py"
    path.write_text(line)
    rooms = {room if room in ORDER else carre._HOMES[room] for room in house.imported_rooms(path)}
    assert rooms & {"estimator", "cli", "report", "plots"}


def test_the_picture_of_the_house_is_that_of_the_code():
    assert house.PICTURE.read_text(encoding="utf-8") == house.picture(), "run python docs/house.py"


def test_the_house_stays_small():
    assert len(FILES) <= MOST_FILES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES) <= MOST_LINES


def _importers():
    """Map every module to the files of the package that import it, or something of it."""
    found = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    found.setdefault(name, set()).add(path)
    return found


def test_modules_that_only_their_own_room_uses_begin_with_an_underscore():
    """Colors are for those, too, who draw beside our plots."""
    importers = _importers()
    inner = [path for path in FILES if path.parent != ROOT and not path.name.startswith("_")]
    private = []
    for path in inner:
        users = importers.get(f"carre.{path.parent.name}.{path.stem}", set())
        if all(user.parent == path.parent and user.name != "__init__.py" for user in users):
            private.append(f"{path.parent.name}.{path.stem}")
    assert private == ["plots.style"]


def _public_calls():
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.args.kwarg is not None:
                yield path, node


def test_public_calls_name_their_options():
    """No ``**options``: an editor shows what there is, and mypy refuses what there is not. Tensor.to has its own."""
    found = {f"{path.stem}.{node.name}" for path, node in _public_calls()}
    assert found <= {"metric.to", "frame.to", "application.main"}


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_library_is_cheap_and_every_public_name_can_be_reached():
    """scikit-learn and matplotlib take a second each; torch alone takes most of the two that are allowed."""
    code = (
        "import sys, carre; print([m for m in ('sklearn', 'matplotlib', 'scipy') if m in sys.modules]); "
        "print(all(getattr(carre, name) is not None for name in carre.__all__))"
    )
    assert run_python(code).split("\n")[:2] == ["[]", "True"]
    assert set(carre.__all__) == set(carre._HOMES)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = carre.nonsense


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.rglob("*.py")), ids=lambda path: path.name)
def test_test_files_stay_small_too(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST
