"""Eigenfunctions of the Laplace–Beltrami operator of the data, and coordinates made of them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.backend import Progress, in_parts, working_memory
from carre.boundary import ArgumentError, Points, checked_integer
from carre.fields import Bandwidth, DataField, MetricField
from carre.neighbors import Neighbors, build_index
from carre.toolkit.question import Question, ask, telling
from carre.toolkit.tangent import largest_dimension, tangent_frame

# The volume around a sample is seen by a kernel as wide as half the distance to the 24th neighbor, cut off beyond six
# times as many. Ten rounds leave the edges right; more of them would follow the noise there.
_NEIGHBORS, _REACH, _WIDTH, _ROUNDS = 24, 6, 0.5, 10
# In widths: where the neighbors of a sample lie farther to one side, an edge is looked for on the other.
_ONE_SIDED = 0.3
# Samples per landmark: more blur sheets that lie near to one another, fewer take scatter for structure. And how far the
# basis functions reach, in distances between landmarks.
_PER_LANDMARK, _OVERLAP, _MOST_LANDMARKS = 16, 1.6, 800
# A disk of so many nearest samples is taken by one landmark; disks overlap, so that there are more than n/k landmarks.
_PACKING = 1.9
_SPARE = 2
# What bumps add up to almost nothing on the data can be steep across them: an error of the tangent spaces would let it
# cancel slopes along them. At 1e-10 a tangent error of 0.006 cost eigenvalues of the sphere 5%, at 1e-6 nothing.
_LEAST_MASS = 1e-6
# Of the largest eigenvalue asked for: less is rounding.
_ROUNDING = 1e-6
# λ times the variance of the samples: below, a function is constant on each part of the data.
_ZERO = 1e-3
_UNSURE = 0.1
# Halves of fewer samples say nothing.
_FEWEST = 100
# In widths of basis functions: new points farther than that from every landmark are not on the data.
_FAR = 3.0


@dataclass(frozen=True, eq=False)
class Eigenfunctions:
    """Functions along the data with −Δf = λf, smoothest first, and where they were found.

    They can be asked at new points, ``found(points)``, and are smooth there: torch differentiates through the call, so
    that `gradient` takes them like any function. The first is 1; the mean of f² over the data is 1 for each. Signs,
    and rotations among functions of the same λ, are arbitrary.

    Attributes:
        values: The eigenvalues λ of −Δ, ascending, shape (k,); their unit is 1/length².
        uncertainty: Of each, shape (k,): twice of how far it moves when it is computed from either half of the
            samples. Infinite for fewer than 100 samples.
        functions: Their values at the samples, shape (n, k).
        weights: The volume that each sample stands for, shape (n,); their sum estimates that of the data. With
            ``weighted``, 1/n.
        question: The field, the samples and σ.
        centers: The landmarks that carry the basis functions.
        widths: How far each basis function reaches.
        coefficients: Of the functions in the basis, shape (landmarks, k).

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> circle = Sphere(1).sample(400, generator=torch.Generator().manual_seed(0))
        >>> found = eigenfunctions(ExactField(Sphere(1)), circle, 5, 0.1)
        >>> found
        Eigenfunctions(λ = 0, 1, 1, 4, 4; 5 of 5 known within 10%)
        >>> turned = found.coordinates(torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64))
        >>> torch.linalg.vector_norm(turned, dim=1).round(decimals=2), (turned[0] @ turned[1]).abs() < 0.05
        (tensor([1.4100, 1.4100], dtype=torch.float64), tensor(True))
    """

    values: Any
    uncertainty: Any
    functions: Any
    weights: Any
    question: Question
    centers: Float[Tensor, "m dim"]
    widths: Float[Tensor, " m"]
    coefficients: Float[Tensor, "m k"]

    def __repr__(self) -> str:
        shown = [f"{float(value):.2g}" for value in self.values[:6]]
        more = ", …" if len(self.values) > len(shown) else ""
        sure = f"{self.n_resolved} of {len(self.values)} known within {_UNSURE:.0%}"
        return f"Eigenfunctions(λ = {', '.join(shown)}{more}; {sure})"

    def __call__(self, points: Any) -> Any:
        """Evaluate the functions at points, shape (n, k); where samples were noisy, at where points are denoised to.

        Args:
            points: Points, as the field takes them.
        """
        given, values = self._at(points)
        return given.restore(values)

    def _at(self, points: Any) -> tuple[Points, Float[Tensor, "n k"]]:
        """Evaluate the functions, and warn of points that are not on the data."""
        sigma = float(self.question.bandwidth.median())
        asked = ask(self.question.asked, points, sigma, task="eigenfunctions")

        def part(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
            y = on_the_data(asked.field, y, s)
            squares = _squares(y.double(), self.centers, self.widths)
            return squares.amin(1), (torch.softmax(-squares / 2, 1) @ self.coefficients).to(y)

        nearest, values = asked.compute(part, asked.points, asked.bandwidth, numbers=4 * len(self.centers))
        n_far = int((nearest > _FAR**2).sum())
        if n_far:
            message = (
                f"{n_far} of {len(nearest)} points are far from the samples: functions mean nothing there; see check"
            )
            warnings.warn(message, UserWarning, stacklevel=4)
        return asked.given, values

    @property
    def n_parts(self) -> int:
        """How many of the eigenvalues are zero: one for each part of the data that is not connected to others."""
        return int((_tensor(self.values) * self._spread < _ZERO).sum())

    @property
    def _spread(self) -> float:
        """The variance of the landmarks."""
        return float(self.centers.var(0, correction=0).sum())

    @property
    def n_resolved(self) -> int:
        """How many of the eigenvalues, from the first on, are known within 10%."""
        values, change = _tensor(self.values), _tensor(self.uncertainty)
        unsure = change > _UNSURE * values.clamp_min(_ZERO / self._spread)
        return int(unsure.int().argmax()) if bool(unsure.any()) else len(values)

    def coordinates(self, points: Any, n_components: int = 2) -> Any:
        """Compute harmonic coordinates of points, shape (n, n_components): fᵢ/√λᵢ for the first λᵢ that are not zero.

        They are lengths: the mean of |∇|² over the data is 1 for each, so that the longest direction of the data has
        the largest coordinate. A closed curve becomes a circle, whose angle is ``arctan2`` of two of them.

        Args:
            points: Points, as the field takes them; new ones too.
            n_components: How many.
        """
        first, most = self.n_parts, len(self.values) - self.n_parts
        if not checked_integer(n_components, name="n_components", least=1) <= most:
            must, remedy = f"be at most {most}, the eigenvalues that are not zero", "Compute more eigenfunctions"
            raise ArgumentError("n_components", must, got=n_components, remedy=remedy)
        if first > 1:
            message = f"the data fall into {first} parts that are not connected: coordinates vary on some of them and "
            warnings.warn(message + "are constant on others. Take each part by itself", UserWarning, stacklevel=3)
        chosen = slice(first, first + n_components)
        given, values = self._at(points)
        return given.restore(values[:, chosen] / _tensor(self.values).to(values)[chosen].sqrt())


@torch.no_grad()
def eigenfunctions(
    field: MetricField | DataField,
    points: Any,
    n_functions: int = 10,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    weighted: bool = False,
    progress: Progress | None = None,
) -> Eigenfunctions:
    """Compute the smoothest eigenfunctions of the Laplace–Beltrami operator along the data: −Δf = λf.

    The weak form, ∫⟨∇f, ∇h⟩ = λ∫fh for all h, in a basis of smooth bumps around landmarks [THEORY §4.8]. Slopes are
    exact: P∂f, with P the projector on the tangent space that the field gives, so that λ belong to Δ = div ∇ (those of
    the paper's Γ are half of them). Integrals are sums over samples, weighted so that every part of the data counts by
    its volume, however densely it was sampled. Where the data end, functions end level (Neumann).

    Args:
        field: The field.
        points: Samples on the data, a hundred at least; thousands are better. They are denoised, if the field knows of
            noise.
        n_functions: How many, with the constant; for n points at most n/3.
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        weighted: Count samples as they are: the operator Δf + ⟨∇log p, ∇f⟩, of the density p of the samples.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> samples = Sphere(2).sample(1000, generator=torch.Generator().manual_seed(0))
        >>> eigenfunctions(ExactField(Sphere(2)), samples, 9, 0.1).values.round()
        tensor([0., 2., 2., 2., 6., 6., 6., 6., 6.], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="eigenfunctions").detached()
    n = len(question.points)
    if not checked_integer(n_functions, name="n_functions", least=1) <= n // 3:
        must, remedy = f"be at most {n // 3}, a third of the {n} points", "Give more points, or ask for fewer functions"
        raise ArgumentError("n_functions", must, got=n_functions, remedy=remedy)
    with telling(field, progress, "eigenfunctions") as told:
        tell = told or (lambda share: None)
        samples = _on_data(question, dimension, lambda share: tell(0.4 * share))
        whole = _solve(samples, n_functions, weighted)
        tell(0.7)
        change = torch.full_like(whole.values, math.inf)
        if n >= _FEWEST:
            order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(change.device)
            halves = [_solve(samples.of(rows), n_functions, weighted).values for rows in order.chunk(2)]
            change = 2 * torch.stack([(half - whole.values).abs() for half in halves]).amax(0)
        tell(1.0)
    n_found = int(torch.isfinite(whole.values).sum())
    if n_found < n_functions:
        must, remedy = f"be at most {n_found}, as many as can be told apart at these points", "Give more points"
        raise ArgumentError("n_functions", must, got=n_functions, remedy=remedy)
    shares = torch.softmax(-_squares(samples.points, whole.centers, whole.widths) / 2, 1)
    parts = whole.values, change, shares @ whole.coefficients, whole.weights
    values, change, functions, weights = (question.given.restore(part.to(question.points)) for part in parts)
    kept = whole.centers, whole.widths, whole.coefficients
    found = Eigenfunctions(values, change, functions, weights, question, *kept)
    sure = found.n_resolved
    if sure < n_functions:
        why = f"are uncertain by more than {_UNSURE:.0%}" if n >= _FEWEST else "are of few points"
        message = (
            f"eigenvalues from λ = {float(found.values[sure]):.3g} on (number {sure + 1} of {n_functions}) {why}: "
        )
        message += f"they are not resolved. Give more points, or ask for n_functions={max(1, sure)}"
        warnings.warn(message, UserWarning, stacklevel=4)
    return found


def coordinate_functions(field: DataField, samples: Any, n_components: int) -> Eigenfunctions:
    """Compute as many eigenfunctions as so many coordinates need: one more, and one for every part of the data."""
    most = max(1, len(samples) // 3 - 1)
    asked = 1 + checked_integer(n_components, name="n_components", least=1, most=most)
    while True:
        found = eigenfunctions(field, samples, asked)
        missing = n_components + found.n_parts - asked
        if missing <= 0:
            return found
        asked += missing


def on_the_data(field: MetricField, points: Tensor, bandwidth: Tensor) -> Tensor:
    """Denoise points, where a field knows of noise in the samples: the data are where these are denoised to."""
    return field.denoise(points, bandwidth) if getattr(field, "noise", 0.0) > 0 else points


@dataclass(frozen=True, eq=False)
class _Samples:
    """Samples on the data in double precision, with tangent bases, zero where a point has fewer dimensions."""

    points: Float[Tensor, "n dim"]
    basis: Float[Tensor, "n dim d"]
    dimension: Int[Tensor, " n"]

    def of(self, rows: Int[Tensor, " k"]) -> _Samples:
        return _Samples(self.points[rows], self.basis[rows], self.dimension[rows])


@dataclass(frozen=True, eq=False)
class _Solution:
    values: Float[Tensor, " k"]
    coefficients: Float[Tensor, "m k"]
    centers: Float[Tensor, "m dim"]
    widths: Float[Tensor, " m"]
    weights: Float[Tensor, " n"]


def _on_data(question: Question, dimension: int | None, told: Progress) -> _Samples:
    """Move samples onto the data, and ask for the tangent spaces there."""
    columns = largest_dimension(question, dimension)

    def part(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = on_the_data(question.field, y, s)
        frame = tangent_frame(question.field.metric(y, s), dimension)
        basis = torch.nn.functional.pad(frame.basis, (0, max(0, columns - frame.basis.shape[-1])))
        return y, basis[..., :columns], frame.present.sum(-1)

    numbers = question.field.dim * (32 + columns)
    points, basis, counts = question.compute(part, question.points, question.bandwidth, numbers=numbers, progress=told)
    if not bool((points != points[0]).any()):
        raise ArgumentError("points", "differ", got=f"{len(points)} times the same", remedy="Give samples of the data")
    return _Samples(points.double(), basis, counts)


def _solve(samples: _Samples, n_functions: int, weighted: bool) -> _Solution:
    """Solve for the smoothest functions in a basis of bumps; values are infinite where the basis has no more.

    Few landmarks with many samples to each are best, as long as there are more functions than are asked for.
    """
    n, points = len(samples.points), samples.points
    share = max(_PER_LANDMARK, math.ceil(_PACKING * n / _MOST_LANDMARKS))
    found = build_index(points).search(points, min(max(_REACH * _NEIGHBORS, share), n))
    weights = points.new_full((n,), 1 / n) if weighted else _volumes(samples, found)
    while True:
        centers = points[_landmarks(found.indices[:, :share])]
        widths = _widths(centers, samples.basis.shape[-1])
        stiffness, mass = _assembled(samples, weights / weights.sum(), centers, widths)
        amounts, axes = torch.linalg.eigh(mass)
        kept = amounts > _LEAST_MASS * amounts[-1]
        if int(kept.sum()) >= _SPARE * n_functions or share == 1:
            break
        share = 2 * share // 3
    if int(kept.sum()) < n_functions:
        # Of very few points, whatever there is.
        kept = amounts > torch.finfo(amounts.dtype).eps * amounts[-1]
    whitened = axes[:, kept] / amounts[kept].sqrt()
    values, vectors = torch.linalg.eigh(whitened.mT @ stiffness @ whitened)
    values, coefficients = values[:n_functions], whitened @ vectors[:, :n_functions]
    values = torch.where(values > _ROUNDING * values[-1], values, 0.0)
    values = torch.nn.functional.pad(values, (0, n_functions - len(values)), value=math.inf)
    # One of the two signs, the same every time.
    at_centers = torch.softmax(-_squares(centers, centers, widths) / 2, 1) @ coefficients
    largest = at_centers.gather(0, at_centers.abs().argmax(0, keepdim=True))
    return _Solution(values, coefficients * largest.sign(), centers, widths, weights)


def _widths(centers: Float[Tensor, "m dim"], dimension: int) -> Float[Tensor, " m"]:
    """Compute how far bumps reach, by the distances to the nearest centers."""
    if len(centers) == 1:
        return centers.new_ones(1)
    near = build_index(centers).search(centers, min(2 * dimension + 2, len(centers))).squared_distances[:, 1:]
    return _OVERLAP * near.clamp_min(1e-12 * float(near.max())).log().mean(1).div(2).exp()


def _volumes(samples: _Samples, found: Neighbors) -> Float[Tensor, " n"]:
    """Compute the volume that each sample stands for, such that every part of the data, blurred, has its own.

    Σ_j w_j k(x_i, x_j) = Φ, the share of the kernel at x_i that lies on the data: 1 inside, and Φ(b) at a distance b
    from an edge. Solved by w ← wΦ/Σwk, whose first round is the density correction 1/p̂; the next ones take off what
    is left of the scatter of the samples at scales above that of the kernel.
    """
    last = found.squared_distances[:, min(_NEIGHBORS, len(samples.points) - 1)].sqrt()
    last = last.clamp_min(1e-6 * float(last.median().clamp_min(torch.finfo(last.dtype).tiny)))
    width = _WIDTH * last.log()[found.indices[:, :_NEIGHBORS]].mean(1).exp()
    count = min(_REACH * _NEIGHBORS, len(samples.points))
    indices, squares = found.indices[:, :count], found.squared_distances[:, :count] / width.square()[:, None]
    kernel = torch.exp(-squares / 2) / (math.sqrt(2 * math.pi) * width[:, None]) ** samples.dimension[:, None]

    def seen(x: Tensor, basis: Tensor, near: Tensor, reach: Tensor) -> Tensor:
        return (samples.points[near] - x[:, None]) @ basis.to(x) / reach[:, None, None]

    beside = samples.points, samples.basis, indices, width
    offsets = in_parts(seen, *beside, numbers_per_item=2 * count * samples.points.shape[1])
    lengths = offsets.square().sum(-1)
    weights = width**samples.dimension
    for _ in range(_ROUNDS):
        held = kernel * weights[indices]
        total = held.sum(1)
        center = torch.einsum("nj,nja->na", held, offsets) / total[:, None]
        off_center = torch.linalg.vector_norm(center, dim=1)
        # Away from the center of the neighbors, how far do they go, in a tube as wide as the kernel?
        along = -torch.einsum("nja,na->nj", offsets, center) / off_center.clamp_min(1e-12)[:, None]
        in_tube = lengths - along.square() < 1
        share = torch.special.ndtr(torch.where(in_tube, along, 0.0).amax(1))
        weights = weights * torch.where(off_center < _ONE_SIDED, 1.0, share) / total
    return weights


def _landmarks(neighbors: Int[Tensor, "n k"]) -> Int[Tensor, " m"]:
    """Choose samples of which none is among the nearest k of one before: denser where samples are."""
    near, is_free, chosen = neighbors.cpu().numpy(), np.ones(len(neighbors), dtype=bool), list[int]()
    for sample in np.random.default_rng(0).permutation(len(near)):
        if is_free[sample]:
            chosen.append(int(sample))
            is_free[near[sample]] = False
    return torch.tensor(chosen, device=neighbors.device)


def _squares(points: Float[Tensor, "n dim"], centers: Tensor, widths: Tensor) -> Float[Tensor, "n m"]:
    """Compute |x − c|²/h² to every center, differentiable also at the centers."""
    middle = centers.mean(0)
    x, c = points - middle, centers - middle
    return (x.square().sum(1)[:, None] - 2 * x @ c.mT + c.square().sum(1)) / widths.square()


def _assembled(
    samples: _Samples, weights: Float[Tensor, " n"], centers: Float[Tensor, "m dim"], widths: Float[Tensor, " m"]
) -> tuple[Float[Tensor, "m m"], Float[Tensor, "m m"]]:
    """Sum ⟨P∂φ_i, P∂φ_j⟩ and φ_iφ_j over the samples, for bumps that add up to 1: φ = softmax(−|x − c|²/2h²)."""
    m, d = len(centers), samples.basis.shape[-1]
    stiffness, mass = centers.new_zeros(m, m), centers.new_zeros(m, m)
    size = max(1, working_memory(centers.device) // (8 * m * (3 * d + 4)))
    parts = (samples.points, samples.basis, weights.sqrt())
    for x, basis, root in zip(*(torch.split(part, size) for part in parts), strict=True):
        bumps = torch.softmax(-_squares(x, centers, widths) / 2, 1)
        frames = basis.to(x)
        towards = torch.einsum("nda,md->nam", frames, centers) - torch.einsum("nda,nd->na", frames, x)[..., None]
        towards = towards / widths.square()
        slopes = bumps[:, None] * (towards - (towards @ bumps[..., None]))
        rows = root[:, None] * bumps
        mass += rows.mT @ rows
        rows = (root[:, None, None] * slopes).flatten(0, 1)
        stiffness += rows.mT @ rows
    return stiffness, mass


def _tensor(values: Any) -> Tensor:
    """See an array as a tensor, whatever device is the default."""
    return values if isinstance(values, Tensor) else torch.from_numpy(values)
