"""The API reference: every public name, found by its short name too, and overviews that keep themselves up to date."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import carre
from carre import toolkit

# A name in code: with a dot in it, or with a capital letter; arguments may follow.
_NAME = re.compile(r"(?P<name>(?=[A-Z]|[a-z_]+\.)[\w.]+)(\(.*\))?")
_UNKNOWN = re.compile(r"(?<=\w): (~?typing\.)?Any(?=[,)]| =)")


# Rooms that are no interface: how things are computed, and the command, which has a page of its own.
_INSIDE = ("carre.backend", "carre.cli")


def rooms() -> dict[str, ModuleType]:
    """Return the modules with public names: the library itself, and its rooms that declare ``__all__``."""
    names = [f"carre.{module.name}" for module in pkgutil.iter_modules(carre.__path__)]
    found = {name: importlib.import_module(name) for name in names if name not in _INSIDE}
    return {"carre": carre, **{name: module for name, module in found.items() if hasattr(module, "__all__")}}


def tools(face: type) -> dict[str, str]:
    """Return the methods of a class that are functions of the toolkit, and what they are called there.

    Example:
        >>> tools(carre.Geometry)["dimension"]
        'local_dimension'
    """
    known = {id(getattr(toolkit, name)): name for name in toolkit.__all__}
    return {name: known[id(value)] for name, value in vars(face).items() if id(value) in known}


def first_line(thing: Any) -> str:
    """Return what a docstring says first, as reStructuredText.

    Example:
        >>> first_line(first_line)
        'Return what a docstring says first, as reStructuredText.'
    """
    return plain_bars((inspect.getdoc(thing) or "").partition("\n")[0])


class _Overview(SphinxDirective, ABC):
    """A list of names with what each is for, written as reStructuredText and parsed in place."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Write the list."""

    def run(self) -> list[nodes.Node]:
        container = nodes.container()
        self.state.nested_parse(StringList(self.lines(), source="overview"), self.content_offset, container)
        return container.children


class PublicNames(_Overview):
    """``.. public-names:: carre`` lists what a module exports."""

    required_arguments = 1

    def lines(self) -> list[str]:
        """Write one item per name."""
        name = self.arguments[0]
        module = importlib.import_module(name)
        return [f"* `{key} <{name}.{key}>`: {_purpose(module, key)}" for key in module.__all__]


class Room(PublicNames):
    """``.. room:: carre.toolkit`` lists what a module exports, and describes what is not described elsewhere."""

    option_spec: ClassVar[dict[str, Any]] = {"elsewhere": str.split}

    def lines(self) -> list[str]:
        """Write what the module is for, the list, and a directive of autodoc for every name."""
        (name,) = self.arguments
        module = importlib.import_module(name)
        lines = [f".. py:module:: {name}", "", *(inspect.getdoc(module) or "").splitlines(), "", *super().lines(), ""]
        for key in module.__all__:
            if key in self.options.get("elsewhere", ()):
                continue
            kind = _kind(getattr(module, key))
            if kind == "data":
                lines += [f".. py:data:: {key}", f"   :module: {name}", "", f"   {_purpose(module, key)}", ""]
            else:
                lines += [f".. auto{kind}:: {name}.{key}", "" if kind == "function" else "   :members:", ""]
        return lines


def _kind(thing: Any) -> str:
    if inspect.isclass(thing):
        return "exception" if issubclass(thing, BaseException) else "class"
    return "function" if inspect.isroutine(thing) else "data"


def _purpose(room: ModuleType, name: str) -> str:
    """Say what something is for; of a constant that stands below it, in one of the files of its room."""
    thing = getattr(room, name)
    if _kind(thing) != "data":
        return first_line(thing)
    files = [room.__name__, *(f"{room.__name__}.{file.name}" for file in pkgutil.iter_modules(room.__path__))]
    found = [ModuleAnalyzer.for_module(file).find_attr_docs().get(("", name)) for file in files]
    return next((" ".join(lines).strip() for lines in found if lines), f"A constant, ``{thing!r}``.")


class Tools(_Overview):
    """``.. tools:: Geometry`` lists the methods of a class that are functions of the toolkit, which describes them."""

    required_arguments = 1

    def lines(self) -> list[str]:
        """Write one item per method, in the order of the class."""
        found = tools(getattr(carre, self.arguments[0]))
        return [f"* `{key} <carre.toolkit.{name}>`: {_purpose(toolkit, name)}" for key, name in found.items()]


