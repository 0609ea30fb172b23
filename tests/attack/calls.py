"""A good call of every public callable, whose arguments an attack replaces one by one."""

import dataclasses
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

import carre
from carre import fields, manifolds, matching, neighbors, networks, plots, toolkit
from carre.metric import AffineFrame
from tests.samples import TINY, circle


def linear(points):
    return points.sum(1)


def onto_sphere(points, bandwidth):
    return points / points.norm(dim=1, keepdim=True)


def around(parameters):
    return torch.stack([parameters.cos(), parameters.sin()], 1)


@cache
def world() -> SimpleNamespace:
    """Make what the calls share: a sphere, a fitted circle, metrics, paths."""
    rng = torch.Generator().manual_seed(0)
    sphere = manifolds.Sphere(2)
    w = SimpleNamespace(sphere=sphere, field=fields.ExactField(sphere), none=None)
    w.tensor, w.other = sphere.sample(4, generator=rng), sphere.sample(4, generator=rng)
    w.points, w.others, w.one = w.tensor.numpy(), w.other.numpy(), w.tensor[:1].numpy()
    w.cloud = sphere.sample(60, generator=rng)
    w.samples, w.sigma = w.cloud.numpy(), torch.full((4,), 0.1, dtype=torch.float64)
    w.vectors, w.several = torch.randn(4, 3, generator=rng).double(), torch.randn(4, 2, 3, generator=rng).double()
    w.X = circle(60)
    w.geometry = carre.fit(w.X, **{**TINY, "max_steps": 3}, bandwidth_range=(0.1, 1.0), rank=3)
    w.near, w.images = w.X[:4], dataclasses.replace(w.geometry, sample_shape=(1, 1, 3))
    w.pictures, w.local = w.near.reshape(4, 1, 1, 3), w.geometry.at(w.near)
    w.metric = w.field.metric(w.points, 0.1)
    w.low_rank = carre.LowRankMetric(w.several, 0.1)
    w.complement = carre.ComplementMetric(torch.eye(3).double()[:1].expand(4, 1, 3), 1.0, 0.1)
    w.spectrum = w.low_rank.spectrum()
    w.basis = w.metric.tangent_basis(2)
    w.path = toolkit.path(w.field, w.one, w.others[:1], 0.1, method="straight", n_nodes=5)
    w.score, w.stein = fields.ScoreField(onto_sphere, 3), fields.SteinField(onto_sphere, 3)
    w.kernel = fields.KernelField(w.samples, n_neighbors=8)
    w.model = networks.build_model(3, 2, width=8, n_blocks=1, spread=1.0)
    w.trunk = torch.nn.Linear(3, 6)
    w.frame = AffineFrame.of(w.cloud)
    w.profile = w.geometry.scale_profile
    w.index = neighbors.build_index(w.cloud)
    w.circle = manifolds.ClosedCurve(around, n_nodes=64)
    w.torus, w.set = manifolds.TorusOfRevolution(n_nodes=32), manifolds.FiniteSet(w.cloud)
    w.union = manifolds.Union([sphere, manifolds.Sphere(2, 3.0)])
    w.law = matching.LogUniform(0.1, 1.0)
    w.probe = matching.JacobianProbe(w.vectors, w.vectors)
    w.eigen = toolkit.eigenfunctions(w.field, w.samples, 3, 0.1)
    w.eigen_places = w.samples[:, :2]
    w.estimator = carre.MetricMatching(**TINY)
    w.fitted = carre.MetricMatching(**{**TINY, "max_steps": 2, "bandwidth": 0.3}).fit(w.X)
    w.pixels = np.zeros((3, 1, 4, 4), np.uint8)
    w.flat = carre.fit(w.X[:, :2], **{**TINY, "max_steps": 2, "bandwidth": 0.3})
    w.flat_pixels = w.pixels[:, 0]
    w.dataset = carre.ImageDataset(w.pixels, np.arange(3))
    w.normalization = carre.Normalization((0.5,), 0.5)
    w.normalized = dataclasses.replace(w.images, normalization=w.normalization)
    w.figure = plots.plot_spectrum(np.ones((4, 2)))
    plt.close("all")
    return w


def _of(*names: str, **values: Any) -> Callable[[SimpleNamespace], dict[str, Any]]:
    """Take arguments from the world, "argument=its name there", and others as they are."""
    pairs = [(name.partition("=")[0], name.partition("=")[2] or name) for name in names]
    return lambda w: {argument: getattr(w, name) for argument, name in pairs} | values


