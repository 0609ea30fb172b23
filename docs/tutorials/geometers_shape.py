"""Ask a sphere that was learned from samples for its curvature, its holonomy, its distances and its eigenfunctions.

Run it with ``python docs/tutorials/geometers_shape.py``, or cell by cell as a notebook. With ``CARRE_FIGURES=folder``
the pictures are saved, with ``CARRE_QUICK=1`` the fit is cut short.
"""

# %% [markdown]
# # A geometer's shape
#
# What would a Riemannian geometer ask of a dataset? How it is curved, what happens to a vector that is carried around
# a loop, how far apart two points are, which tones it has when it is struck. This page asks all of it of a shape whose
# answers are in every textbook, a sphere of radius 2 in ten dimensions, known from 2,000 samples only, and prints each
# answer beside the exact one. The conventions stand where they are used: most disagreements between two libraries are
# a factor 2, a sign or a mean that is a sum.
#
# ![A vector carried around a triangle on a sphere comes back turned by a right angle; an eigenfunction over the same
# sphere](../images/tutorials/geometers_shape_overview.png)
#
# The whole page takes a minute or two on one core; `CARRE_FIGURES=folder` saves its picture.

# %%
import os
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

import carre
from carre.manifolds import Sphere
from carre.plots import figure_of, plot_eigenfunction
from carre.plots.style import BLUE, GRAY, INK, ORANGE, STYLE

matplotlib.rcParams.update(STYLE)
QUICK = bool(os.environ.get("CARRE_QUICK"))
FIGURES = os.environ.get("CARRE_FIGURES")
RADIUS = 2.0

sphere = Sphere(2, radius=RADIUS).embed(10, generator=torch.Generator().manual_seed(0))
X = sphere.sample(1000 if QUICK else 2000, generator=torch.Generator().manual_seed(1)).numpy()
frame = sphere.basis.numpy()  # the three dimensions that the sphere lies in: for pictures and for the truth only

# %% [markdown]
# ## The fit
#
# Nothing is told but the samples. What is learned is the metric G(x), a cometric to be exact: it takes the differential
# of a function to its gradient, ∇f = G∂f, and tends to the projector on the tangent space, so that tangent directions
# have the eigenvalue 1. (The paper's Γ is G/2.)

# %%
geometry = carre.fit(X, random_state=0, verbose=False, max_steps=400 if QUICK else None)
estimate = geometry.estimate_dimension(X[:500])
print(geometry)
print(estimate)

# %% [markdown]
# ## Curvature, and which mean curvature it is
#
# From the second fundamental form II(v, w), the normal part of the derivative of w along v:
#
# - **mean curvature** is the vector H⃗ = Σᵢ II(eᵢ, eᵢ): the *trace*, not divided by the dimension, and a *vector* in the
#   ambient space, so that no side has to be chosen. It points to where the shape bends, for a sphere inwards:
#   H⃗ = −(d/R)·n, of length d/R = 1 here. The mean curvature of many books is |H⃗|/d = 1/R, with a sign that depends on
#   the normal they choose;
# - **scalar curvature** is the trace of Ricci, |H⃗|² − |II|²: d(d − 1)/R² = 0.5, *twice* the Gauss curvature of a
#   surface;
# - **sectional curvature** of a surface is the Gauss curvature, 1/R² = 0.25, and **Ricci** is (d − 1)/R² times the
#   identity.
#
# Curvature is of second order and scatters from point to point, so we ask many points and average.

# %%
points = X[:200]
curvature = geometry.curvature(points, dimension=2)
outward = points @ frame @ frame.T / RADIUS
basis = geometry.tangent_basis(points, 2)
answers = {
    "mean curvature, outwards": ((curvature.mean * outward).sum(1).mean(), -2 / RADIUS),
    "scalar curvature": (curvature.scalar.mean(), 2 / RADIUS**2),
    "Gauss curvature": (
        geometry.sectional_curvature(points, basis[:, :, 0], basis[:, :, 1], dimension=2).mean(),
        1 / RADIUS**2,
    ),
    "Ricci, in any direction": (curvature.ricci[:, 0, 0].mean(), 1 / RADIUS**2),
}
for name, (found, exact) in answers.items():
    print(f"{name:26} {found:8.4f}   exact {exact:8.4f}")

# %% [markdown]
# ## Around a triangle
#
# Three points a quarter of a great circle apart are the corners of an octant. A vector that is carried in parallel
# along its three sides comes back turned by the curvature inside, ∫K = (1/R²)·(πR²/2): a right angle, whatever the
# radius. The sides are geodesics that the fit finds; `transport` turns the vector from one tangent space to the next.

