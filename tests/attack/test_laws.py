"""Attack: laws that every field obeys at any points and any σ, in both precisions, drawn by Hypothesis."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import carre
from carre import ExactField, Geometry, KernelField, NeuralField, ScoreField, SteinField
from carre.manifolds import Sphere
from carre.metric import AffineFrame
from carre.toolkit import gradient, local_dimension, project
from tests.attack.kit import Ledger, Verdict

D = 3
_ROUNDING = {torch.float32: 2e-2, torch.float64: 1e-5}


class Question(NamedTuple):
    """What a field is asked, in one precision."""

    points: Tensor
    bandwidth: Tensor | float


@functools.cache
def samples() -> Tensor:
    """A bent sheet."""
    sheet = torch.rand(80, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sheet[:, 2] = sheet[:, 0].square()
    return sheet


@functools.cache
def geometry() -> Geometry:
    found: Geometry = carre.fit(samples(), max_steps=10, width=16, bandwidth=0.3, random_state=0, verbose=False)
    return found


@functools.cache
def fields() -> dict[str, Any]:
    kernel = KernelField(samples())
    return {
        "geometry": geometry(),
        "kernel": kernel,
        "nearest": KernelField(samples(), n_neighbors=12),
        "adaptive": KernelField(samples(), n_neighbors=20, adaptive=True),
        "uncentered": KernelField(samples(), centered=False),
        "sphere": ExactField(Sphere(2)),
        "Stein": SteinField(kernel),
        "score": ScoreField(kernel),
    }


def numbers(low: int, high: int) -> st.SearchStrategy[float]:
    """Powers of ten, with a digit or two."""
    return st.builds(lambda digit, power: digit * 10.0**power, st.floats(1.0, 9.0), st.integers(low, high))


@st.composite
def questions(draw: st.DrawFn, *, far: bool) -> Question:
    """Draw points and σ, near the data and in their scales, or anywhere that numbers go."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    n, ends = draw(st.integers(1, 4)), (-45, 38) if dtype is torch.float32 else (-320, 308)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    points = torch.rand(n, D, generator=generator, dtype=torch.float64) * 1.2 - 0.1
    if draw(st.booleans()):
        points = points[:1].expand(n, -1)
    if far:
        points = draw(numbers(*ends)) * points + draw(st.sampled_from([0.0, 1.0, -1e8]))
        bandwidth = float(torch.tensor(draw(numbers(*ends)), dtype=dtype))
        return Question(points.to(dtype), bandwidth)
    several = draw(st.booleans())
    scales = 0.1 * 2.0 ** (3 * torch.rand(n, generator=generator, dtype=torch.float64))
    return Question(points.to(dtype), scales.to(dtype) if several else float(scales[0]))


def told(laws: dict[str, bool], *answers: Tensor) -> Verdict:
    """Judge answers, all of which are finite, and laws."""
    if not all(bool(torch.isfinite(answer).all()) for answer in answers):
        return Verdict.INFINITE
    return Verdict.RIGHT if all(laws.values()) else Verdict.WRONG


def near(left: Tensor, right: Tensor, *, size: float = 1.0) -> bool:
    """Compare in the precision of the numbers."""
    rounding = _ROUNDING[left.dtype]
    return left.shape == right.shape and bool(torch.allclose(left, right.to(left), rtol=rounding, atol=rounding * size))


def ask_all(ledger: Ledger, name: str, field: Any, question: Question, *, equal: bool) -> None:
    """Ask one field everything: finite answers of the right shape that obey the laws, or a sentence."""
    x, sigma = question
    n, tall = len(x), float(x.abs().max()) + 1e-30

    def judged(case: str, call: Callable[[], Any], verdict: Callable[[Any], Verdict]) -> Any:
        names = ("bandwidth", "points", "metric", "function", "gradient")
        return ledger.ask(f"{name}: {case} at {x.tolist()}, {sigma}", call, names=names, verdict=verdict)

    def of_eigenvalues(values: Tensor) -> Verdict:
        descending = bool((values.diff(dim=-1) <= 1e-6 * values[..., :1].clamp_min(1e-30)).all())
        return told({"≥ 0": bool((values >= 0).all()), "shape": len(values) == n, "order": descending}, values)

    def of_bases(basis: Tensor) -> Verdict:
        gram = basis.mT @ basis
        is_orthonormal = bool(torch.allclose(gram, torch.eye(basis.shape[-1]).to(gram), atol=1e-4))
        return told({"shape": basis.shape[:2] == (n, D), "orthonormal": is_orthonormal}, basis)

    def of_points(found: Tensor) -> Verdict:
        return told({"shape": found.shape == x.shape, "dtype": found.dtype == x.dtype}, found)

    metric = judged("metric", lambda: field.metric(x, sigma), lambda found: told({"n": len(found) == n}, found._rows))
    judged("eigenvalues", lambda: field.metric(x, sigma).eigenvalues(), of_eigenvalues)
    judged("tangent basis", lambda: field.metric(x, sigma).tangent_basis(2), of_bases)
    judged("denoise", lambda: field.denoise(x, sigma), of_points)
    judged("project", lambda: project(field, x, torch.ones_like(x), sigma, dimension=2), of_points)
    judged("gradient", lambda: gradient(field, lambda y: y.sum(1), x, sigma, dimension=2), of_points)
    judged(
        "dimension",
        lambda: local_dimension(field, x, sigma),
        lambda found: told({"range": bool(((found >= 0) & (found <= D)).all())}, found),
    )
    if equal and metric is not None:
        order = torch.arange(n).flip(0)
        turned = sigma[order] if isinstance(sigma, Tensor) else sigma
        one = sigma[:1] if isinstance(sigma, Tensor) else sigma
        dense, mean = metric.dense(), field.denoise(x, sigma)
        same = functools.partial(near, dense)
        judged(
            "in another order", lambda: field.metric(x[order], turned).dense()[order], lambda g: told({"": same(g)}, g)
        )
        judged("one by one", lambda: field.metric(x[:1], one).dense(), lambda g: told({"": near(dense[:1], g)}, g))
        arrays = x.numpy(), sigma.numpy() if isinstance(sigma, Tensor) else sigma
        judged("as arrays", lambda: field.metric(*arrays).dense(), lambda g: told({"": same(g)}, g))
        judged(
            "the mean as arrays",
            lambda: torch.as_tensor(field.denoise(*arrays)),
            lambda found: told({"": near(mean, found, size=tall)}, found),
        )


