"""The score-Jacobian metric: the derivative of any denoiser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from carre.backend.modes import forward_mode, with_gradients
from carre.boundary import ArgumentError, as_count, is_integer
from carre.fields._compression import leading_factor
from carre.fields.field import Bandwidth, Field
from carre.fields.stein import Denoiser
from carre.metric import LowRankMetric
from carre.networks.pointwise import is_one_value

# The full Jacobian has D² numbers per point and takes D products; beyond this it is refused.
_LARGEST_FULL = 4096
# Coordinates given to the denoiser at once, unless chunk says otherwise.
_CHUNK_NUMBERS = 2**22
_LARGEST_CHUNK = 8192
_MODES = ("auto", "forward", "reverse")


@dataclass(frozen=True, eq=False)
class TraceEstimate:
    """A trace at each point, and how far off it may be.

    Attributes:
        value: The trace.
        error: Its standard error over the probes; 0 where it was computed exactly.

    Example:
        >>> import torch
        >>> from carre import ExactField, ScoreField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> estimate = ScoreField(ExactField(Sphere(2))).trace(pole, 0.1)  # exactly, in three products
        >>> round(float(estimate.value), 2), float(estimate.error)
        (1.99, 0.0)
    """

    value: Float[Tensor, " n"]
    error: Float[Tensor, " n"]


class ScoreField(Field):
    """The metric G = ∂m/∂y = I + σ²∂s of a denoiser m, from products with its Jacobian.

    For the exact posterior mean this is Cov[X | Y=y]/σ² [THEORY §1]. The Jacobian of a learned denoiser is
    neither symmetric nor positive: ½(J + Jᵀ) is taken, and negative eigenvalues are clipped to 0.

    Without a rank the full Jacobian is computed, in D products per point. With rank r, the leading
    eigenpairs are found by a randomized range finder: q = r + oversampling probes, the same for all points,
    are multiplied by J, orthonormalized, multiplied again (power_iterations times), and once more for
    the small matrix QᵀJQ that is decomposed: (2 + power_iterations)·q products and q·D numbers per
    point, never D². It is exact when G has rank q or less. Discarded eigenvalues blur the result; a noisy learned
    Jacobian needs the power iteration and the oversampling [THEORY §5].

    G is differentiable once in the points; exactly where the eigenvalues that were clipped or discarded vanish.

    Args:
        denoiser: ``(points, bandwidth) ↦ E[X | Y=y]``, a differentiable function of (n, dim) points and (n,)
            bandwidths that treats its points one by one; or a module, which is copied; or a field, whose
            denoiser is taken.
        dim: The ambient dimension D; None asks the field, or the shape of the samples.
        sample_shape: What the denoiser sees instead of flat points, such as images (channels, height, width). A
            denoiser with a ``sample_shape`` of its own, as `carre.DiffusionDenoiser`, is shown that.
        rank: Eigenpairs to keep; None computes the full Jacobian and keeps all.
        oversampling: Probes beyond the rank; None takes as many again as the rank.
        power_iterations: Products that sharpen the range before it is used.
        seed: Seed of the probes.
        mode: "forward" takes products Jv in forward mode; "reverse" takes Jᵀv, which is the same for the exact
            posterior mean, whose Jacobian is symmetric; "auto" takes the first where the denoiser supports it and G
            is not itself differentiated in forward mode, and otherwise the second.
        chunk: Products computed at once; fewer need less memory. None takes about 2²² coordinates.

    Example:
        >>> from carre.manifolds import Sphere
        >>> from carre import ExactField
        >>> field = ScoreField(ExactField(Sphere(2)))
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> field.metric(pole, 0.1).eigenvalues().round(decimals=3)
        tensor([[0.9900, 0.9900, 0.0100]], dtype=torch.float64)
    """

    def __init__(
        self,
        denoiser: object,
        dim: int | None = None,
        *,
        sample_shape: tuple[int, ...] | None = None,
        rank: int | None = None,
        oversampling: int | None = None,
        power_iterations: int = 1,
        seed: int = 0,
        mode: str = "auto",
        chunk: int | None = None,
    ) -> None:
        self._denoiser = Denoiser(denoiser, dim, sample_shape)
        self.dim = self._denoiser.dim
        if rank is not None and not 1 <= rank <= self.dim:
            raise ArgumentError("rank", f"lie between 1 and dim, {self.dim}, or be None for all", got=rank)
        for name, value in (("oversampling", oversampling), ("power_iterations", power_iterations)):
            if value is not None and value < 0:
                raise ArgumentError(name, "be at least 0", got=value)
        if mode not in _MODES:
            raise ArgumentError("mode", f"be one of {', '.join(_MODES)}", got=repr(mode))
        if chunk is not None and chunk < 1:
            raise ArgumentError("chunk", "be at least 1", got=chunk)
        self.rank, self.power_iterations, self.seed, self.mode = rank, power_iterations, seed, mode
        self.oversampling = (rank or 0) if oversampling is None else oversampling
        self.chunk = min(_LARGEST_CHUNK, max(1, _CHUNK_NUMBERS // self.dim)) if chunk is None else chunk

    def _metric(self, points: Float[Tensor, "n dim"], sigma: Float[Tensor, " n"]) -> LowRankMetric:
        """Compute G, symmetric and positive, in factor form: the rows √λ uᵀ of its leading eigenpairs."""
        if self.rank is None:
            self._refuse_full("rank")
        self._prepare(points, sigma)
        n_probes = self.dim if self.rank is None else min(self.dim, self.rank + self.oversampling)
        factors = []
        for y, s in self._blocks(points, sigma, n_probes):
            # As many probes as dimensions span everything: the axes then are the exact choice.
            basis = _axes(y) if n_probes == self.dim else self._range(y.detach(), s, n_probes)
            image = self._products(y, s, basis)
            factors.append(leading_factor(basis, image, self.rank or self.dim))
        return LowRankMetric(torch.cat(factors))

    def apply_jacobian(self, points: Tensor, bandwidth: Bandwidth, vectors: Tensor) -> Float[Tensor, "n q dim"]:
        """Compute Jv for several vectors at each point, (n, q, dim): neither made symmetric nor positive.

        In reverse mode Jᵀv. All axes as vectors give the Jacobian whole, of any size that memory holds.

        Example:
            >>> field = ScoreField(lambda points, bandwidth: points * torch.tensor([1.0, 0.5]), 2)
            >>> field.apply_jacobian(torch.zeros(1, 2), 0.1, torch.eye(2)[None])
            tensor([[[1.0000, 0.0000],
                     [0.0000, 0.5000]]])
        """
        points, sigma = self._checked(points, bandwidth)
        got = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
        if not isinstance(got, tuple) or len(got) != 3 or got[::2] != (len(points), self.dim):
            must = f"have shape ({len(points)}, q, {self.dim}), q for each point"
            raise ArgumentError("vectors", must, got=got, remedy="Give a tensor")
        if not bool(torch.isfinite(vectors).all()):
            raise ArgumentError("vectors", "be finite; some are NaN or infinite")
        self._prepare(points, sigma)
        return self._products(points, sigma, vectors.mT).mT

    def _denoise(self, points: Float[Tensor, "n dim"], sigma: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
        return torch.cat([self._denoiser(y, s) for y, s in self._blocks(points, sigma, 1)])

    def score(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute s = (m − y)/σ² = ∇ log p_σ(y), Tweedie's formula.

        Example:
            >>> field = ScoreField(lambda points, bandwidth: 0 * points, 1)  # all data at 0
            >>> field.score(torch.tensor([[3.0]]), 0.5)  # −y/σ²
            tensor([[-12.]])
        """
        points, sigma = self._checked(points, bandwidth)
        return (self._denoise(points, sigma) - points) / sigma.square().unsqueeze(-1)

    def trace(
        self,
        points: Tensor,
        bandwidth: Bandwidth,
        *,
        n_probes: int | None = None,
        generator: torch.Generator | None = None,
    ) -> TraceEstimate:
        """Compute tr G = tr ∂m/∂y without an eigendecomposition, unclipped.

        Args:
            points: Where.
            bandwidth: σ, one for all points or one per point.
            n_probes: Probes of Hutchinson's estimator, independent for every point; each has variance
                2‖G − diag G‖²_F [THEORY §5]. None computes the trace exactly, in D products.
            generator: Source of the probes.

        Example:
            >>> field = ScoreField(lambda points, bandwidth: points * torch.tensor([1.0, 1.0, 0.0]), 3)
            >>> field.trace(torch.ones(1, 3), 0.1).value  # a plane
            tensor([2.])
        """
        points, sigma = self._probed(points, bandwidth, n_probes)
        if n_probes is None:
            blocks = self._blocks(points, sigma, self.dim)
            exact = torch.cat([self._products(y, s, _axes(y)).diagonal(dim1=-2, dim2=-1).sum(-1) for y, s in blocks])
            return TraceEstimate(exact, torch.zeros_like(exact))
        forms = []
        for _ in range(n_probes):
            signs = 2 * torch.randint(2, points.shape, generator=generator, device=points.device) - 1
            forms.append((signs * self._pairwise(points, sigma, signs.to(points.dtype))).sum(-1))
        stacked = torch.stack(forms)
        return TraceEstimate(stacked.mean(0), stacked.std(0) / n_probes**0.5)

    def flipd(
        self,
        points: Tensor,
        bandwidth: Bandwidth,
        *,
        n_probes: int | None = None,
        generator: torch.Generator | None = None,
    ) -> TraceEstimate:
        """Compute tr ∂m + |m − y|²/σ², the dimension estimate FLIPD: the trace of the uncentered 2Γ [THEORY §1].

        It equals D + d log p_σ/d log σ. Meant for clean points: at noisy ones it counts normal directions as well.

        Args:
            points: Where.
            bandwidth: σ, one for all points or one per point.
            n_probes: As in `trace`.
            generator: Source of the probes.

        Example:
            >>> field = ScoreField(lambda points, bandwidth: points * torch.tensor([1.0, 1.0, 0.0]), 3)
            >>> field.flipd(torch.tensor([[5.0, 5.0, 0.0], [5.0, 5.0, 0.1]]), 0.1).value  # on the plane, and σ off it
            tensor([2., 3.])
        """
        points, sigma = self._checked(points, bandwidth)
        trace = self.trace(points, sigma, n_probes=n_probes, generator=generator)
        shift = (self._denoise(points, sigma) - points) / sigma.unsqueeze(-1)
        return TraceEstimate(trace.value + shift.square().sum(-1), trace.error)

    def count(
        self,
        points: Tensor,
        bandwidth: Bandwidth,
        *,
        threshold: float = 0.5,
        n_probes: int | None = None,
        n_steps: int = 6,
        generator: torch.Generator | None = None,
    ) -> TraceEstimate:
        """Count the singular values of ∂m/∂y above a threshold: a dimension of any size, without a factor of its rank.

        They are the eigenvalues of G where m is exact. Of a learned denoiser, whose Jacobian maps into the data and
        reacts to directions across them, they count its range, the half that is learned well [THEORY §10]. With probes
        the trace of the filter 1(JJᵀ > threshold²) is estimated by stochastic Lanczos quadrature: exact after as many
        steps as there are different singular values, and close after a few where they are near 0 and 1.

        Args:
            points: Where.
            bandwidth: σ, one for all points or one per point.
            threshold: Above it a direction counts.
            n_probes: Random vectors for every point, each of variance about 2d(1 − d/D); None takes all D products.
            n_steps: Lanczos steps for every probe, of two products each.
            generator: Source of the probes.

        Example:
            >>> field = ScoreField(lambda points, bandwidth: points * torch.tensor([1.0, 0.9, 0.2]), 3)
            >>> field.count(torch.ones(1, 3), 0.1).value
            tensor([2.])
        """
        as_count(n_steps, name="n_steps")
        if not (isinstance(threshold, Real) and threshold > 0):
            raise ArgumentError("threshold", "be a positive number", got=repr(threshold))
        points, sigma = self._probed(points, bandwidth, n_probes)
        if n_probes is None:
            blocks = self._blocks(points, sigma, self.dim)
            singular = torch.cat([torch.linalg.svdvals(self._products(y, s, _axes(y))) for y, s in blocks])
            exact = (singular > float(threshold)).sum(-1).to(points)
            return TraceEstimate(exact, torch.zeros_like(exact))
        found = []
        for _ in range(n_probes):
            probes = torch.randn(points.shape, generator=generator, device=points.device, dtype=points.dtype)
            values, weights = self._lanczos(points, sigma, probes, n_steps)
            found.append(self.dim * (weights * (values > threshold**2)).sum(-1))
        stacked = torch.stack(found)
        return TraceEstimate(stacked.mean(0), stacked.std(0) / n_probes**0.5)

    def _probed(self, points: Tensor, bandwidth: Bandwidth, n_probes: int | None) -> tuple[Tensor, Tensor]:
        """Check what is asked with some probes, or with all axes."""
        points, sigma = self._checked(points, bandwidth)
        if n_probes is None:
            self._refuse_full("n_probes")
        elif not is_integer(n_probes) or n_probes < 2:
            raise ArgumentError("n_probes", "be at least 2 for a standard error, or None", got=n_probes)
        self._prepare(points, sigma)
        return points, sigma

    @torch.no_grad()
    def _lanczos(
        self, points: Tensor, sigma: Tensor, probes: Float[Tensor, "n dim"], n_steps: int
    ) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
        """Compute nodes and weights of Gauss quadrature for JJᵀ as each probe sees it, by k ≤ n_steps Lanczos steps."""
        basis, diagonal, beside = [torch.nn.functional.normalize(probes, dim=-1)], list[Tensor](), list[Tensor]()
        smallest = torch.finfo(points.dtype).eps ** 0.5
        for _ in range(min(n_steps, self.dim)):
            image = self._product(points, sigma, self._reverse_product(points, sigma, basis[-1]))
            diagonal.append((image * basis[-1]).sum(-1))
            known = torch.stack(basis, 1)
            for _ in range(2):
                image = image - torch.einsum("nkd,nk->nd", known, torch.einsum("nkd,nd->nk", known, image))
            length = image.norm(dim=-1)
            # Where nothing is left the basis ends: further steps see zeros, and have no weight.
            ends = length <= smallest
            beside.append(torch.where(ends, 0.0, length))
            basis.append(torch.where(ends[:, None], 0.0, image / length.clamp_min(smallest)[:, None]))
        small = torch.diag_embed(torch.stack(diagonal, -1))
        off = torch.diag_embed(torch.stack(beside[:-1], -1), offset=1) if len(beside) > 1 else torch.zeros_like(small)
        values, vectors = torch.linalg.eigh(small + off + off.mT)
        return values, vectors[:, 0].square()

    @torch.no_grad()
    def _prepare(self, points: Tensor, sigma: Tensor) -> None:
        """Call the denoiser once: what it copies or builds when first called cannot be built inside a derivative."""
        self._denoiser(points[:1].detach(), sigma[:1].detach())

    def _refuse_full(self, option: str) -> None:
        if self.dim > _LARGEST_FULL:
            must = f"be given beyond {_LARGEST_FULL} dimensions, where a full Jacobian is too large"
            raise ArgumentError(option, must, got=f"None for {self.dim}", remedy=f"Try {option}=64")

    def _blocks(self, points: Tensor, sigma: Tensor, n_probes: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Cut the points so that all products of a block fit in a chunk, or a single point is left."""
        size = max(1, self.chunk // n_probes)
        return zip(torch.split(points, size), torch.split(sigma, size), strict=True)

    @torch.no_grad()
    def _range(self, points: Tensor, sigma: Tensor, n_probes: int) -> Float[Tensor, "n dim q"]:
        """Find an orthonormal basis of the leading directions: of JΩ, sharpened by more products with J."""
        # Ω is drawn on the CPU, so that every device has the same.
        generator = torch.Generator().manual_seed(self.seed)
        probes = torch.randn(self.dim, n_probes, generator=generator, dtype=torch.float64, device="cpu").to(points)
        basis = probes.expand(len(points), -1, -1)
        for _ in range(1 + self.power_iterations):
            basis = torch.linalg.qr(self._products(points, sigma, basis))[0]
        return basis

    def _products(self, points: Tensor, sigma: Tensor, basis: Float[Tensor, "n dim q"]) -> Float[Tensor, "n dim q"]:
        """Multiply the columns of a basis at each point by the Jacobian there."""
        rows = self._pairwise(points, sigma, basis.mT.reshape(-1, self.dim))
        if not bool(torch.isfinite(rows).all()):
            must = "have a finite derivative; it is NaN or infinite at some points"
            remedy = "Check bandwidth against the range that the denoiser was trained on"
            raise ArgumentError("denoiser", must, remedy=remedy)
        return rows.reshape(len(points), -1, self.dim).mT

    def _pairwise(self, points: Tensor, sigma: Tensor, vectors: Float[Tensor, "m dim"]) -> Float[Tensor, "m dim"]:
        """Multiply vectors, for each point the same number in a row, by the Jacobian there, chunk by chunk."""
        owners = torch.arange(len(points), device=points.device).repeat_interleave(len(vectors) // len(points))
        # A single σ stays one, which a network embeds only once.
        is_one = len(sigma) == 1 or is_one_value(sigma)
        parts = zip(torch.split(owners, self.chunk), torch.split(vectors, self.chunk), strict=True)
        # Without points to differentiate in, no graph of the denoiser's own parameters is kept.
        with torch.set_grad_enabled(torch.is_grad_enabled() and points.requires_grad):
            products = [
                self._product(points[owner], sigma[:1].expand(len(owner)) if is_one else sigma[owner], part)
                for owner, part in parts
            ]
            return products[0] if len(products) == 1 else torch.cat(products)

    def _product(self, points: Tensor, sigma: Tensor, vectors: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
        """Compute Jv, or Jᵀv in reverse mode: points are treated one by one, so that one product serves them all."""
        # Forward over forward mode loses derivatives of custom functions (pytorch/pytorch#197867); over reverse not.
        within_forward = forward_ad.unpack_dual(points).tangent is not None  # type: ignore[no-untyped-call]
        if self.mode == "reverse" or (self.mode == "auto" and within_forward):
            return self._reverse_product(points, sigma, vectors)
        try:
            # Strictly: an output that does not depend on the points is an error, not a zero.
            with forward_mode:
                found = torch.func.jvp(lambda y: self._denoiser(y, sigma), (points,), (vectors,), strict=True)
            product: Tensor = found[1]
            return product
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            # What has no forward derivative raises this; an error of another kind comes again.
            if self.mode == "forward":
                raise
            return self._reverse_product(points, sigma, vectors)

    def _reverse_product(self, points: Tensor, sigma: Tensor, vectors: Tensor) -> Tensor:
        """Compute Jᵀv, by a shift of zero that asks for the gradient in place of the points."""
        create_graph = torch.is_grad_enabled() and points.requires_grad
        with with_gradients():
            shift = torch.zeros_like(points, requires_grad=True)
            mean = self._denoiser(points + shift, sigma)
            if not mean.requires_grad:
                must = "be differentiable in its points; its output does not depend on them"
                raise ArgumentError("denoiser", must, remedy="Remove torch.no_grad, detach or NumPy from it")
            return torch.autograd.grad(mean, shift, vectors, create_graph=create_graph)[0]


def _axes(points: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim dim"]:
    """Return the standard basis at every point."""
    return torch.eye(points.shape[1], dtype=points.dtype, device=points.device).expand(len(points), -1, -1)