# %%
corners = RADIUS * np.eye(3) @ frame.T
sides = geometry.path(corners, corners[[1, 2, 0]], n_nodes=33)
loop = torch.cat([sides.nodes[0], sides.nodes[1, 1:], sides.nodes[2, 1:]])
start = frame[:, 1][None]  # at the first corner, towards the second
carried = np.asarray(geometry.transport(carre.Path.through(loop), start, dimension=2))[0]
turned = np.degrees(np.arccos(carried[0] @ carried[-1] / np.linalg.norm(carried[0]) / np.linalg.norm(carried[-1])))
answers["turned by, in degrees"] = (turned, 90.0)
print(f"turned by {turned:.1f}°   exact 90°")

# %% [markdown]
# ## Distances
#
# Along the data, between every two of a few points: lengths of geodesics, R times the angle.

# %%
few = X[:5]
distances = geometry.distances(few, few)
angles = np.arccos(np.clip(few @ few.T / RADIUS**2, -1, 1))
off = np.abs(distances - RADIUS * angles)[np.triu_indices(5, 1)] / (RADIUS * angles)[np.triu_indices(5, 1)]
print(f"distances are off by {off.mean():.2%} on average, {off.max():.2%} at most")

# %% [markdown]
# ## Eigenfunctions
#
# The Laplace–Beltrami operator is Δ = div ∇, and we list the λ ≥ 0 with −Δf = λf: on a sphere ℓ(ℓ + 1)/R², 2ℓ + 1
# times each. They come with how sure they are, with the volume that each sample stands for, whose sum is the area
# 4πR², and with functions that can be asked anywhere on the sphere, also differentiated.

# %%
eigen = geometry.eigenfunctions(X, 9)
levels = np.array([0] + 3 * [2] + 5 * [6]) / RADIUS**2
print("λ     ", eigen.values.round(3))
print("exact ", levels)
print("± ", eigen.uncertainty.round(3))
area = eigen.weights.sum()
answers["area"] = (area, 4 * np.pi * RADIUS**2)
print(f"area {area:.2f}   exact {4 * np.pi * RADIUS**2:.2f}")

# The mean of |∇f|² is λ, also at points that the fit has not seen.
new = sphere.sample(300, generator=torch.Generator().manual_seed(2)).numpy()
slope = geometry.gradient(lambda x: eigen(x)[:, 1], new, dimension=2)
ratio = (slope**2).sum() / (eigen(new)[:, 1] ** 2).sum()
print(f"∫|∇f|² over ∫f² from 300 new points: {ratio:.2f}   λ {eigen.values[1]:.2f}")

# %% [markdown]
# The three functions with λ = 2/R² are the coordinates of space, in some rotation. Divided by √λ they are *harmonic
# coordinates*, lengths again: of a sphere they are the sphere, from within.

# %%
coordinates = geometry.coordinates(X, 3)
turn, *_ = np.linalg.lstsq(coordinates, X @ frame, rcond=None)
left = np.linalg.norm(coordinates @ turn - X @ frame, axis=1).mean() / RADIUS
print(f"a rotation and a scale take them to the sphere within {left:.1%} of the radius")

# %%
figure = Figure(figsize=(9, 3.6), layout="constrained")
first, second = figure.subplots(1, 2)
view = np.linalg.qr(np.array([[1.0, 1.0, 1.0], [-1.0, 1.0, 0.0], [-1.0, -1.0, 2.0]]).T)[0][:, 1:]
front = (X @ frame).sum(1) > 0
first.scatter(*(X @ frame @ view)[front].T, s=3, color=GRAY, alpha=0.4, linewidth=0)
flat = loop.numpy() @ frame @ view
first.plot(*flat.T, color=BLUE)
some = np.arange(0, len(loop), 8)
first.quiver(
    *flat[some].T, *(carried[some] @ frame @ view).T, color=ORANGE, angles="xy", scale_units="xy", scale=1.6, zorder=3
)
first.plot(*flat[0], "o", color=INK, markersize=6)
first.set(title=f"Around a triangle: turned by {turned:.0f}°", aspect="equal", xticks=[], yticks=[])
plot_eigenfunction(X @ frame @ view, eigen, 5, axes=second)
second.set(xticks=[], yticks=[])
if FIGURES:
    Path(FIGURES).mkdir(parents=True, exist_ok=True)
    figure_of(first).savefig(Path(FIGURES) / "geometers_shape_overview.png", dpi=90)

# %% [markdown]
# ## On data
#
# Nothing above needed to know the sphere, but for the comparison. On data of your own: take noise off the points first
# (`geometry.denoise`) where it matters, curvature first of all; look at `geometry.check` before you believe a number;
# give `dimension`, once you trust it, to everything that takes it; and average curvature over points. How each question
# is asked, and what to mind: [Curvature](../how_to/curvature.md), [Paths and distances](../how_to/paths.md),
# [Eigenfunctions and coordinates](../how_to/eigenfunctions.md), [Is it valid here?](../how_to/validity.md)
