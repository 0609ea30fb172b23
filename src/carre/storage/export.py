"""A learned field as a program of torch's own, which runs where this library is not installed."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.boundary import as_bandwidth
from carre.fields import NeuralField
from carre.fields.protocol import NoDenoiserError
from carre.metric import AffineFrame, LowRankMetric
from carre.networks import MetricModel
from carre.storage.paths import AnyPath, as_path
from carre.storage.writing import write_file

if TYPE_CHECKING:
    from torch.export import ExportedProgram

KINDS = ("metric", "denoiser")
_N_EXAMPLES = 3


def export_field(
    field: NeuralField,
    path: AnyPath | None = None,
    *,
    kind: str = "metric",
    bandwidth: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> ExportedProgram:
    """Export a field as a program for any number of points, and save it if there is a path.

    The program maps points, shape (n, D), and σ, shape (n,), to the rows F of G = FᵀF + λI, shape (n, rank, D), or
    to E[X | Y=y], shape (n, D); of images, points are flat. λ is in its ``state_dict``, as ``ridge``. A program is
    numbers in and numbers out: what a `LowRankMetric` does without forming G has to be done with F by hand.

    Args:
        field: The field.
        path: A file that ends in ``.pt2``; ``torch.export.load`` reads it.
        kind: ``"metric"`` for F, ``"denoiser"`` for the mean.
        bandwidth: A σ for all points, which the program then no longer asks for.
        dtype: Of the points and of everything inside.

    Example:
        >>> from carre.networks import build_model
        >>> model = build_model(3, 2, width=8, n_blocks=1, spread=1.0)
        >>> field = NeuralField(model, AffineFrame(torch.zeros(3), 1.0), ridge=0.1)
        >>> program = export_field(field)
        >>> program.module()(torch.randn(5, 3), torch.full((5,), 0.2)).shape
        torch.Size([5, 2, 3])
        >>> float(program.state_dict["ridge"])
        0.1
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64; got {dtype}")
    target = None if path is None else _checked(path)
    points = field.frame.center.to("cpu", dtype).expand(_N_EXAMPLES, -1).clone()
    sigma = points.new_full((_N_EXAMPLES,), field.frame.scale)
    fixed = None if bandwidth is None else as_bandwidth(bandwidth, points[:1])
    n = torch.export.Dim("n", min=1)
    examples = (points, sigma) if fixed is None else (points,)
    program = torch.export.export(
        _Program(field, kind, fixed, dtype), examples, dynamic_shapes=({0: n},) * len(examples), strict=False
    )
    for node in program.graph.nodes:
        # Where the code lies on this machine is nobody's business.
        node.meta.pop("stack_trace", None)
    if target is not None:
        content = io.BytesIO()
        torch.export.save(program, content)
        write_file(target, content.getvalue())
    return program


class _Program(nn.Module):
    """The part of a field that is exported: into the frame, through one network, and out."""

    center: Tensor
    basis: Tensor | None
    fixed: Tensor | None

    def __init__(self, field: NeuralField, kind: str, fixed: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        model, self.scale, self.kind = copy.deepcopy(field.model).to("cpu", dtype), field.frame.scale, kind
        self.is_ours = isinstance(model, MetricModel)
        part = (model.factor if kind == "metric" else model.mean) if isinstance(model, MetricModel) else model
        if part is None:
            raise NoDenoiserError("kind must be 'metric': this field was trained uncentered and has no denoiser")
        self.network: nn.Module = part
        frame = field.frame.to("cpu", dtype)
        for name, value in (("center", frame.center), ("basis", frame.basis), ("fixed", fixed)):
            self.register_buffer(name, None if value is None else value.contiguous())
        # For whoever uses the program: it takes no part in it.
        self.register_buffer("ridge", torch.tensor(field.ridge, dtype=torch.float64))

    def forward(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"] | None = None) -> Tensor:
        """Compute the rows of the factor, or the mean."""
        sigma = bandwidth
        if sigma is None and self.fixed is not None:
            # One number for each point, in its own memory: what is expanded takes another way for a single point.
            sigma = self.fixed.expand(points.shape[0]).clone(memory_format=torch.contiguous_format)
        assert sigma is not None
        frame = AffineFrame(self.center, self.scale, self.basis)
        answer = self.network(frame.encode(points), sigma / self.scale)
        if not self.is_ours:
            answer = answer[1 if self.kind == "metric" else 0]
        if answer is None:
            raise NoDenoiserError("kind must be 'metric': this field was trained uncentered and has no denoiser")
        return frame.lift(LowRankMetric(answer)).factor if self.kind == "metric" else frame.decode(answer)


def _checked(path: AnyPath) -> Path:
    target = as_path(path, "path", error=ValueError)
    if target.suffix != ".pt2" or target.is_dir():
        raise ValueError(f"path must be a file that ends in .pt2, as programs of torch do; got {str(path)!r}")
    if not target.parent.is_dir():
        raise ValueError(f"path must lie in a folder that exists; got {str(path)!r}. Make its folder")
    return target