def hold(
    ledger: Ledger, dose: Callable[[int, int], int], law: Callable[..., None], strategy: Any, examples: int
) -> None:
    """Let Hypothesis look for what breaks a law: the same in every small dose, others in full."""
    is_small = examples == dose(examples, -1)
    found = settings(
        max_examples=examples,
        derandomize=is_small,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(given(strategy)(law))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found()


def test_laws_near_the_data(ledger: Ledger, dose: Callable[[int, int], int]) -> None:
    """Shapes, orthonormality, signs; order, company and kind of the points change nothing."""

    def law(question: Question) -> None:
        for name, field in fields().items():
            ask_all(ledger, name, field, question, equal=True)

    hold(ledger, dose, law, questions(far=False), dose(3, 60))
    ledger.check(least=dose(100, 3000))


def test_laws_at_the_ends_of_the_numbers(ledger: Ledger, dose: Callable[[int, int], int]) -> None:
    """σ and points from the smallest to the largest number: an answer or a sentence."""

    def law(question: Question) -> None:
        for name, field in fields().items():
            ask_all(ledger, name, field, question, equal=False)

    hold(ledger, dose, law, questions(far=True), dose(5, 100))
    ledger.check(least=dose(100, 3000))


def moved(field: Any, rotation: Tensor, scale: float, shift: Tensor) -> Any:
    """Return the field of the same data, turned, scaled and shifted."""
    if isinstance(field, Geometry):
        old = field.field.frame
        basis = rotation if old.basis is None else rotation @ old.basis.double()
        frame = AffineFrame(scale * old.center @ rotation.mT + shift, scale * old.scale, basis)
        return NeuralField(field.field.model, frame)
    return KernelField(scale * samples() @ rotation.mT + shift, n_neighbors=field.n_neighbors, centered=field.centered)


def compare_moved(ledger: Ledger, name: str, question: Question, power: int, shift: float, seed: int) -> None:
    """Compare the field of data that were moved with that of the data themselves."""
    x, sigma = question.points.double(), question.bandwidth
    sigma = sigma.double() if isinstance(sigma, Tensor) else sigma
    noise = torch.randn(D, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rotation, scale = torch.linalg.qr(noise)[0], 10.0**power
    by = scale * shift * torch.ones(D, dtype=torch.float64)
    here, there = fields()[name], moved(fields()[name], rotation, scale, by)
    expected = rotation @ here.metric(x, sigma).dense() @ rotation.mT
    means = here.denoise(x, sigma) @ rotation.mT + by / scale
    y, s = scale * x @ rotation.mT + by, scale * sigma
    case = f"{name}: moved by 1e{power}, {shift}, {seed}"

    def as_expected(found: Tensor) -> Verdict:
        return told({"": near(expected, found)}, found)

    def as_means(found: Tensor) -> Verdict:
        return told({"": near(means, found / scale)}, found / scale)

    ledger.ask(case, lambda: there.metric(y, s).dense(), verdict=as_expected)
    ledger.ask(f"{case}, mean", lambda: there.denoise(y, s), verdict=as_means)


def test_laws_of_motion(ledger: Ledger, dose: Callable[[int, int], int]) -> None:
    """The geometry of data that are turned, scaled (by 1e-30 to 1e30) and shifted is turned, and nothing else."""

    def law(question: Question, power: int, shift: float, seed: int) -> None:
        for name in ("geometry", "kernel", "nearest", "uncentered"):
            compare_moved(ledger, name, question, power, shift, seed)

    arguments = st.tuples(
        questions(far=False), st.integers(-30, 30), st.sampled_from([0.0, 1.0, -1e3]), st.integers(0, 99)
    )
    hold(ledger, dose, lambda drawn: law(*drawn), arguments, dose(5, 120))
    ledger.check(least=dose(30, 900))
