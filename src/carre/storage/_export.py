"""A learned field as a program of torch's own, which runs where this library is not installed."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.boundary import ArgumentError, as_bandwidth
from carre.fields import NeuralField, NoDenoiserError
from carre.fields.neural import observed_scale
from carre.files import AnyPath, write_whole
from carre.geometry import Geometry
from carre.metric import AffineFrame
from carre.networks import MetricModel
from carre.storage.folder import as_path
from carre.storage.tensors import learned_field

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_KINDS = ("metric", "denoiser")
_N_EXAMPLES = 3


def export(
    geometry: Geometry,
    path: AnyPath | None = None,
    *,
    kind: str = "metric",
    bandwidth: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> ExportedProgram:
    """Export the field of a geometry as a program of torch's own, which runs where this library is not installed.

    The program maps points, shape (n, D), and σ, shape (n,), to the rows F of G = FᵀF + λI, shape (n, rank, D), or
    to E[X | Y=y], shape (n, D), for any n; of images, points are flat. λ is in its ``state_dict``, as ``ridge``. Where
    columns were scaled, points and means are in their own units, and F in deviations. A
    program is numbers in and numbers out: what a `LowRankMetric` does without forming G has to be done with F by hand.

    Args:
        geometry: The geometry, of a learned field.
        path: A file that ends in ``.pt2`` to save it in; ``torch.export.load`` reads it.
        kind: ``"metric"`` for F, ``"denoiser"`` for the mean.
        bandwidth: A σ for all points, which the program then no longer asks for.
        dtype: Of the points and of everything inside, ``torch.float32`` or ``torch.float64``.

    Example:
        >>> import carre
        >>> square = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
        >>> geometry = carre.fit(square, max_steps=5, width=16, rank=3, bandwidth=0.1, ridge=0.1, random_state=0)
        >>> program = carre.export(geometry)
        >>> program.module()(torch.zeros(4, 2), torch.full((4,), 0.2)).shape
        torch.Size([4, 3, 2])
        >>> float(program.state_dict["ridge"])
        0.1
    """
    if kind not in _KINDS:
        raise ArgumentError("kind", f"be one of {', '.join(_KINDS)}", got=repr(kind))
    if dtype not in (torch.float32, torch.float64):
        raise ArgumentError("dtype", "be torch.float32 or torch.float64", got=dtype)
    target, field = None if path is None else _checked(path), learned_field(geometry)
    points = field.frame.center.to("cpu", dtype).expand(_N_EXAMPLES, -1).clone()
    sigma = points.new_full((_N_EXAMPLES,), field.frame.scale)
    fixed = None if bandwidth is None else as_bandwidth(bandwidth, points[:1])
    n = torch.export.Dim("n", min=1)
    examples = (points, sigma) if fixed is None else (points,)
    program = torch.export.export(
        _Program(field, kind, fixed, dtype, geometry.units),
        examples,
        dynamic_shapes=({0: n},) * len(examples),
        strict=False,
    )
    for node in program.graph.nodes:
        # Where the code lies on this machine is nobody's business.
        node.meta.pop("stack_trace", None)
    if target is not None:
        content = io.BytesIO()
        torch.export.save(program, content)
        write_whole(target, content.getvalue())
    return program


class _Program(nn.Module):
    """The part of a field that is exported: into the frame, through one network, and out."""

    center: Tensor
    basis: Tensor | None
    fixed: Tensor | None
    units: Tensor | None

    def __init__(
        self, field: NeuralField, kind: str, fixed: Tensor | None, dtype: torch.dtype, units: Tensor | None
    ) -> None:
        super().__init__()
        model, self.scale, self.kind = copy.deepcopy(field.model).to("cpu", dtype), field.frame.scale, kind
        self.noise = field.noise / field.frame.scale
        self.is_ours = isinstance(model, MetricModel)
        part = (model.factor if kind == "metric" else model.mean) if isinstance(model, MetricModel) else model
        if part is None:
            raise NoDenoiserError("kind must be 'metric': this field was trained uncentered and has no denoiser")
        self.network: nn.Module = part
        frame = field.frame.to("cpu", dtype)
        units = None if units is None else units.to("cpu", dtype)
        # The ridge is for whoever uses the program. Empty buffers come last: torch miscounts what is behind them.
        ridge = torch.tensor(field.ridge, dtype=torch.float64)
        buffers = {"center": frame.center, "ridge": ridge, "basis": frame.basis, "fixed": fixed, "units": units}
        for name, value in sorted(buffers.items(), key=lambda one: one[1] is None):
            self.register_buffer(name, None if value is None else value.contiguous())

    def forward(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"] | None = None) -> Tensor:
        """Compute the rows of the factor, or the mean."""
        sigma = bandwidth
        if sigma is None and self.fixed is not None:
            # One number for each point, in its own memory: what is expanded takes another way for a single point.
            sigma = self.fixed.expand(points.shape[0]).clone(memory_format=torch.contiguous_format)
        assert sigma is not None
        frame = AffineFrame(self.center, self.scale, self.basis)
        inside = frame.encode(points if self.units is None else points / self.units)
        sigma, stretch = observed_scale(sigma / self.scale, self.noise)
        answer = self.network(inside, sigma)
        if not self.is_ours:
            answer = answer[1 if self.kind == "metric" else 0]
        if answer is None:
            raise NoDenoiserError("kind must be 'metric': this field was trained uncentered and has no denoiser")
        if self.kind == "metric":
            return frame.lift(answer)
        # Of the clean data, where there is noise; as the field does, but for scales within the noise.
        mean = frame.decode(answer if self.noise == 0.0 else inside + stretch[:, None] * (answer - inside))
        return mean if self.units is None else mean * self.units


def _checked(path: AnyPath) -> Path:
    target, given = as_path(path, "path"), repr(str(path))
    if target.suffix != ".pt2" or target.is_dir():
        raise ArgumentError("path", "be a file that ends in .pt2, as programs of torch do", got=given)
    if not target.parent.is_dir():
        raise ArgumentError("path", "lie in a folder that exists", got=given, remedy="Make its folder")
    return target
