"""Columns that are scaled: the geometry is that of the scaled columns, and speaks in the user's units."""

import dataclasses
import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot

import carre
from carre import toolkit
from carre.boundary import ArgumentError
from carre.data.columns import column_units
from carre.manifolds import Sphere
from carre.plots import plot_overview
from carre.toolkit import DiffusionCarreDuChamp, MetricTensor
from tests.samples import TINY

pytestmark = pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning", "ignore::carre.data.ColumnWarning")

UNITS = torch.tensor([1.0, 100.0, 0.02, 7.0], dtype=torch.float64)
SPHERE = Sphere(2).embed(4, generator=torch.Generator().manual_seed(0))
SAMPLES = SPHERE.sample(400, generator=torch.Generator().manual_seed(1))
POINTS = SAMPLES[:6]


@pytest.fixture(scope="module")
def pair():
    """A geometry of columns as they are, and the same one of columns that were divided by units."""
    inner = carre.fit(SAMPLES, max_steps=150, width=48, device="cpu", verbose=False, random_state=0)
    return inner, dataclasses.replace(inner, units=UNITS, landmarks=inner.landmarks * UNITS)


def tilt(points):
    return points[:, 0] + points[:, 1] * points[:, 2] + points[:, 3] ** 2


def outer(function):
    """The same function, of points in the user's units."""
    return lambda points: function(points / UNITS.to(points))


def swirl(points):
    return torch.stack([points[:, 1], -points[:, 0], points[:, 3] ** 2, points[:, 2]], 1)


