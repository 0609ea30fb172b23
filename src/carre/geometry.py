"""Geometry: what a fit returns and everything else takes."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre import toolkit
from carre.arguments import as_device, check_arguments
from carre.backend import Progress, working_memory
from carre.boundary import ArgumentError, Points, as_bandwidth, as_dense, as_images, as_points, is_integer, listed
from carre.data import Normalization, Table
from carre.data.frames import FrameNames, as_row, columns_of, is_frame, read_frame, refuse_anndata
from carre.data.image_dataset import check_normalized, images_like, is_dataset
from carre.fields import Bandwidth, DataField, MetricField
from carre.local import Local
from carre.metric import Metric
from carre.sketch import card
from carre.toolkit import DimensionEstimate, KernelChoice, LocalScales, Path, RankAdvice, SampleGraph, ScaleProfile
from carre.toolkit.eigenfunctions import coordinate_functions
from carre.toolkit.noise import NoiseEstimate
from carre.toolkit.question import telling
from carre.training import History, linear_phase

# Parts of the same size whatever is free: the noise of a score is drawn part by part, and should not change.
_SCORED_SCALES, _SCORED_BYTES, _LARGEST_SCORED, _COPIES = 6, 2**27, 16_384, 4
# What is given beside points, and is not points: nothing is known of its values.
_VECTORS = ("vectors", "velocities", "left", "right")
_RANGE_SLACK = 0.01


@check_arguments
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Geometry(DataField):
    """The Riemannian geometry of a dataset: a field of metrics with its own scale, and what belongs to it.

    `carre.fit` returns one, `carre.load` reads one, and one can be made around any field. The tools of `carre.toolkit`
    are its methods: each is the function of the same name, with this geometry as its field. Points are given as people
    have them: arrays, tensors, tables, data frames, images; answers come back as the same kind. After a fit on images,
    points are images (n, C, H, W) or flat; points and vectors come back in the shape that was given, bases, factors and
    the nodes of paths stay flat. ``bandwidth=None`` takes the default scale everywhere.

    Attributes:
        field: The field itself, of flat tensors.
        bandwidth: The default scale σ, a standard deviation in the units of the data.
        bandwidth_range: The scales that were trained on.
        landmarks: Some of the samples, flat, between which paths find their way.
        rank: Rows of the factor of G.
        supported_from: The σ below which samples have hardly any neighbors, so that a geometry at smaller scales is
            the network's extrapolation.
        noise_estimate: What is known of the noise of the samples; its value is `noise`.
        is_centered: Whether G is the centered metric, with a denoiser beside it.
        history: Held-out losses, and the gain over a linear denoiser, during training.
        scale_profile: What the default scale was chosen from; None when it was given.
        sample_shape: (C, H, W) of images; None for tables.
        normalization: How raw pixels became the values that were trained on; None for anything else.
        feature_names: Names of the columns, where there were any.
        units: What each column was divided by (``scale`` of `carre.fit`); None where they were taken as they are. σ,
            lengths, the metric and its eigenvalues are in these units; points and vectors are in those of the columns.
        n_samples: How many samples it was learned from; None where that is not known.
        concerns: What was odd about columns of the samples, in sentences (`carre.data.column_concerns`).
        parameters: What the fit was told.
        device: Where the field computes.
        verbose: Whether long work draws a progress bar (in a notebook or on a terminal).

    Example:
        >>> import carre, numpy as np
        >>> angle = np.radians(np.arange(360))
        >>> X = np.stack([np.cos(angle), np.sin(angle)], axis=1)  # a circle
        >>> geometry = carre.fit(X, bandwidth_range=(0.05, 0.5), max_steps=300, width=32, random_state=0)
        >>> geometry.dimension(X[::90])
        array([1, 1, 1, 1])
        >>> local = geometry.at(X[:1])  # one forward pass
        >>> local.eigenvalues.round(1), np.abs(local.tangent_basis(1)).round(1)[0].T  # at (1, 0) the circle goes up
        (array([[1., 0.]]), array([[0., 1.]]))
        >>> np.abs(geometry.denoise(1.1 * X[:1], 0.1)).round(1), geometry.metric(X[:2])
        (array([[1., 0.]]), LowRankMetric(batch=(2,), rank=4, dim=2, ridge=0))
        >>> geometry.estimate_dimension(X).value, geometry.recommend_rank(X).rank, geometry.score(X) > 0
        (1, 4, True)
        >>> geometry.local_bandwidths(X[:5]).bandwidth.shape, geometry.to("cpu").device
        ((5,), device(type='cpu'))
        >>> geometry.coordinates(X[:5]).shape
        (5, 2)
        >>> path = geometry.path(X[0], X[115])  # 2 radians apart, 1.7 across the circle
        >>> round(float(path.length()), 1), path.connected.tolist()
        (2.0, [True])
    """

    field: MetricField
    bandwidth: float
    bandwidth_range: tuple[float, float]
    landmarks: Float[Tensor, "n dim"]
    rank: int
    supported_from: float = 0.0
    noise_estimate: NoiseEstimate = dataclasses.field(default_factory=NoiseEstimate)
    is_centered: bool = True
    history: History = dataclasses.field(default_factory=History)
    scale_profile: ScaleProfile | None = None
    sample_shape: tuple[int, int, int] | None = None
    normalization: Normalization | None = None
    feature_names: tuple[str, ...] | None = None
    units: Float[Tensor, " dim"] | None = None
    n_samples: int | None = None
    concerns: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    verbose: bool = True
    # The graph of the latest scale and the kernel of the landmarks: made when first needed.
    _kept: dict[str, Any] = dataclasses.field(default_factory=dict, init=False)

    # The toolkit, with this geometry as the field that is asked.
    dimension = toolkit.local_dimension
    eigenvalues = toolkit.eigenvalues
    eigenfunctions = toolkit.eigenfunctions
    tangent_basis = toolkit.tangent_basis
    tangent_angles = toolkit.tangent_angles
    project = toolkit.project
    check = toolkit.check
    distance_from_data = toolkit.distance_from_data
    gradient = toolkit.gradient
    gradient_of_values = toolkit.gradient_of_values
    carre_du_champ = toolkit.carre_du_champ
    divergence = toolkit.divergence
    laplacian = toolkit.laplacian
    hessian = toolkit.hessian
    second_fundamental_form = toolkit.second_fundamental_form
    curvature = toolkit.curvature
    sectional_curvature = toolkit.sectional_curvature
    minimize = toolkit.minimize
    gradient_flow = toolkit.gradient_flow
    path = toolkit.path
    distances = toolkit.distances
    exponential = toolkit.exponential
    logarithm = toolkit.logarithm
    transport = toolkit.transport

    @property
    def dim(self) -> int:
        """The ambient dimension D: columns of a table, or all values of an image."""
        return self.field.dim

    @property
    def noise(self) -> float:
        """The deviation τ of the samples' noise, which all scales include; 0 where none is known."""
        return self.noise_estimate.value

    @property
    def hull_dim(self) -> int:
        """The dimension of the linear hull of the samples, in which the network works; D where that is unknown."""
        frame = getattr(self.field, "frame", None)
        return self.dim if frame is None else int(frame.hull_dim)

    def __repr__(self) -> str:
        return f"Geometry({', '.join(f'{name} {what}' for name, what in self._known()[0].items() if what)})"

    def _repr_html_(self) -> str:
        (facts, doubts), profile = self._known(), self.scale_profile
        why, drawn = ("", "") if profile is None else (profile.reason, profile.picture())
        more = {"noise": str(self.noise_estimate), "σ, why": why, "outlook": self.history.outlook}
        facts = {"columns": listed(self.feature_names or ())} | facts | more
        return card("Geometry", facts, drawn, doubts=(*doubts, *self.concerns))

    def _known(self) -> tuple[dict[str, str], list[str]]:
        (low, high), profile, doubts = self.bandwidth_range, self.scale_profile, [linear_phase(self.history)]
        if profile is not None:
            doubts.append(toolkit.rank_cuts_off(profile, self.hull_dim, self.supported_from))
        kind = f"images {self.sample_shape}" if self.sample_shape else f"{self.dim:,} columns"
        facts = {
            "samples": kind if self.n_samples is None else f"{self.n_samples:,} with {kind}",
            "σ": f"{self.bandwidth:.3g} of {low:.3g} to {high:.3g}",
            "dimension": "" if profile is None else "not resolved" if any(doubts) else profile.dimension_in_words,
            "noise": f"{self.noise:.3g}" if self.noise else "",
            "rank": str(self.rank),
            "training": self.history.stop_reason,
        }
        return facts, [doubt for doubt in doubts if doubt]

    def at(self, points: Any, bandwidth: Bandwidth | None = None) -> Local:
        """Ask at points once: the metric, and all that is read off it, from one forward pass.

        Args:
            points: Points, shape (n, D), or images, shape (n, C, H, W).
            bandwidth: σ, one number or one per point; None takes the default scale.
        """
        given = self.accept(points)
        given.check_order(bandwidth, "bandwidth")
        return Local(self.field, given, self.scale_at(bandwidth, given.tensor), self.device)

    def metric(self, points: Any, bandwidth: Bandwidth | None = None) -> Metric:
        """Return the metric G at each point, as a value of tensors: n·rank·D numbers, with D flat.

        Args:
            points: Points, shape (n, D) or (n, C, H, W).
            bandwidth: σ, one number or one per point; None takes the default scale.
        """
        return self.at(points, bandwidth).metric

    def denoise(self, points: Any, bandwidth: Bandwidth | None = None) -> Any:
        """Return E[X | Y=y] at each point: the pull back onto the data, in the shape of the points.

        Args:
            points: Points, shape (n, D) or (n, C, H, W).
            bandwidth: σ, one number or one per point; None takes the default scale.
        """
        return self.at(points, bandwidth).denoised

    def estimate_dimension(
        self, points: Any, bandwidth: Bandwidth | None = None, *, progress: Progress | None = None
    ) -> DimensionEstimate:
        """Estimate the dimension at each point and on the whole, with its uncertainty.

        Where training ended before the network saw what a kernel sees (`LinearPhaseWarning`), and no bandwidth is
        given, the kernel answers instead, and ``source`` says so. Where the answer is the whole linear hull, and
        samples are few for it, the data may be curved or hollow: ``doubt`` says so.

        Args:
            points: Samples, or other points on the data.
            bandwidth: σ, one number or one per point; None takes the default scale.
            progress: Told how far the work is.
        """
        if bandwidth is not None or linear_phase(self.history) is None:
            found = toolkit.estimate_dimension(self, points, bandwidth, progress=progress)
            return dataclasses.replace(found, doubt=self._doubt(found.value))
        given = self.accept(points)
        placed = given.tensor.detach().to(self.device)
        choice = self._kernel_of(placed)
        found = toolkit.estimate_dimension(choice.field, placed, choice.bandwidth, progress=progress)
        source = "by a kernel on the landmarks, since the network has not resolved the data; train longer"
        named: dict[str, Any] = {each: given.named(getattr(found, each)) for each in ("local", "low", "high")}
        return dataclasses.replace(found, source=source, doubt=self._doubt(found.value), **named)

    def _doubt(self, dimension: int) -> str:
        """Say that curved or hollow data could look so: where a box in their hull has more corners than samples.

        Then neighbors do not tell the surface of a box from its inside, and through so few points a quadric goes.
        """
        n = self.n_samples
        if n is None or dimension < self.hull_dim or n >= 2**self.hull_dim:
            return ""
        return (
            f"all of the linear hull, in which {n:,} samples cannot tell a curved or hollow shape from a flat, full one"
        )

    def local_bandwidths(self, points: Any, *, progress: Progress | None = None) -> LocalScales:
        """Choose a scale for each point; needs a fit that chose its own (``bandwidth=None``).

        Args:
            points: Points on the data.
            progress: Told how far the work is.
        """
        if self.scale_profile is None:
            must = "be None at the fit to choose local ones; it was given, so nothing was compared"
            raise ArgumentError("bandwidth", must)
        return toolkit.choose_local_bandwidths(self, points, self.scale_profile, progress=progress)

    def recommend_rank(self, points: Any) -> RankAdvice:
        """Recommend a rank for the next fit, from the local dimensions at samples."""
        counts = self.at(points).dimension
        counts = counts.cpu().numpy() if isinstance(counts, Tensor) else np.asarray(counts)
        return toolkit.recommend_rank(counts, self.rank, self.hull_dim)

    def coordinates(self, points: Any, n_components: int = 2) -> Any:
        """Compute harmonic coordinates of points, the same map for all (`carre.toolkit.Eigenfunctions.coordinates`).

        Args:
            points: Points, also new ones.
            n_components: How many. The eigenfunctions, on the landmarks, are found at the first call and kept.
        """
        key = f"coordinates {n_components}"
        if key not in self._kept:
            self._kept[key] = coordinate_functions(self, self.landmarks, n_components)
        return self._kept[key].coordinates(points, n_components)

    def score(self, points: Any) -> float:
        """Score held-out samples; higher is better, zero is a field that has learned nothing.

        The mean of `carre.toolkit.predictive_score` over trained scales from ``supported_from`` up, in nats per sample;
        the noise in it is the same at every call. Compare fits with the same ``bandwidth_range`` only.
        """
        if not self.is_centered:
            raise ValueError("score needs a denoiser; fit with method='joint' or 'two-stage'")
        samples = self.accept(points).tensor.detach().to(self.device)
        generator = torch.Generator(self.device).manual_seed(0)
        numbers = samples.element_size() * _COPIES * self.rank * self.dim
        size = max(1, min(_LARGEST_SCORED, working_memory(self.device, _SCORED_BYTES) // numbers))
        low, high = self.bandwidth_range
        scales = np.geomspace(max(low, min(self.supported_from, high)), high, _SCORED_SCALES).tolist()
        with torch.no_grad():
            scores = [
                float(toolkit.predictive_score(self.field, part, sigma, generator=generator).sum())
                for sigma in scales
                for part in torch.split(samples, size)
            ]
        return sum(scores) / (_SCORED_SCALES * len(samples))

    def to(self, device: str | torch.device) -> Geometry:
        """Return the same geometry, computing on another device."""
        return dataclasses.replace(self, device=as_device(device))

    def tangent_images(self, points: Any, n_directions: int, bandwidth: Bandwidth | None = None) -> Any:
        """Return the leading tangent directions as images, shape (n, n_directions, C, H, W), leading first.

        They are unit vectors, each up to its sign; what `eigenvalues` returns are theirs, in the same order.

        Args:
            points: Images, shape (n, C, H, W), or flat points.
            n_directions: How many directions, at most the rank.
            bandwidth: σ, one number or one per image; None takes the default scale.

        Example:
            >>> import carre
            >>> geometry = carre.load("mnist")
            >>> geometry.tangent_images(geometry.landmarks[:1], 3).shape
            torch.Size([1, 3, 1, 28, 28])
        """
        shape = self._image_shape("tangent_images")
        most = min(self.rank, self.dim)
        if not is_integer(n_directions) or not 1 <= n_directions <= most:
            must, remedy = f"be an integer between 1 and {most}, the rank", "Fit with a larger rank to ask for more"
            raise ArgumentError("n_directions", must, got=repr(n_directions), remedy=remedy)
        points = read_frame(points, self.feature_names, name="points")[0] if is_frame(points) else points
        basis = self.tangent_basis(points, n_directions, bandwidth)
        return basis.swapaxes(1, 2).reshape(len(basis), n_directions, *shape)

    def to_images(self, points: Any) -> Any:
        """See flat points or vectors as images: (..., D) becomes (..., C, H, W). Images stay as they are.

        Args:
            points: An array or a tensor with any axes before the last; or a `Path`, whose nodes are returned as a
                tensor of shape (paths, nodes, C, H, W).

        Example:
            >>> import carre
            >>> geometry = carre.load("mnist")
            >>> geometry.to_images(geometry.landmarks[:5]).shape
            torch.Size([5, 1, 28, 28])
        """
        shape = self._image_shape("to_images")
        values = points.nodes if isinstance(points, Path) else points
        values = as_dense(values, "points")
        if tuple(values.shape[-3:]) == shape:
            return values
        if values.ndim == 0 or values.shape[-1] != self.dim:
            must = f"end with the axes {shape} of an image, or {self.dim} flat ones"
            raise ArgumentError("points", must, got=f"shape {tuple(values.shape)}")
        return values.reshape(*values.shape[:-1], *shape)

    def to_pixels(self, points: Any) -> Any:
        """Return pictures with values in [0, 1], by the normalization that the dataset of the fit brought along.

        What lies outside, as on the way between images, is clipped.

        Args:
            points: What `to_images` takes.

        Example:
            >>> import carre
            >>> geometry = carre.load("mnist")
            >>> pixels = geometry.to_pixels(geometry.landmarks[:5])  # black is 0, white is 1
            >>> float(pixels.min()), float(pixels.max())
            (0.0, 1.0)
        """
        images = self.to_images(points)
        if self.normalization is None:
            raise ValueError(
                "to_pixels needs to know how the images were normalized, and the fit was not told. Fit on a "
                "carre.data.ImageDataset, or undo your own normalization on what to_images returns"
            )
        if not (images.is_floating_point() if isinstance(images, Tensor) else images.dtype.kind == "f"):
            raise ArgumentError("points", "be floating, as the samples of the fit were", got=str(images.dtype))
        return self.normalization.decode(images, clip=True)

    def accept(self, points: Any, *, name: str = "points", single: bool = False) -> Points:
        """Check points as people give them: arrays, tensors, tables, data frames, images, datasets of images.

        Args:
            points: The points.
            name: What errors call them.
            single: Whether a vector, or one image, is taken for a batch of one.
        """
        names: FrameNames | None = None
        points = as_row(points) if single else points
        if isinstance(points, Table):
            points = columns_of(points, self.feature_names, name)
        elif is_frame(points):
            points, names = read_frame(points, self.feature_names, name=name)
        elif is_dataset(points):
            points = images_like(points, self.normalization, name)
        elif isinstance(points, str):
            remedy = "Read a file by carre.load_table; take a row of a frame by frame.loc[name]"
            raise ArgumentError(name, "hold numbers", got=repr(points), remedy=remedy)
        elif name not in _VECTORS:
            refuse_anndata(points, name)
            points = as_dense(points, name)
            if self.normalization is not None and self.sample_shape is not None:
                check_normalized(points, self.normalization, self.sample_shape[0], name)
        points = as_dense(points, name)
        shape = tuple(points.shape)
        if single and (len(shape) == 1 or shape == self.sample_shape):
            points, shape = points[None], (1, *shape)
        if self.sample_shape is not None and len(shape) > 2:
            return as_images(points, sample_shape=self.sample_shape, name=name)
        if self.sample_shape is not None and len(shape) < 2:
            must = f"have shape (n, {', '.join(map(str, self.sample_shape))}) or (n, {self.dim})"
            raise ArgumentError(name, must, got=shape, remedy=f"Give a single image as {name}[None]")
        if len(shape) > 2:
            must = f"have shape (n, {self.dim}), like the samples of the fit"
            raise ArgumentError(name, must, got=shape, remedy=f"Flatten with {name}.reshape(len({name}), -1)")
        given = as_points(points, dim=self.dim, name=name, columns=self.feature_names)
        return dataclasses.replace(given, names=names).in_units(self.units)

    @property
    def scaling_in_words(self) -> str:
        """How columns were scaled."""
        ways = {"standardize": "standard deviation", "robust": "interquartile range over 1.349"}
        if self.units is None:
            return "as they are"
        by = ways.get(self.parameters.get("scale", ""), "unit")
        return f"each divided by its {by}; σ and lengths are in these units"

    def of_scaled_columns(self) -> Geometry:
        """Return the same geometry, asked and answering in its own units, those of the scaled columns.

        Example:
            >>> import carre, numpy as np
            >>> X = np.random.default_rng(0).normal(size=(40, 2)) * [1.0, 50.0]
            >>> geometry = carre.fit(X, scale="standardize", max_steps=1, bandwidth=1.0, verbose=False)
            >>> bool((geometry.of_scaled_columns().samples().std(0) - 1).abs().max() < 1e-6)
            True
        """
        return self if self.units is None else dataclasses.replace(self, units=None, landmarks=self.samples().cpu())

    def scale_at(self, bandwidth: Any, points: Float[Tensor, "n dim"]) -> Float[Tensor, " n"]:
        """Return σ at every point: the one given, or the default. Warns of scales that were not trained on."""
        if bandwidth is None:
            return as_bandwidth(self.bandwidth, points)
        sigma = as_bandwidth(bandwidth, points)
        low, high = self.bandwidth_range
        if bool(((sigma < (1 - _RANGE_SLACK) * low) | (sigma > (1 + _RANGE_SLACK) * high)).any()):
            message = f"bandwidth lies outside the range ({low:.3g}, {high:.3g}) that was trained on; the answer is an "
            warnings.warn(message + "extrapolation. Fit with a wider bandwidth_range", UserWarning, stacklevel=4)
        return sigma

    def samples(self) -> Float[Tensor, "n dim"]:
        """Return the landmarks where the field computes, in the units that it is asked in."""
        known = self.landmarks.to(self.device)
        return known if self.units is None else known / self.units.to(known)

    def sample_graph(self, bandwidth: float) -> SampleGraph:
        """Return the graph of the landmarks at a scale; that of the latest scale is kept for the next call."""
        known: tuple[float, SampleGraph] | None = self._kept.get("graph")
        if known is None or known[0] != bandwidth:
            with telling(self, None, "graph of landmarks") as progress:
                graph = toolkit.sample_graph(self.field, self.samples(), bandwidth, progress=progress)
            self._kept["graph"] = known = (bandwidth, graph)
        return known[1]

    def _kernel_of(self, points: Tensor) -> KernelChoice:
        """Choose a kernel on the landmarks, in the precision of points; it is kept for the next call."""
        known: KernelChoice | None = self._kept.get("kernel")
        if known is None or known.field.samples.dtype != points.dtype:
            self._kept["kernel"] = known = toolkit.choose_kernel(self.samples().to(points))
        return known

    def _image_shape(self, asked: str) -> tuple[int, int, int]:
        if self.sample_shape is None:
            raise ValueError(f"{asked} needs a fit on images of shape (n, channels, height, width); this one was not")
        return self.sample_shape

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}
