"""Learn the geometry of a noisy curve that leaves a disk, and use it: the first figure of the paper.

Run it with ``python docs/tutorials/noisy_curve.py``, or cell by cell as a notebook. With ``CARRE_FIGURES=folder`` the
pictures are saved, with ``CARRE_QUICK=1`` the fit is cut short.
"""

# %% [markdown]
# # The geometry of a noisy curve
#
# The plane is the place to understand what Carré learns, since there everything can be drawn. The data of this
# tutorial are points around a spiral arm that leaves a disk, blurred by noise: a curve here, a surface there. From the
# points alone we learn a metric, and read off it in how many directions the data extend, which way a function grows
# along them, and how to walk from one point to another without leaving them. This is the first figure of the paper,
# step by step.
#
# ![Five panels: ellipses of the metric, a function, the dimension, the gradient of the function along the data,
# paths](../images/tutorials/noisy_curve_overview.png)
#
# The whole page takes half a minute on one core; `CARRE_FIGURES=folder` saves its pictures.

# %%
import os
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

import carre
from carre.plots import (
    figure_of,
    plot_dimension_map,
    plot_metric_ellipses,
    plot_overview,
    plot_paths,
    plot_scale_profile,
    plot_vectors,
)
from carre.plots.style import GRAY, STYLE

matplotlib.rcParams.update(STYLE)
QUICK = bool(os.environ.get("CARRE_QUICK"))
FIGURES = os.environ.get("CARRE_FIGURES")


def save(axes, name):
    """Save the figure that axes belong to, if a folder was named."""
    if FIGURES:
        Path(FIGURES).mkdir(parents=True, exist_ok=True)
        figure_of(axes).savefig(Path(FIGURES) / f"noisy_curve_{name}.png", dpi=120)


# %% [markdown]
# ## The data
#
# An arm that leaves a disk of radius 0.9, turns once around it and a little more, 1,200 points on the one and 700 on
# the other, each moved by noise of deviation 0.03. `angle` is the place on the arm, and NaN on the disk: we use it to
# measure errors, the learner never sees it.

# %%
NOISE, TURN, N_ARM, N_DISK = 0.03, 2.15 * np.pi, 1200, 700
rng = np.random.default_rng(0)


def arm(angle):
    """Return the points of the arm at given angles."""
    radius = 0.85 + 1.1 * (1 - np.exp(-1.5 * angle)) + 0.16 * angle
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


fine = np.linspace(0, TURN, 4001)
length = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(arm(fine), axis=0), axis=1))])
angle = np.interp(rng.uniform(0, length[-1], N_ARM), length, fine)  # evenly along the arm
radius, direction = 0.9 * np.sqrt(rng.uniform(size=N_DISK)), rng.uniform(0, 2 * np.pi, N_DISK)
disk = np.stack([radius * np.cos(direction), radius * np.sin(direction)], axis=1)

X = np.concatenate([arm(angle), disk]) + NOISE * rng.standard_normal((N_ARM + N_DISK, 2))
on_arm = np.arange(len(X)) < N_ARM

# %% [markdown]
# ## The fit
#
# One call. What is not given is chosen from the data: the scales to train on, and the scale σ at which questions are
# answered if none is named. `scale_profile` shows what that choice was made from.

# %%
geometry = carre.fit(X, max_steps=400 if QUICK else 800, width=64, random_state=0, verbose=False)
print(f"σ = {geometry.bandwidth:.2f}: {geometry.scale_profile.reason}")
save(plot_scale_profile(geometry.scale_profile), "scale")

# %% [markdown]
# ![Two eigenvalues against the scale, and the errors that the scale is chosen
# from](../images/tutorials/noisy_curve_scale.png)
#
# The metric G at a point is a 2 × 2 matrix. Its eigenvalues are near 1 in directions in which there are data and near
# 0 in others; on the arm there should be one of each, on the disk two ones. In the upper panel stands their mean over
# the held-out points. The second one is near 1 at the smallest scales, where all that can be seen is noise, and falls
# to the share of the disk, about a third, as σ passes the noise (0.03). From σ ≈ 0.5 on both change again: from so far
# away the disk looks like a dot, and then the spiral like a blob. In between the answer hardly depends on σ, and the
# default lies there.
#
# ## The metric
#
# Drawn as ellipses with half axes √λ, circles on the disk and needles on the arm, thin and along it:

# %%
axes = plot_metric_ellipses(X, geometry.metric(X), n_shown=110)
save(axes, "metric")

slope = (arm(angle + 1e-5) - arm(angle - 1e-5)) / 2e-5
truth = slope / np.linalg.norm(slope, axis=1, keepdims=True)  # unit tangents of the arm
found = geometry.tangent_basis(X[on_arm], dimension=1)[:, :, 0]
tangent_error = np.degrees(np.arccos(np.abs((found * truth).sum(1)).clip(0, 1)))
print(f"tangents of the arm are off by {np.median(tangent_error):.1f}° in the median")

# %% [markdown]
# ![Ellipses: circles on the disk, needles along the arm](../images/tutorials/noisy_curve_metric.png)
#
# The direction of the arm is off by 0.8° in the median, at noisy points, and nobody said where the arm is.
#
# ## Dimension
#
# The local dimension counts the eigenvalues above ½, and repairs the count where data end.

# %%
dimension = geometry.dimension(X)
right = np.mean(dimension == np.where(on_arm, 1, 2))
print(f"local dimension right at {right:.1%} of the points")
print(geometry.estimate_dimension(X))

