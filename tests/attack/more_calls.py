"""Good calls of the parts: metrics, manifolds, losses, networks; of training, storage, data and pictures."""

import dataclasses
import inspect
import tempfile
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import carre
from carre import matching, networks, training
from tests.attack.calls import FIELDS, TOOLS, _of, around, linear, onto_sphere, world
from tests.samples import TINY


@cache
def folder() -> Path:
    """A folder with a table, arrays of images, a folder of them, and a model."""
    found = Path(tempfile.mkdtemp())
    (found / "table.csv").write_text("a,b\n1,2\n3,4\n5,7\n", encoding="utf-8")
    np.savez(found / "images.npz", images=np.zeros((3, 4, 4), np.uint8))
    (found / "pictures").mkdir()
    for i in range(3):
        plt.imsave(found / "pictures" / f"{i}.png", np.full((4, 4), i / 3), cmap="gray")
    carre.save(world().geometry, found / "model")
    return found


def _at(name: str, argument: str = "path", **values):
    """Take a path in the folder, and other arguments."""
    return lambda w: {argument: folder() / name} | values


_EYE = torch.eye(3).double()
PARTS = {
    "LowRankMetric": _of("factor=several", ridge=0.1),
    "LowRankMetric.apply": _of("self=low_rank", "vectors"),
    "LowRankMetric.solve": _of("self=low_rank", "vectors"),
    "LowRankMetric.inner_product": _of("self=low_rank", "left=vectors", "right=tensor"),
    "LowRankMetric.congruence": _of("self=low_rank", "left=several", "right=several"),
    "LowRankMetric.frobenius_product": _of("self=low_rank", "other=low_rank"),
    "LowRankMetric.tangent_basis": _of("self=low_rank", dimension=1),
    "ComplementMetric": lambda w: {"removed": w.complement.removed, "level": 1.0, "ridge": 0.1},
    "ComplementMetric.apply": _of("self=complement", "vectors"),
    "ComplementMetric.solve": _of("self=complement", "vectors"),
    "ComplementMetric.congruence": _of("self=complement", "left=several", "right=several"),
    "ComplementMetric.frobenius_product": _of("self=complement", "other=low_rank"),
    "ComplementMetric.tangent_basis": _of("self=complement", dimension=2),
    "Spectrum": lambda w: {"values": w.spectrum.values, "vectors": w.spectrum.vectors, "floor": 0.1},
    "Spectrum.basis": _of("self=spectrum", dim=1),
    "Metric.joined": _of("self=low_rank", "others=low_rank"),
    "Metric.sample": _of("self=low_rank", "generator=none", n_draws=2),
    "Metric.scaled": _of("self=low_rank", scale=0.5),
    "Metric.with_ridge": _of("self=low_rank", ridge=0.5),
    "Metric.to": _of("self=low_rank", args=torch.float32),
    "Metric.inner_product": _of("self=complement", "left=vectors", "right=tensor"),
    "Metric.quadratic_form": _of("self=low_rank", "vectors"),
    "principal_angles": _of("left=basis", "right=basis"),
    "projector_distance": _of("left=basis", "right=basis"),
    "batched_eigh": lambda w: {"matrices": w.low_rank.dense()},
    "AffineFrame": lambda w: {"center": w.frame.center, "scale": 1.0, "basis": _EYE[:, :2]},
    "AffineFrame.of": _of("samples=cloud", reduce=True, noise=0.0),
    "AffineFrame.decode": _of("self=frame", "coordinates=tensor"),
    "AffineFrame.encode": _of("self=frame", "points=tensor"),
    "AffineFrame.lift": _of("self=frame", "factor=several"),
    "AffineFrame.project": _of("self=frame", "points=tensor"),
    "AffineFrame.to": _of("self=frame", args=torch.float32),
    "Sphere": _of(dimension=2, radius=1.0),
    "Box": _of(lows=(0.0, 0.0), highs=(1.0, 2.0)),
    "CliffordTorus": _of(radii=(1.0, 2.0)),
    "ClosedCurve": _of(function=around, n_nodes=64),
    "Curve": _of(function=around, low=0.0, high=3.0, closed=False, n_nodes=64),
    "Curve.parameter": lambda w: {"self": w.circle, "points": w.tensor[:, :2].contiguous()},
    "Cylinder": _of(radius=1.0, deviation=1.0),
    "Embedded": _of("manifold=sphere", basis=torch.eye(4)[:, :3].double(), shift=torch.zeros(4).double()),
    "FiniteSet": _of("samples=cloud", weights=torch.ones(60).double()),
    "FiniteSet.effective_neighbors": _of("self=set", "points=tensor", bandwidth=0.3),
    "Gaussian": _of(mean=torch.zeros(3).double(), covariance=_EYE),
    "Interval": _of(low=0.0, high=1.0),
    "Noisy": _of("manifold=sphere", level=0.1),
    "Product": lambda w: {"components": [w.sphere, w.sphere]},
    "SubspaceGaussian": _of(basis=_EYE[:, :2], variances=torch.ones(2).double(), mean=torch.zeros(3).double()),
    "SwissRoll": _of(start=4.0, end=9.0, height=2.0, n_nodes=64),
    "TorusOfRevolution": _of(major=2.0, minor=0.7, n_nodes=32),
    "TorusOfRevolution.scalar_curvature": _of("self=torus", "points=tensor"),
    "Union": lambda w: {"components": [w.sphere, w.sphere], "weights": [0.5, 0.5]},
    "Union.component": _of("self=union", "points=tensor"),
    "Union.purity": _of("self=union", "points=tensor", bandwidth=0.3),
    "Union.responsibilities": _of("self=union", "points=tensor", bandwidth=0.3),
    "gaussian_mixture": _of(means=_EYE, covariances=_EYE.expand(3, 3, 3), weights=[0.2, 0.3, 0.5]),
    "Manifold.distance": _of("self=sphere", "points=tensor"),
    "Manifold.embed": _of("self=sphere", "generator=none", ambient_dim=5, shift=0.1),
    "Manifold.local_dimension": _of("self=sphere", "points=tensor"),
    "Manifold.noisy": _of("self=sphere", level=0.1),
    "Manifold.posterior": _of("self=sphere", "points=tensor", bandwidth=0.1),
    "Manifold.sample": _of("self=sphere", "generator=none", n=3, dtype=torch.float64),
    "Manifold.tangent_basis": _of("self=sphere", "points=tensor"),
    "Manifold.tangent_projector": _of("self=sphere", "points=tensor"),
    "LogUniform": _of(low=0.1, high=1.0),
    "Uniform": _of(low=0.1, high=1.0),
    "LogNormal": _of(low=0.1, high=1.0, mean=-1.2, deviation=1.2),
    "LogUniform.quantile": _of("self=law", levels=torch.tensor([0.1, 0.5])),
    "Uniform.quantile": _of(self=matching.Uniform(0.1, 1.0), levels=torch.tensor([0.5])),
    "LogNormal.quantile": _of(self=matching.LogNormal(0.1, 1.0), levels=torch.tensor([0.5])),
    "backward_probe": lambda w: {"mean": 2 * (y := w.tensor.clone().requires_grad_()), "points": y, "generator": None},
    "carre_du_champ_loss": _of("prediction=sigma", "target=sigma"),
    "conditional_carre_du_champ": _of("samples=other", "points=tensor", "bandwidth=sigma", f=linear, h=linear),
    "denoise_along": _of("points=tensor", "bandwidth=sigma", "vectors", denoiser=onto_sphere),
    "denoising_loss": _of("mean=tensor", "target=other"),
    "frobenius_loss": lambda w: {"matrices": w.low_rank.dense(), "displacement": w.several},
    "metric_matching_loss": _of("metric=low_rank", "displacement=several", "probe"),
    "perturb": _of("samples=tensor", "bandwidth=sigma", "generator=none"),
    "perturb_among": _of("references=cloud", "bandwidth=sigma", "generator=none", source=torch.arange(4), n_draws=2),
    "predictive_loss": _of("metric=low_rank", "residual=vectors", "noise=tensor", "floor=sigma", ridge=0.05),
    "probe_loss": _of("metric=low_rank", "probe"),
    "vectors_in_range": _of("factor=several", "generator=none", floor=0.1),
}
_UNET = {"channels": 16, "multipliers": (1, 2), "n_blocks": 1, "attention": None, "patch": 1, "head_channels": 16}
_SMALL = carre.UNetSettings(channels=16, multipliers=(1,), n_blocks=1, head_channels=16)
_IMAGES = {"sample_shape": (1, 8, 8), "settings": _SMALL}
_BRIEF = training.TrainingConfig(max_steps=2, batch_size=8, n_references=0)
NETWORKS = {
    "FactorNetwork": _of("trunk", rank=2, spread=1.0, energy=None),
    "DiffusionDenoiser": _of(
        network=lambda x, t: x,
        schedule=torch.linspace(0.9, 0.1, 9),
        prediction="epsilon",
        sample_shape=(3,),
        conditions=None,
        whole_steps=False,
    ),
    "FilmMLP": _of(in_features=3, out_features=2, width=8, n_blocks=1, block=networks.GatedBlock, head_deviation=0.1),
    "FrozenDenoiser": _of("frame", denoiser=onto_sphere),
    "GatedBlock": _of(width=8),
    "PlainBlock": _of(width=8),
    "LogBandwidthEmbedding": _of(width=8),
    "MeanNetwork": _of("trunk", skip=torch.tanh),
    "MetricModel": _of("mean=trunk", "factor=trunk", architecture=None),
    "UNetSettings": _of(**_UNET, positions=False),
    "UNetSettings.for_shape": _of(sample_shape=(1, 8, 8)),
    "UNetSettings.of_paper": _of(dataset="mnist"),
    "UNet": _of(**_IMAGES, n_outputs=2, head_deviation=0.1),
    "build_image_model": _of(**_IMAGES, rank=2, spread=1.0, mean=None, with_mean=True),
    "build_model": _of(dim=3, rank=2, width=8, n_blocks=1, spread=1.0, block="gated", mean=None, with_mean=True),
    "Objective": _of(ridge=0.0, train_mean=True, centered=True, function=torch.tanh, noise=0.0, balance=None),
    "BalancedScales": _of(variances=torch.tensor([2.0, 1.0])),
    "BalancedScales.of": _of("samples=cloud", rank=2),
    "DataScale": _of(spread=1.0, neighbor_distance=0.1, dimension=2.0, n_samples=60),
    "ImageScale": _of(spread=1.0, neighbor_distance=0.1, dimension=2.0, n_samples=60),
    "DataScale.of": _of("samples=cloud"),
    "TrainingConfig": _of(**{f.name: f.default for f in dataclasses.fields(training.TrainingConfig)}),
    "linear_phase": lambda w: {"history": w.geometry.history},
    "train": lambda w: (
        {"model": w.model, "samples": w.cloud.float(), "held_out": w.tensor.float(), "bandwidths": w.law}
        | {"objective": training.Objective(), "config": _BRIEF, "callback": None, "checkpoint": None}
    ),
    "Checkpoint": lambda w: {"path": folder() / "run.safetensors", "facts": None, "every": 60.0},
}
_FIT = {
    p.name: p.default
    for p in inspect.signature(carre.fit).parameters.values()
    if p.name not in ("X", "memory", "progress")
}
_FIT |= {**TINY, "max_steps": 2, "bandwidth": 0.3, "bandwidth_range": (0.1, 1.0), "rank": 3, "noise": 0.0}
_DIRECTIONS = {"directions": np.ones((3, 2, 4, 4)), "eigenvalues": np.ones((3, 2))}
_NONE = {"network": None, "denoiser": None, "token": None}
_PLAIN = carre.Normalization((0.5,), 0.5)
_OF_IMAGES = "split size crop mode limit normalization verify"
_ASKED = {"bandwidth": 0.3, "dimension": None}
OUTSIDE = {
    "fit": _of("X", **_FIT, progress=None),
    "MetricMatching.fit": _of("self=estimator", "X", y=None),
    "MetricMatching.score": _of("self=fitted", "X", y=None),
    "MetricMatching.transform": _of("self=fitted", "X"),
    "learn_carre_du_champ": _of(
        "samples",
        **{"left": linear, "right": linear, "bandwidth_range": (0.1, 1.0), "centered": True, "max_steps": 2},
        **{"width": 8, "seed": 0, "device": "cpu", "callback": None},
    ),
    "load": _at("model", "name_or_folder", device="cpu", **_NONE, verify=True, revision=None),
    "save": lambda w: (
        {"geometry": w.geometry, "folder": folder() / "saved", "dtype": None, "n_landmarks": 5} | {"card": None}
    ),
    "export": _of("geometry", path=None, kind="metric", bandwidth=0.3, dtype=torch.float32),
    "RowMapper": _of("model=geometry", **_ASKED, what=("dimension",), columns=("x", "y", "z"), device="cpu"),
    "map_rows": lambda w: (
        {"geometry": w.geometry, "X": w.X, "out": tempfile.mkdtemp(), **_ASKED, "what": ("dimension",), "keep": ()}
        | {"columns": None, "drop": None, "drop_missing": False, "shard": (1, 1), "memory": None, "overwrite": False}
        | {"progress": None}
    ),
    "write_report": lambda w: (
        {"geometry": w.geometry, "X": w.X, "path": folder() / "report.html", "seconds": 0.2}
        | {"labels": None, "columns": None, "pairs": None, "image_shape": None, "embedding": None, "bandwidth": 0.3}
        | {"title": "A circle", "max_points": 30, "command": None, "progress": None}
    ),
    "column_concerns": _of("values=X", names=("a", "b", "c"), units_matter=True),
    "load_table": _at("table.csv", columns=["a", "b"], drop=None, key=None, drop_missing=False),
    "load_samples": _at("table.csv", columns=None, drop=["a"], size=None, drop_missing=False),
    "write_table": _at("written.csv", columns={"a": np.arange(3)}),
    "load_arrays": _at("images.npz", normalization=_PLAIN),
    "load_image_folder": _at("pictures", "folder", size=4, crop=4, mode="L", limit=2, normalization=_PLAIN),
    "load_images": _at("images.npz", **dict.fromkeys(_OF_IMAGES.split())),
    "Table": _of(values=np.ones((3, 2)), names=("a", "b"), other={}, path=Path("table"), dropped=(), numbers=None),
    "ImageDataset": _of("pixels", "normalization", labels=np.arange(3), name="images", class_names=("a", "b", "c")),
    "ImageDataset.of_class": _of("self=dataset", label=1),
    "Normalization": _of(mean=(0.5,), deviation=0.5),
    "Normalization.encode": _of("self=normalization", "pixels"),
    "Normalization.decode": _of("self=normalization", images=np.zeros((2, 1, 4, 4)), clip=True),
    "figure_of": _of("axes=figure"),
    "render_png": _of("drawing=figure"),
    "plot_denoised_images": _of(
        "clean=flat_pixels", "noisy=flat_pixels", denoised={"a": np.zeros((3, 4, 4))}, axes=None
    ),
    "plot_dimension_by_class": _of(dimension=np.array([1, 2, 1]), labels=np.array([0, 1, 1]), axes=None),
    "plot_dimension_map": _of(points=np.ones((4, 2)), dimension=np.ones(4), marker_size=9.0, axes=None),
    "plot_dimension_over_scales": _of(bandwidths=[0.1, 0.2], dimension={"a": [1.0, 2.0]}, label="d", axes=None),
    "plot_metric_ellipses": _of(points=np.ones((4, 2)), metric=np.ones((4, 2, 2)), size=0.1, n_shown=2, axes=None),
    "plot_overview": lambda w: (
        {"geometry": w.flat, "X": w.X[:, :2], "function": linear, "bandwidth": 0.3, "n_shown": 5}
        | {"pairs": (w.X[:2, :2], w.X[2:4, :2]), "axes": None}
    ),
    "plot_path_strip": _of(images=np.zeros((2, 3, 4, 4)), ends=("a", "b"), limits=(0.0, 1.0), title="t", axes=None),
    "plot_paths": _of(paths=np.ones((2, 3, 2)), points=np.ones((4, 2)), axes=None),
    "plot_coordinates": _of(coordinates=np.ones((4, 2)), values=np.ones(4), label="f", marker_size=9.0, axes=None),
    "plot_eigenfunction": _of("points=eigen_places", "found=eigen", number=1, marker_size=9.0, axes=None),
    "plot_scalar_field": _of(points=np.ones((4, 2)), values=np.ones(4), label="f", marker_size=9.0, axes=None),
    "plot_scale_profile": _of("profile", axes=None),
    "plot_spectrum": _of(eigenvalues=np.ones((4, 2)), axes=None),
    "plot_tangent_images": _of("images=flat_pixels", **_DIRECTIONS, numbers=(1, 2), axes=None),
    "plot_tangents": _of(points=np.ones((4, 2)), basis=np.ones((4, 2, 1)), size=0.1, n_shown=2, axes=None),
    "plot_training": lambda w: {"history": w.geometry.history, "axes": None},
    "plot_vectors": _of(points=np.ones((4, 2)), vectors=np.ones((4, 2)), size=0.1, n_shown=2, color="red", axes=None),
}
CALLS = TOOLS | FIELDS | PARTS | NETWORKS | OUTSIDE