VECTORS = torch.randn(6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
# What each tool is asked; x brings points and vectors into the units that are in force, f functions, and v fields.
SCALARS = {
    "dimension": lambda g, x, f, v: g.dimension(x(POINTS)),
    "eigenvalues": lambda g, x, f, v: g.eigenvalues(x(POINTS)),
    "tangent_angles": lambda g, x, f, v: g.tangent_angles(x(POINTS), x(POINTS.flip(0)), dimension=2),
    "check": lambda g, x, f, v: g.check(x(POINTS)).distance,
    "distance_from_data": lambda g, x, f, v: g.distance_from_data(x(POINTS)),
    "carre_du_champ": lambda g, x, f, v: g.carre_du_champ(f(tilt), None, x(POINTS)),
    "laplacian": lambda g, x, f, v: g.laplacian(f(tilt), x(POINTS), dimension=2),
    "divergence": lambda g, x, f, v: g.divergence(v(swirl), x(POINTS), dimension=2),
    "sectional_curvature": lambda g, x, f, v: g.sectional_curvature(x(POINTS), x(VECTORS), x(VECTORS.flip(0))),
    "distances": lambda g, x, f, v: g.distances(x(POINTS)),
    "score": lambda g, x, f, v: torch.tensor(g.score(x(SAMPLES))),
    "estimate_dimension": lambda g, x, f, v: torch.as_tensor(g.estimate_dimension(x(POINTS)).mean),
    "local_bandwidths": lambda g, x, f, v: g.local_bandwidths(x(POINTS)).bandwidth,
}
AS_VECTORS = {
    "denoise": lambda g, x, f, v: g.denoise(x(POINTS)),
    "project": lambda g, x, f, v: g.project(x(POINTS), x(VECTORS), dimension=2),
    "gradient": lambda g, x, f, v: g.gradient(f(tilt), x(POINTS)),
    "gradient at": lambda g, x, f, v: g.at(x(POINTS)).gradient(f(tilt)),
    "gradient_of_values": lambda g, x, f, v: g.gradient_of_values(x(SAMPLES), tilt(SAMPLES), x(POINTS)),
    "mean curvature": lambda g, x, f, v: g.curvature(x(POINTS), dimension=2).mean,
    "second_fundamental_form": lambda g, x, f, v: g.second_fundamental_form(x(POINTS), dimension=2)[0],
    "minimize": lambda g, x, f, v: g.minimize(f(tilt), x(POINTS), max_steps=5).points,
    "minimize differences": lambda g, x, f, v: (
        g.minimize(f(tilt), x(POINTS), gradient="differences", max_steps=5).points
    ),
    "gradient_flow": lambda g, x, f, v: g.gradient_flow(f(tilt), x(POINTS), step=0.1, n_steps=3),
    "path": lambda g, x, f, v: g.path(x(POINTS), x(POINTS.flip(0)), n_nodes=5).nodes,
    "geodesic": lambda g, x, f, v: g.path(x(POINTS[:2]), x(POINTS[2:4]), n_nodes=5, method="geodesic").nodes,
    "exponential": lambda g, x, f, v: g.exponential(x(POINTS), x(0.1 * VECTORS), dimension=2).nodes,
    "logarithm": lambda g, x, f, v: g.logarithm(x(POINTS), x(POINTS.flip(0))),
}
AS_BASES = {
    "tangent_basis": lambda g, x, f, v: g.tangent_basis(x(POINTS), 2),
    "tangent_basis at": lambda g, x, f, v: g.at(x(POINTS)).tangent_basis(2),
    "hessian": lambda g, x, f, v: g.hessian(f(tilt), x(POINTS), dimension=2)[1],
}


def test_every_tool_is_asked_here():
    """A tool that is a method of a geometry, and not in this file, would go unseen."""
    methods = {name for name, value in vars(carre.Geometry).items() if inspect.isfunction(value)}
    asked = {name.split()[0] for name in SCALARS | AS_VECTORS | AS_BASES}
    below = {"curvature", "transport"}
    assert methods & set(toolkit.__all__) - asked - below == {
        "eigenfunctions",
        "recommend_rank",
        "sample_graph",
    }, "made of others"


@pytest.mark.parametrize("name", SCALARS | AS_VECTORS | AS_BASES)
def test_a_tool_says_the_same_in_other_units(pair, name):
    """Points, vectors and functions in other units: scalars are the same, vectors are in these units."""
    inner, scaled = pair
    ask = (SCALARS | AS_VECTORS | AS_BASES)[name]
    expected = torch.as_tensor(ask(inner, lambda x: x, lambda f: f, lambda v: v))
    found = torch.as_tensor(ask(scaled, lambda x: x * UNITS, outer, lambda v: lambda y: v(y / UNITS) * UNITS))
    if name in AS_VECTORS:
        expected = expected * UNITS
    if name in AS_BASES:
        expected = expected * UNITS[:, None]
    units = UNITS if name in AS_VECTORS else UNITS[:, None] if name in AS_BASES else 1.0
    torch.testing.assert_close(found / units, expected / units, rtol=2e-4, atol=2e-4)


def test_a_curve_has_one_length_and_its_nodes_are_in_the_users_units(pair):
    inner, scaled = pair
    ours, theirs = (g.path(p[:2], p[2:4], n_nodes=6) for g, p in ((inner, POINTS), (scaled, POINTS * UNITS)))
    for what in ("length", "polygon_length", "energy"):
        torch.testing.assert_close(getattr(theirs, what)(), getattr(ours, what)(), rtol=1e-5, atol=0)
    torch.testing.assert_close(theirs.resample(4).nodes / UNITS, ours.resample(4).nodes, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(theirs(0.3) / UNITS, ours(0.3), rtol=1e-5, atol=1e-6)
    moved, same = (g.transport(p, x) for g, p, x in ((scaled, theirs, VECTORS[:2] * UNITS), (inner, ours, VECTORS[:2])))
    torch.testing.assert_close(moved / UNITS, same, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(theirs.distance_to(SAMPLES * UNITS), ours.distance_to(SAMPLES), rtol=1e-4, atol=1e-6)


def test_bridges_speak_in_the_users_units(pair):
    """A metric tensor is S⁻¹gS⁻¹ where a vector is Sv: lengths are the same. Slopes of values are as they were."""
    inner, scaled = pair
    lengths = [
        torch.einsum("ni,nij,nj->n", v, MetricTensor(g)(p), v)
        for g, p, v in ((inner, POINTS, VECTORS), (scaled, POINTS * UNITS, VECTORS * UNITS))
    ]
    torch.testing.assert_close(*lengths, rtol=1e-4, atol=0)
    covectors = [
        torch.einsum("ni,nij,nj->n", v, MetricTensor(g).cometric(p), v)
        for g, p, v in ((inner, POINTS, VECTORS), (scaled, POINTS * UNITS, VECTORS / UNITS))
    ]
    torch.testing.assert_close(*covectors, rtol=1e-4, atol=0)
    values = tilt(SAMPLES).numpy()
    first, second = (
        DiffusionCarreDuChamp(g, x)(values, values) for g, x in ((inner, SAMPLES), (scaled, SAMPLES * UNITS))
    )
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-5)


def test_a_standardized_fit_is_that_of_the_divided_columns():
    samples = (SAMPLES * UNITS).numpy()
    deviations = samples.std(0, ddof=1)
    scaled = carre.fit(samples, scale="standardize", **TINY)
    divided = carre.fit(samples / deviations, **TINY)
    assert scaled.bandwidth == pytest.approx(divided.bandwidth)
    np.testing.assert_allclose(scaled.denoise(samples), divided.denoise(samples / deviations) * deviations, rtol=1e-6)
    np.testing.assert_allclose(scaled.units, deviations)
    np.testing.assert_allclose(scaled.landmarks / scaled.units, divided.landmarks, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "off"), [(None, 1e-6), ("float16", 5e-3)])
def test_scaled_columns_are_saved_in_any_precision(dtype, off, tmp_path):
    frame = pd.DataFrame((SAMPLES * UNITS).float().numpy(), columns=list("abcd"))
    geometry = carre.fit(frame, scale="robust", **TINY)
    assert geometry.landmarks.dtype == torch.float32, "as the samples were"
    carre.save(geometry, tmp_path / "model", dtype=dtype)
    loaded = carre.load(tmp_path / "model")
    assert loaded.parameters["scale"] == "robust"
    assert loaded.n_samples == 400
    np.testing.assert_array_equal(loaded.units, geometry.units)
    difference = (loaded.landmarks - geometry.landmarks) / geometry.units
    assert float(difference.abs().max()) < off
    means = (np.asarray(loaded.denoise(frame)) - np.asarray(geometry.denoise(frame))) / geometry.units.numpy()
    assert np.abs(means).max() < off


def test_scaled_columns_are_exported_and_reported(tmp_path, short_reports):
    frame = pd.DataFrame((SAMPLES * UNITS).numpy(), columns=list("abcd"))
    geometry = carre.fit(frame, scale="robust", **TINY)
    carre.export(geometry, tmp_path / "mean.pt2", kind="denoiser")
    program = torch.export.load(tmp_path / "mean.pt2").module()
    points = torch.tensor(frame.to_numpy()[:5], dtype=torch.float32)
    mean = program(points, torch.full((5,), geometry.bandwidth))
    torch.testing.assert_close(mean / UNITS.float(), geometry.denoise(points) / UNITS.float(), rtol=1e-4, atol=1e-4)
    page = carre.write_report(geometry, frame, tmp_path / "page.html")
    text = page.read_text()
    assert "a, b, c, d; each divided by its interquartile range" in text


@pytest.mark.parametrize("scale", ["standardize", "robust"])
def test_columns_that_do_not_vary_are_taken_as_they_are(scale):
    values = torch.tensor([[0.0, 3.0, 1e9], [1.0, 3.0, 1e9], [2.0, 3.0, 1e9]], dtype=torch.float64)
    units = column_units(values, scale)
    assert units[0] > 0.5
    assert units[1:].tolist() == [1.0, 1.0]


def test_outliers_do_not_move_the_robust_scale():
    values = torch.randn(2001, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spoiled = values.clone()
    spoiled[:20] = 1e6
    assert float(column_units(values, "robust")) == pytest.approx(1.0, rel=0.05), "of normal variables the deviation"
    assert float(column_units(spoiled, "robust")) == pytest.approx(float(column_units(values, "robust")), rel=0.05)
    assert float(column_units(spoiled, "standardize")) > 1e4


def test_a_scale_that_makes_no_sense_is_named():
    with pytest.raises(ArgumentError, match="scale must be one of none, standardize, robust; got 'z'"):
        carre.fit(SAMPLES, scale="z")
    with pytest.raises(ArgumentError, match="scale must be 'none' for images"):
        carre.fit(torch.zeros(8, 1, 4, 4), scale="robust")


def test_the_overview_draws_ellipses_along_the_tangents_of_scaled_columns():
    """A line of slope 100, one column in units of 1 and one of 100: in deviations it runs at 45 degrees."""
    along = torch.linspace(-1, 1, 300, dtype=torch.float64)[:, None]
    line = along * torch.tensor([1.0, 100.0]) + 0.01 * torch.tensor([1.0, 100.0]) * torch.randn(
        300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    geometry = carre.fit(line.numpy(), scale="standardize", **TINY)
    panels = plot_overview(geometry, line.numpy(), lambda x: x[:, 1], (line[:1].numpy(), line[-1:].numpy()), n_shown=4)
    limits = panels[0].dataLim
    pyplot.close(panels[0].figure)
    assert limits.height / limits.width == pytest.approx(1.0, rel=0.3), "columns are drawn as they were scaled"