def _leave_out_tools(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Describe what is both a method and a function of the toolkit once, there."""
    del app, skip, options
    return True if what == "class" and name in tools(carre.Geometry) and obj in vars(carre.Geometry).values() else None


def plain_bars(line: str) -> str:
    """Let |x| be a norm, where reStructuredText would look for a substitution; literals and doctests stay.

    Example:
        >>> plain_bars("|x| in ``a | b``")
        '\\\\|x\\\\| in ``a | b``'
    """
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = re.split(r"(``.*?``)", line)
    return "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def _plain_formulas(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    del app, what, name, obj, options
    lines[:] = [plain_bars(line) for line in lines]


def _keep_first_line(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Let a property say "what it is: more of it": what stands before a colon would be taken for its type.

    That is so in the first line only, which becomes an empty comment.
    """
    del app, name, obj, options
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]


def _known_types(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Leave out types that say nothing: points are arrays or tensors, and come back as they were given.

    The defaults of records that are made anew each time are written as dots.
    """
    del app, what, name, obj, options
    known = signature and _UNKNOWN.sub("", signature).replace("<factory>", "...")
    return known, None if returned in ("Any", "~typing.Any") else returned


def _note_aliases(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Let ``carre.Path`` be found where ``carre.toolkit.Path`` is described, and ``geometry.path`` likewise."""
    del app
    objects = env.domains["py"].objects  # type: ignore[attr-defined]
    public = {f"{room}.{name}": getattr(module, name) for room, module in rooms().items() for name in module.__all__}
    described = {id(thing): objects[name] for name, thing in public.items() if name in objects}
    for name, thing in public.items():
        origin = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
        entry = described.get(id(thing)) or objects.get(origin)
        if name not in objects and entry is not None:
            objects[name] = entry._replace(aliased=True)
    for method, name in tools(carre.Geometry).items():
        objects[f"carre.Geometry.{method}"] = objects[f"carre.toolkit.{name}"]._replace(aliased=True)
    return []


def _place_of(env: BuildEnvironment, name: str) -> tuple[str, str] | None:
    """Return the page and the anchor of what is called by a full name, or by an ending that nothing else has."""
    objects = env.domains["py"].objects  # type: ignore[attr-defined]
    if f"carre.{name}" in objects:
        name = f"carre.{name}"
    if name in objects:
        return objects[name].docname, objects[name].node_id
    places = {(entry.docname, entry.node_id) for full, entry in objects.items() if full.endswith("." + name)}
    return places.pop() if len(places) == 1 else None


def _link(app: Sphinx, docname: str, place: tuple[str, str], content: nodes.Node, title: str) -> nodes.reference:
    uri = f"{app.builder.get_relative_uri(docname, place[0])}#{place[1]}"
    return nodes.reference("", "", content, internal=True, refuri=uri, reftitle=title)


def _find_by_ending(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Resolve a short name in a docstring, `Path` or `Geometry.at`, if only one thing is called that."""
    place = _place_of(env, node["reftarget"]) if node.get("refdomain") == "py" else None
    return None if place is None else _link(app, node["refdoc"], place, content, node["reftarget"])


def _link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link code in the text of pages that is the name of something: `carre.toolkit.check`, `geometry.denoise(X)`."""
    if not str(app.env.doc2path(docname)).endswith((".md", ".py")):
        return
    for literal in list(doctree.findall(nodes.literal)):
        match = _NAME.fullmatch(literal.astext())
        if not match or isinstance(literal.parent, (nodes.reference, nodes.title)) or "xref" in literal["classes"]:
            continue
        name = match["name"]
        place = _place_of(app.env, name)
        if place is None and name.startswith("geometry."):
            # What pages call what a fit returns.
            place = _place_of(app.env, "Geometry." + name.removeprefix("geometry."))
        if place is not None:
            literal.replace_self(_link(app, docname, place, literal.deepcopy(), name))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the overviews and the rules for names."""
    app.add_directive("public-names", PublicNames)
    app.add_directive("room", Room)
    app.add_directive("tools", Tools)
    app.connect("autodoc-skip-member", _leave_out_tools)
    # Before the sections of docstrings are read, at 500.
    app.connect("autodoc-process-docstring", _keep_first_line, priority=400)
    app.connect("autodoc-process-docstring", _plain_formulas)
    app.connect("autodoc-process-signature", _known_types)
    app.connect("env-updated", _note_aliases)
    app.connect("missing-reference", _find_by_ending)
    app.connect("doctree-resolved", _link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
