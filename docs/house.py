"""The house as a picture: which room imports which, drawn from the code. ``python docs/house.py`` draws it anew."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import carre

SOURCE = Path(carre.__file__).parent
PICTURE = Path(__file__).parent / "images" / "house.svg"
_WIDTH, _ROW, _BOX, _HEIGHT, _MARGIN = 980, 84, 132, 40, 20
_WORDS = {
    "progress": "how far it is",
    "sketch": "seen at a prompt",
    "boundary": "what people give",
    "arguments": "what they ask for",
    "files": "written whole",
    "backend": "how much at once",
    "metric": "G as a value",
    "data": "tables, images",
    "neighbors": "who is near",
    "manifolds": "exact oracles",
    "matching": "what is learned",
    "networks": "by what",
    "training": "until when",
    "fields": "G at any point",
    "toolkit": "what G is for",
    "local": "at some points",
    "geometry": "the value",
    "fitting": "the front door",
    "function_matching": "Γ of functions",
    "storage": "kept in folders",
    "mapping": "at many rows",
    "plots": "axes in, axes out",
    "report": "one page",
    "estimator": "scikit-learn",
    "cli": "the command",
}


def room_of(path: Path) -> str:
    """Return the room that a file of the package belongs to."""
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    # The door of ``python -m carre``.
    return "cli" if name == "__main__" else name


def imported_rooms(path: Path) -> set[str]:
    """Find the rooms that a file imports, also inside functions, and through names of the package itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("carre.")}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path} uses a relative import")
            if str(node.module).startswith("carre."):
                found.add(str(node.module).split(".")[1])
            elif node.module == "carre":
                found |= {_home(alias.name) for alias in node.names} - {""}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "carre":
            found |= {_home(node.attr)} - {""}
    return found - {room_of(path)}


def _home(name: str) -> str:
    """Return the room of a name that the package hands out; nothing for what it says of itself."""
    if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists():
        return name
    return carre._HOMES.get(name, "" if name.startswith("__") else name)


@cache
def import_graph() -> dict[str, frozenset[str]]:
    """Read which rooms each room imports."""
    graph: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if room_of(path) != "__init__":
            graph.setdefault(room_of(path), set()).update(imported_rooms(path))
    return {room: frozenset(rooms) for room, rooms in graph.items()}


def floors(graph: dict[str, frozenset[str]]) -> dict[str, int]:
    """Put every room one floor above the highest that it imports."""

    def floor(room: str, above: tuple[str, ...] = ()) -> int:
        if room in above:
            raise ValueError(f"rooms import each other in a circle: {' → '.join((*above, room))}")
        return 1 + max((floor(below, (*above, room)) for below in graph[room]), default=-1)

    return {room: floor(room) for room in graph}


def direct(graph: dict[str, frozenset[str]]) -> list[tuple[str, str]]:
    """Leave out imports that also lead through another room: the picture is to be read."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return graph[room].union(*(reached(below) for below in graph[room]))

    return [
        (room, below)
        for room in sorted(graph)
        for below in sorted(graph[room])
        if not any(below in reached(other) for other in graph[room] - {below})
    ]


def picture() -> str:
    """Draw the house, the lowest floor at the bottom, as SVG."""
    graph = import_graph()
    levels = floors(graph)
    top = max(levels.values())
    places: dict[str, tuple[float, float]] = {}
    for level in range(top + 1):
        rooms = sorted(room for room in levels if levels[room] == level)
        for i, room in enumerate(rooms):
            places[room] = (_WIDTH * (i + 1) / (len(rooms) + 1), _MARGIN + _HEIGHT / 2 + _ROW * (top - level))
    lines = [
        f'<line x1="{places[a][0]:.0f}" y1="{places[a][1] + _HEIGHT / 2:.0f}" x2="{places[b][0]:.0f}" '
        f'y2="{places[b][1] - _HEIGHT / 2:.0f}"/>'
        for a, b in direct(graph)
    ]
    boxes = [
        f'<g><rect x="{x - _BOX / 2:.0f}" y="{y - _HEIGHT / 2:.0f}" width="{_BOX}" height="{_HEIGHT}" rx="6"/>'
        f'<text x="{x:.0f}" y="{y - 3:.0f}" font-weight="600">{room}</text>'
        f'<text x="{x:.0f}" y="{y + 13:.0f}" font-size="11" fill="#555">{_WORDS.get(room, "")}</text></g>'
        for room, (x, y) in sorted(places.items())
    ]
    height = 2 * _MARGIN + _HEIGHT + _ROW * top
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
            'font-size="14" text-anchor="middle">',
            f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
            '<g stroke="#9aa" stroke-width="1.2">',
            *lines,
            "</g>",
            '<g fill="#eef3f8" stroke="#56789a">',
            *(box.replace("<text", '<text stroke="none" fill="#123"', 1) for box in boxes),
            "</g>",
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"{PICTURE.name}: {len(import_graph())} rooms, {sum(map(len, import_graph().values()))} imports between them")
