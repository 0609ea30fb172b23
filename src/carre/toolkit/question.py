"""How a field is asked: points are checked, placed, cut into parts that fit, and the answer is brought back, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from jaxtyping import Float
from torch import Tensor

from carre.backend import Progress, in_parts
from carre.boundary import ArgumentError, Points, as_bandwidth, as_points, checked_answer
from carre.fields import Bandwidth, DataField, Field, MetricField, trusted
from carre.progress import progress_bar


@dataclass(frozen=True, eq=False)
class Question:
    """Points that a field is asked at, checked and in place.

    Attributes:
        asked: The field as the caller gave it.
        field: The field that answers, without checks of its own.
        given: The points as the caller gave them.
        points: The points where the field computes.
        bandwidth: σ, one per point.
        task: What is computed, in a word, for a progress bar.
    """

    asked: MetricField | DataField
    field: MetricField
    given: Points
    points: Float[Tensor, "n dim"]
    bandwidth: Float[Tensor, " n"]
    task: str

    def detached(self) -> Question:
        """Return the same question, cut out of the autograd graph."""
        return replace(self, points=self.points.detach(), bandwidth=self.bandwidth.detach())

    @property
    def columns(self) -> Any:
        """The names of the columns: of the points, or of the data that the field belongs to; None without any."""
        names = self.given.names
        return getattr(self.asked, "feature_names", None) if names is None else names.columns

    def beside(self, vectors: Any, *, name: str) -> Float[Tensor, "n dim"]:
        """Check one vector, or one other point, for each point."""
        given = accepted(self.asked, vectors, name=name)
        if name != "others":
            self.given.check_order(given.names, name)
        tensor = given.tensor.to(self.points)
        if len(tensor) != len(self.points):
            raise ArgumentError(name, f"be as many as the points, {len(self.points)}", got=len(tensor))
        return tensor

    def answer(
        self,
        part: Callable[..., Any],
        *beside: Tensor,
        numbers_per_point: int | None = None,
        as_points: bool = False,
        as_bases: bool = False,
        progress: Progress | None = None,
    ) -> Any:
        """Answer part by part, and bring the answer back as the caller's kind.

        Args:
            part: From some of the points, of what is beside them, and σ to a tensor, or a tuple of them.
            beside: One item per point.
            numbers_per_point: Numbers that the part keeps for each point; None for those of a metric.
            as_points: Whether the answer is points or vectors, which are images where the points were.
            as_bases: Whether the answer, or the last of several, is vectors as columns.
            progress: Told how far the work is; None draws a bar, where the field says so.
        """
        result = self.compute(part, self.points, *beside, self.bandwidth, numbers=numbers_per_point, progress=progress)
        for answer in result if isinstance(result, tuple) else (result,):
            checked_answer(answer, self.task or "value")
        given = self.given
        restore = given.restore_vectors if as_points else given.restore_bases if as_bases else given.restore
        if isinstance(result, tuple):
            return *map(given.restore if as_bases else restore, result[:-1]), restore(result[-1])
        return given.restore_bases(result, by_name=True) if as_bases else restore(result)

    def compute(
        self,
        part: Callable[..., Any],
        *batches: Tensor,
        numbers: int | None = None,
        points_per_item: int = 1,
        progress: Progress | None = None,
    ) -> Any:
        """Compute something of batches part by part, where the field computes; each item asks it at some points."""
        numbers = numbers or 64 * self.field.dim * points_per_item
        source = bare(self.asked)
        most = source.points_at_once(self.points) if isinstance(source, Field) else None
        at_most = None if most is None else max(1, most // points_per_item)
        with telling(self.asked, progress, self.task) as told:
            return in_parts(part, *batches, numbers_per_item=numbers, at_most=at_most, progress=told)


def ask(
    field: MetricField | DataField, points: Any, bandwidth: Bandwidth | None, *, name: str = "points", task: str = ""
) -> Question:
    """Check points and σ, once, and place them where the field computes.

    Args:
        field: Any field. One that knows its data takes points as people give them, and has a default σ.
        points: The points.
        bandwidth: σ, one number or one per point; None for the default.
        name: What errors call the points.
        task: What is computed, in a word.

    Example:
        >>> from carre.fields import IsotropicField
        >>> question = ask(IsotropicField(2), [[0.0, 1.0]], 0.1)
        >>> question.answer(lambda y, s: question.field.metric(y, s).trace())
        array([2.])
    """
    return _placed(field, accepted(field, points, name=name), bandwidth, task)


def _placed(field: MetricField | DataField, given: Points, bandwidth: Bandwidth | None, task: str) -> Question:
    """Ask for σ at points that were checked, and move both to where the field computes."""
    points = given.tensor
    given.check_order(bandwidth, "bandwidth")
    if isinstance(field, DataField):
        sigma, points = field.scale_at(bandwidth, points).to(field.device), points.to(field.device)
    elif bandwidth is None:
        remedy = "Only a Geometry has a default"
        raise ArgumentError("bandwidth", "be given for a field that has no default scale", got="None", remedy=remedy)
    else:
        sigma = as_bandwidth(bandwidth, points)
    return Question(field, trusted(bare(field)), given, points, sigma, task)


def bare(field: MetricField | DataField) -> MetricField:
    """Return the field of flat tensors inside one that knows its data."""
    return field.field if isinstance(field, DataField) else field


def accepted(field: MetricField | DataField, points: Any, *, name: str, single: bool = False) -> Points:
    """Check points as a field takes them; one that knows its data also takes a single point for a batch of one."""
    if isinstance(field, DataField):
        return field.accept(points, name=name, single=single)
    return as_points(points, dim=field.dim, name=name)


@dataclass(frozen=True, eq=False)
class Pairs(Question):
    """Pairs of points between which a field is asked for curves: a question about their starts, and where they end.

    Attributes:
        end: Where curves end.
    """

    end: Float[Tensor, "pairs dim"]

    @property
    def start(self) -> Float[Tensor, "pairs dim"]:
        """Where curves start."""
        return self.points


def ask_pairs(
    field: MetricField | DataField,
    start: Any,
    end: Any,
    bandwidth: Bandwidth | None,
    *,
    names: tuple[str, str] = ("start", "end"),
    task: str = "path",
) -> Pairs:
    """Accept as many starts as ends, or one of either for all, with one σ or one per pair."""
    first = accepted(field, start, name=names[0], single=True)
    last = accepted(field, end, name=names[1], single=True)
    count = max(len(first.tensor), len(last.tensor))
    if {len(first.tensor), len(last.tensor)} - {1, count}:
        must = f"be as many as {names[0]}, {len(first.tensor)}, or one for all"
        raise ArgumentError(names[1], must, got=len(last.tensor), remedy="For all pairs use distances")
    known = first.names if len(first.tensor) == count and first.names else last.names or first.names
    starts = replace(first, tensor=first.tensor.detach().expand(count, -1), names=known)
    question = _placed(field, starts, bandwidth, task).detached()
    return Pairs(**vars(question), end=last.tensor.detach().to(question.points).expand(count, -1))


def check_number(value: Any, must: str, fits: Callable[[float], bool], *, name: str, remedy: str = "") -> None:
    """Check that an option is a number that fits."""
    if not (isinstance(value, Real) and fits(float(value))):
        raise ArgumentError(name, must, got=repr(value), remedy=remedy)


def samples_of(field: MetricField | DataField, bandwidth: float | None = None) -> Any:
    """Return the samples that a field knows, if any: as a graph, where a single σ is asked for."""
    if not isinstance(field, DataField):
        return None
    return field.samples() if bandwidth is None else field.sample_graph(bandwidth)


@contextmanager
def telling(field: MetricField | DataField, progress: Progress | None, task: str) -> Iterator[Progress | None]:
    """Tell a function how far the work is; without one, draw a bar for work that takes more than a moment."""
    if progress is not None or not (isinstance(field, DataField) and field.verbose):
        yield progress
        return
    with progress_bar(task) as told:
        yield told