def _tool(*names: str, **values: Any) -> Callable[[SimpleNamespace], dict[str, Any]]:
    """Take arguments of a tool that asks a field at points."""
    return _of("field", "points", *names, bandwidth=0.1, progress=None, **values)


_CURVES = {"n_nodes": 3, "dimension": 2, "max_sweeps": 2, "tolerance": 1e-3}
_DESCENT = {"bandwidth": 0.1, "function": linear, "spacing": 0.1, "dimension": 2, "ridge": 0.0, "landing": 1.0}
_DESCENT |= {"step": 0.1, "gradient": "differences", "progress": None}
_DIFFUSION = {"bandwidth": 0.1, "dimension": 2, "n_neighbors": 8}
_KERNEL = {"n_neighbors": 8, "centered": True, "adaptive": False, "index": "auto", "rank": 3}
_GRID = {"grid": [0.1, 0.3], "max_dimension": 3, "supported_from": 0.1, "neighbor_dimension": 2.0}
TOOLS = {
    "local_dimension": _tool(threshold=0.5),
    "estimate_dimension": _tool(bandwidth_range=None),
    "eigenvalues": _tool(),
    "eigenfunctions": _of(
        "field", "points=samples", n_functions=3, bandwidth=0.1, dimension=2, weighted=False, progress=None
    ),
    "Eigenfunctions.coordinates": _of("self=eigen", "points", n_components=1),
    "slope_dimension": _tool(),
    "tangent_basis": _tool(dimension=2),
    "tangent_angles": _tool("others", dimension=2),
    "project": _tool("vectors=others", dimension=2),
    "check": _tool("samples"),
    "distance_from_data": _tool(),
    "gradient": _tool(function=linear, dimension=2),
    "carre_du_champ": _tool(left=linear, right=linear),
    "divergence": _tool(vector_field=torch.tanh, dimension=2),
    "laplacian": _tool(function=linear, dimension=2, weighted=False),
    "hessian": _tool(function=linear, dimension=2),
    "gradient_of_values": _tool("samples", values=np.ones(60), n_neighbors=8, dimension=2),
    "second_fundamental_form": _tool(dimension=2),
    "curvature": _tool(dimension=2),
    "sectional_curvature": _tool("left=others", right=np.eye(3)[[0, 1, 2, 0]], dimension=2),
    "exponential": _tool("velocities=others", dimension=2, n_steps=2),
    "logarithm": _tool("others", "samples=none", **_CURVES),
    "distances": _tool("others", "samples=none", **_CURVES),
    "transport": _of("field", "path", vectors=np.ones((1, 3)), bandwidth=0.1, dimension=2, progress=None),
    "path": _of("field", "start=points", "end=others", bandwidth=0.1, method="straight", n_nodes=4, progress=None),
    "minimize": _of("field", "starts=one", **_DESCENT, max_steps=2, tolerance=1e-4, keep_path=False),
    "gradient_flow": _of("field", "starts=one", **_DESCENT, n_steps=2),
    "sample_graph": _of("field", "samples", bandwidth=0.3, n_neighbors=6, progress=None),
    "choose_bandwidth": _of("field", "samples", "generator=none", **_GRID, calibrated=True),
    "choose_kernel": _of("samples", "generator=none", **_KERNEL, bandwidths=[0.3, 0.6]),
    "choose_local_bandwidths": _of("field=geometry", "points=near", "profile", progress=None),
    "estimate_noise": _of("samples", "generator=none"),
    "predictive_score": _of("field", "samples", "generator=none", bandwidth=0.1),
    "calibration_error": _of("field", "samples", "generator=none", bandwidth=0.1),
    "rank_cuts_off": _of("profile", hull_dim=3, supported_from=0.1),
    "recommend_rank": lambda w: {"dimensions": np.array([1, 2, 2]), "rank": 4, "hull_dim": 3},
    "spectral_dimension": _of("metric", method="count", threshold=0.5),
    "tangent_frame": _of("metric", dimension=2),
    "DiffusionCarreDuChamp": _of("field", "samples", **_DIFFUSION, scale=1.0, progress=None),
    "MetricTensor": _of("field", bandwidth=0.1, ridge=0.01),
    "MetricTensor.cometric": lambda w: {"self": toolkit.MetricTensor(w.field, 0.1), "points": w.points},
    "Flow": _of(step=0.1, shortcut=0.1, landing=0.5, max_steps=3, tolerance=0.01),
    "Thread": _of(finest=0.05, slope=0.3, landing=0.3, max_sweeps=3, tolerance=0.01),
    "Geodesic": _of("samples=none", dimension=2, max_sweeps=3, tolerance=1e-3),
    "EnergyGeodesic": _of("samples=none", dimension=2, max_sweeps=3, tolerance=1e-3, ridge=0.1),
    "Path": lambda w: {f.name: getattr(w.path, f.name) for f in dataclasses.fields(w.path)},
    "Path.distance_to": _of("self=path", "samples"),
    "Path.evaluate": _of("self=path", times=[0.0, 0.5]),
    "Path.resample": _of("self=path", n_nodes=3),
    "Path.through": _of("nodes=several"),
    "Path.to": _of("self=path", device=torch.device("cpu")),
}