# %% [markdown]
# Right at 99.3% of the points; the others lie at the joint, where arm and disk are one. One number for the whole
# dataset would be misleading here: `estimate_dimension` gives the median, 1, and says that 62% of the points agree
# with it.
#
# ## A function, and which way it grows along the data
#
# Take any function of points, written in torch. Its Euclidean gradient does not know the data, and on the arm it
# points off them nearly everywhere. The intrinsic gradient, G applied to it, is its part along the data.


# %%
def height(x):
    """Return a height above every point of the plane."""
    return x[:, 1] + 0.5 * torch.sin(2 * x[:, 0])


points = torch.as_tensor(X, dtype=torch.float64).requires_grad_()
euclidean = torch.autograd.grad(height(points).sum(), points)[0].numpy()
intrinsic = geometry.gradient(height, X)

along_arm = (euclidean[on_arm] * truth).sum(1, keepdims=True) * truth
free = angle > 0.6  # away from the joint, which is arm and disk at once
errors = {
    name: float(np.linalg.norm((vectors[on_arm] - along_arm)[free]) / np.linalg.norm(along_arm[free]))
    for name, vectors in (("Euclidean", euclidean), ("intrinsic", intrinsic))
}
print({name: f"off by {error:.0%}" for name, error in errors.items()})

panels = Figure(figsize=(10, 4.6), layout="constrained").subplots(1, 2)
plot_vectors(X, euclidean, n_shown=90, color=GRAY, axes=panels[0]).set_title("Euclidean gradient")
plot_vectors(X, intrinsic, n_shown=90, axes=panels[1]).set_title("Gradient along the data")
save(panels, "gradient")

# %% [markdown]
# ![Arrows across the arm on the left, along the arm on the right](../images/tutorials/noisy_curve_gradient.png)
#
# Against the gradient along the true arm, the Euclidean one is off by 99%, the intrinsic one by 4% (away from the
# joint, where the arm widens into the disk and the whole gradient is right). On the disk, where every direction is
# along the data, the two agree.
#
# ## Paths
#
# `path` finds shortest paths that stay on the data: from the tip of the arm into the disk, between two points of
# the arm, and from the arm to the other side of the disk. Straight lines cut across the void.

# %%
tip, middle, other, early = (int(np.argmin(np.abs(angle - place))) for place in (TURN, 4.4, 2.6, 1.8))
far, below = (int(np.argmin(np.linalg.norm(X - place, axis=1))) for place in ([-0.6, 0], [0.3, -0.6]))
starts, ends = X[[tip, middle, early]], X[[far, other, below]]

path = geometry.path(starts, ends)
straight = np.stack([starts, ends], axis=1)
print(path)
print(
    "lengths along the data", path.length().numpy().round(1), "straight", np.linalg.norm(ends - starts, axis=1).round(1)
)
away = path.resample(101).distance_to(X).max().item()
line = np.linspace(starts, ends, 101, axis=1).reshape(-1, 2)
line_away = np.linalg.norm(line[:, None] - X[None], axis=2).min(1).max()
print(f"at most {away:.2f} from the nearest sample; straight lines up to {line_away:.2f}")
save(plot_paths({"along the data": path, "straight": straight}, points=X), "paths")

# %% [markdown]
# ![Three paths along the spiral, and the straight lines between the same
# points](../images/tutorials/noisy_curve_paths.png)
#
# The paths are never farther than 0.17 from a sample; the lines, up to 0.81. Each path also carries its own judgment:
# `path.connected` says whether it stays on the data, `path.strayed` how far it left them in units of σ, and
# `path.reasons` tells in a sentence what went wrong if something did. One limit to know: start the last path nearer to
# the disk, at angle 1.2, where the gap is 4σ wide, and it takes the short cut and still calls itself connected. Narrow
# gaps are not seen. `path.distance_to(X)`, which asks the samples and not the geometry, tells: 0.46 from the nearest
# one.
#
# ## All at once
#
# `plot_overview` draws the picture at the top of this page from a fitted geometry, a function and pairs of points.

# %%
save(plot_overview(geometry, X, height, (starts, ends)), "overview")

# %% [markdown]
# ## What σ does
#
# All of this was said at one scale. Every question takes another one, without a new fit: σ is how closely one looks.

# %%
scales = [geometry.bandwidth_range[0], geometry.bandwidth, 5 * geometry.bandwidth]
panels = Figure(figsize=(12, 3.4), layout="constrained").subplots(1, 3)
shares = {}
for axes, sigma in zip(panels, scales, strict=True):
    counts = geometry.dimension(X, sigma)
    shares[sigma] = (float(np.mean(counts[on_arm] == 1)), float(np.mean(counts[~on_arm] == 2)))
    plot_dimension_map(X, counts, axes=axes).set_title(f"σ = {sigma:.2f}")
save(panels, "scales")
for sigma, (one, two) in shares.items():
    print(f"σ = {sigma:.2f}: dimension 1 at {one:.0%} of the arm, 2 at {two:.0%} of the disk")

# %% [markdown]
# ![The dimension of every point at three scales](../images/tutorials/noisy_curve_scales.png)
#
# Below the noise (left) the arm is a band, and a band is a surface. Far above (right), where σ is as large as the disk
# and half of the way to the next turn of the arm, counts say nothing about the shape any more. The default scale lies
# between the noise and the bends, where `scale_profile` has its widest gap. On data of your own, look at that picture
# first.