_AT = ("points=tensor", "bandwidth=sigma")
_SCORE = {"rank": 2, "oversampling": 1, "power_iterations": 1, "seed": 0, "mode": "auto", "chunk": 2}
FIELDS = {
    "ExactField": _of("manifold=sphere"),
    "Field.metric": _of("self=field", "points", bandwidth=0.1),
    "Field.denoise": _of("self=field", "points", bandwidth=0.1),
    "IsotropicField": _of(dim=3, denoiser=onto_sphere),
    "KernelField": _of("samples", **_KERNEL, self_neighbor="keep", memory=2**20),
    "KernelField.effective_neighbors": _of("self=kernel", *_AT),
    "KernelField.index": _of("self=kernel", device=torch.device("cpu")),
    "KernelField.recall": _of("self=kernel", "points=tensor"),
    "KernelField.truncation": _of("self=kernel", *_AT, dimension=2),
    "KernelField.weighted_displacements": _of("self=kernel", *_AT),
    "NeuralField": _of("model", "frame", ridge=0.1, noise=0.0, mixed_precision=False, chunk=4),
    "ScoreField": _of(denoiser=onto_sphere, dim=3, sample_shape=(3,), **_SCORE),
    "ScoreField.apply_jacobian": _of("self=score", *_AT, "vectors=several"),
    "ScoreField.count": _of("self=score", *_AT, "generator=none", threshold=0.5, n_probes=4, n_steps=2),
    "ScoreField.flipd": _of("self=score", *_AT, "generator=none", n_probes=4),
    "ScoreField.score": _of("self=score", *_AT),
    "ScoreField.trace": _of("self=score", *_AT, "generator=none", n_probes=4),
    "SteinField": _of(denoiser=onto_sphere, dim=3, sample_shape=(3,), strength=1.0),
    "SteinField.score": _of("self=stein", *_AT),
    "Local.column_shares": _of("self=local", dimension=1),
    "Local.gamma": _of("self=local", centered=True),
    "Local.gradient": _of("self=local", function=linear, dimension=1),
    "Local.tangent_basis": _of("self=local", dimension=1),
    "Geometry": lambda w: {f.name: getattr(w.geometry, f.name) for f in dataclasses.fields(w.geometry) if f.init},
    "Geometry.at": _of("self=geometry", "points=near", bandwidth=0.3),
    "Geometry.metric": _of("self=geometry", "points=near", bandwidth=0.3),
    "Geometry.denoise": _of("self=geometry", "points=near", bandwidth=0.3),
    "Geometry.estimate_dimension": _of("self=geometry", "points=near", bandwidth=0.3, progress=None),
    "Geometry.local_bandwidths": _of("self=geometry", "points=near", progress=None),
    "Geometry.recommend_rank": _of("self=geometry", "points=near"),
    "Geometry.sample_graph": _of("self=geometry", bandwidth=0.3),
    "Geometry.score": _of("self=geometry", "points=near"),
    "Geometry.coordinates": _of("self=geometry", "points=near", n_components=1),
    "Geometry.to": _of("self=geometry", device="cpu"),
    "Geometry.to_images": _of("self=images", "points=near"),
    "Geometry.to_pixels": _of("self=normalized", "points=pictures"),
    "Geometry.tangent_images": _of("self=images", "points=pictures", n_directions=2, bandwidth=0.3),
    "Index.search": _of("self=index", "queries=tensor", n_neighbors=3),
    "SklearnIndex": _of("samples=cloud", memory=2**20),
    "TorchIndex": _of("samples=cloud", memory=2**20),
    "build_index": _of("samples=cloud", kind="auto", memory=2**20),
    "measure_recall": _of("index", "queries=tensor", n_neighbors=3),
}
