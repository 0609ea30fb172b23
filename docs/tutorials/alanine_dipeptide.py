"""Find the two angles of alanine dipeptide in coordinates of its atoms, and a way between its shapes.

Run it with ``CARRE_ALANINE=alanine_dipeptide.npz python docs/tutorials/alanine_dipeptide.py``; without the file a toy
molecule is made up. ``CARRE_FIGURES=folder`` saves the pictures, ``CARRE_QUICK=1`` cuts the fit short.
"""

# %% [markdown]
# # Two angles in twenty-four coordinates: alanine dipeptide
#
# Alanine dipeptide is the fruit fly of molecular dynamics: 22 atoms that tremble in every way, and two angles, φ and
# ψ, that tell its shapes apart. A chemist knows those angles. Here we pretend not to: we hand over coordinates of
# atoms, and ask how many ways to move there are, which ones, and how to get from one shape to another.
#
# ![A path between two shapes over φ and ψ, and bond lengths along it and along the straight
# line](../images/tutorials/alanine_dipeptide_paths.png)
#
# The page wants a trajectory, a file named by `CARRE_ALANINE` with an array `xyz_nm` of shape (frames, 22, 3), in
# nanometers and in the usual order of the atoms of ACE-ALA-NME. Without it a toy molecule is made up, and the same
# code runs on that. Numbers and pictures in the text are from a real trajectory: 8,000 of 50,100 frames, with
# coordinates rounded to 0.01 nm, in less than a minute on one core.

# %%
import os
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import carre
from carre.plots import figure_of, plot_dimension_map, plot_paths, plot_scale_profile
from carre.plots.style import BLUE, GRAY, ORANGE, STYLE

QUICK, FIGURES, DATA = (os.environ.get(f"CARRE_{name}") for name in ("QUICK", "FIGURES", "ALANINE"))
matplotlib.rcParams.update(STYLE)
rng = np.random.default_rng(0)


def save(axes, name):
    """Save the figure that axes belong to, if a folder was named."""
    if FIGURES:
        Path(FIGURES).mkdir(parents=True, exist_ok=True)
        figure_of(axes).savefig(Path(FIGURES) / f"alanine_dipeptide_{name}.png", dpi=120)


# %% [markdown]
# ## The atoms
#
# We take the eight heavy atoms between the two methyl ends: 24 coordinates. The numbers say where they stand among the
# 22; primes mark the neighbors of alanine itself.

# %%
ATOMS = {"C'": 4, "O'": 5, "N": 6, "CA": 8, "CB": 10, "C": 14, "O": 15, "N'": 16}
PLACE = {name: place for place, name in enumerate(ATOMS)}
BONDS = (("C'", "O'"), ("C'", "N"), ("N", "CA"), ("CA", "CB"), ("CA", "C"), ("C", "O"), ("C", "N'"))


def torsion(frames, *names):
    """Return the angle in degrees by which four atoms in a row are twisted; frames have shape (..., atoms, 3)."""
    a, b, c, d = (frames[..., PLACE[name], :] for name in names)
    axis = c - b
    left, right = np.cross(b - a, axis), np.cross(axis, d - c)
    height = (np.cross(left, right) * axis).sum(-1) / np.linalg.norm(axis, axis=-1)
    return np.degrees(np.arctan2(height, (left * right).sum(-1)))


def torsions(frames):
    """Return φ and ψ in degrees, shape (..., 2)."""
    return np.stack([torsion(frames, "C'", "N", "CA", "C"), torsion(frames, "N", "CA", "C", "N'")], axis=-1)


# %% [markdown]
# ## A toy, where the trajectory is not at hand
#
# Atoms are placed one after the other by bond length, bond angle and torsion. φ and ψ follow a mixture of three basins
# and a bridge between them; all atoms tremble a little.


# %%
def attach(a, b, c, bond, angle, twist):
    """Place an atom at a distance from c, with given angle at c and torsion about b–c."""
    axis = (c - b) / np.linalg.norm(c - b, axis=-1, keepdims=True)
    normal = np.cross(b - a, axis)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    angle, twist = np.radians(angle), np.radians(twist)[:, None]
    side = np.cos(twist) * np.cross(normal, axis) + np.sin(twist) * normal
    return c + bond * (np.sin(angle) * side - np.cos(angle) * axis)


def toy_frames(n):
    """Make up frames of the eight atoms, shape (n, 8, 3), turned and moved at random like a free molecule."""
    basins = np.array([[-80.0, 150.0, 25.0], [-130.0, 155.0, 25.0], [-75.0, -30.0, 22.0]])
    chosen = basins[rng.choice(3, size=n, p=[0.4, 0.35, 0.25])]
    angles = chosen[:, :2] + chosen[:, 2:] * rng.standard_normal((n, 2))
    bridge = rng.uniform(size=n) < 0.25
    angles[bridge] = rng.uniform([-140, -180], [-60, 180], (int(bridge.sum()), 2))
    atoms = dict.fromkeys(ATOMS, np.zeros((n, 3)))
    atoms["CA"], atoms["C"] = (np.tile(place, (n, 1)) for place in ([0.147, 0, 0], [0.203, 0.143, 0]))
    atoms["CB"] = attach(atoms["C"], atoms["N"], atoms["CA"], 0.153, 110, np.full(n, -122.0))
    atoms["C'"] = attach(atoms["C"], atoms["CA"], atoms["N"], 0.133, 122, angles[:, 0])
    atoms["O'"] = attach(atoms["CA"], atoms["N"], atoms["C'"], 0.123, 123, np.zeros(n))
    atoms["N'"] = attach(atoms["N"], atoms["CA"], atoms["C"], 0.133, 116, angles[:, 1])
    atoms["O"] = attach(atoms["N"], atoms["CA"], atoms["C"], 0.123, 121, angles[:, 1] + 180)
    frames = np.stack(list(atoms.values()), axis=1) + 0.006 * rng.standard_normal((n, len(ATOMS), 3))
    turns = np.linalg.qr(rng.standard_normal((n, 3, 3)))[0]
    turns *= np.linalg.det(turns)[:, None, None]
    return frames @ turns + rng.uniform(0.2, 1.6, (n, 1, 3))


if DATA:
    frames = rng.permutation(np.load(DATA)["xyz_nm"])[:8000, list(ATOMS.values())].astype(float)
else:
    frames = toy_frames(2500 if QUICK else 8000)
print(f"{len(frames)} frames of the {'trajectory' if DATA else 'toy'}")

# %% [markdown]
# ## Superposition
#
# A molecule drifts and tumbles: six dimensions that we do not ask about. They are taken out by turning every frame so
# that the four atoms at its center, N, CA, CB and C, lie where they lie on average. Columns are not scaled afterwards:
# distances in nanometers are the geometry.

# %%
CORE = [PLACE[name] for name in ("N", "CA", "CB", "C")]


def superpose(frames, reference):
    """Turn and move frames so that their core comes as near as possible to a reference, shape (4, 3)."""
    centered = frames - frames[:, CORE].mean(1, keepdims=True)
    left, _, right = np.linalg.svd(centered[:, CORE].swapaxes(1, 2) @ (reference - reference.mean(0)))
    left[:, :, -1] *= np.sign(np.linalg.det(left @ right))[:, None]  # turns, no mirrors
    return centered @ (left @ right)


reference = frames[0, CORE]
for _ in range(5):
    reference = superpose(frames, reference)[:, CORE].mean(0)
frames = superpose(frames, reference)
X = frames.reshape(len(frames), -1)
angles = torsions(frames)

# %% [markdown]
# ## How many dimensions?

# %%
geometry = carre.fit(X, max_steps=300 if QUICK else 700, width=96, random_state=0, verbose=False)
estimate = geometry.estimate_dimension(X[:2000])
print(f"σ = {geometry.bandwidth:.3f} nm: {geometry.scale_profile.reason}")
print(estimate)
save(plot_scale_profile(geometry.scale_profile), "scale")
axes = plot_dimension_map(angles[:2000], estimate.local)
axes.set(xlabel="φ", ylabel="ψ", title="Local dimension of 2,000 frames, over φ and ψ")
save(axes, "dimension")

# %% [markdown]
# ![Eigenvalues against the scale: two stay up while the others fall](../images/tutorials/alanine_dipeptide_scale.png)
#
# At the scale that the library chose without being told anything, σ = 0.035 nm, the dimension is 2: 2 to 2 as σ varies
# by √2, and 87% of the frames have it.
#
# ![The dimension of each frame over φ and ψ: two nearly
# everywhere](../images/tutorials/alanine_dipeptide_dimension.png)
#
# Nobody named φ and ψ, nor the number two. But the two is not sharp: the eigenvalues are 0.88 and 0.73, the third
# 0.29. Below σ ≈ 0.02 nm other ways to tremble come into view, bending angles above all, and dimensions are counted by
# the dozen; above 0.07 nm the circles that atoms move on are no larger than the blur. A molecule has a dimension *at a
# scale*. Frames with 3 lie all over the map, those with 4 mostly at φ > 0, where there are hardly any frames (1.3%).
#
# And it depends on which atoms are asked. With the two methyl carbons among them, at the ends of long levers, a fit on
# 5,000 frames found no clear gap: 7 dimensions at its default scale of 0.013 nm, and 2 only from far, at 0.055 nm, for
# 71%.
#
# ## Which directions?
#
# For this there is an oracle. To change φ alone is to turn C' and O' about the bond N–CA; to change ψ alone is to turn
# O and N' about CA–C. That makes two vectors in 24 dimensions at each frame, exactly. The tangent plane that was
# learned should be the one that they span. Two planes have two angles between them, both zero when they are the same.

# %%
shown = frames[:1500]
turned = np.zeros((len(shown), 2, len(ATOMS), 3))
for number, (tail, head, moved) in enumerate((("N", "CA", ("C'", "O'")), ("CA", "C", ("O", "N'")))):
    axis = shown[:, PLACE[head]] - shown[:, PLACE[tail]]
    for name in moved:
        turned[:, number, PLACE[name]] = np.cross(axis, shown[:, PLACE[name]] - shown[:, PLACE[head]])
truth = np.linalg.qr(turned.reshape(len(shown), 2, -1).swapaxes(1, 2))[0]


def plane_angles(planes):
    """Return the two angles between given planes and the true ones, in degrees."""
    cosines = np.linalg.svd(truth.swapaxes(1, 2) @ planes, compute_uv=False)
    return np.degrees(np.arccos(cosines.clip(0, 1)))


learned = plane_angles(geometry.tangent_basis(shown.reshape(len(shown), -1), dimension=2))
chance = plane_angles(np.linalg.qr(rng.standard_normal(truth.shape))[0])
for name, found in (("learned", learned), ("by chance", chance)):
    print(f"{name}: median angles to the plane of φ and ψ", np.median(found, axis=0).round(1))

axes = Figure(figsize=(7, 3.2), layout="constrained").subplots()
for values, color, name in ((learned, BLUE, "learned"), (chance, GRAY, "planes at random")):
    axes.hist(values.ravel(), bins=np.arange(0, 91, 1.5), color=color, alpha=0.7, label=name)
axes.set(xlabel="angle to the plane of φ and ψ, degrees", ylabel="frames", title="Is the tangent plane the right one?")
axes.legend()
save(axes, "tangents")

# %% [markdown]
# ![Angles to the true plane: a peak at a few degrees, far from those of random
# planes](../images/tutorials/alanine_dipeptide_tangents.png)
#
# In the median the two angles are 5.6° and 8.9°; for a plane at random they would be 69° and 85°. The frames tremble
# themselves, so zero was not to be had.
#
# ## From one shape to another
#
# The extended shape, (φ, ψ) = (−150°, 150°), and the helical one, (−75°, −20°), are nearly half a turn of ψ apart. On
# the straight line between their coordinates atoms do not turn, they pass through the molecule. A geodesic should turn
# them, and leave bonds alone.


# %%
def near(phi, psi):
    """Return the frame whose torsions are nearest to given ones."""
    away = (angles - [phi, psi] + 180) % 360 - 180
    return X[np.linalg.norm(away, axis=1).argmin()]


def unfold(points):
    """See rows of coordinates as frames."""
    return np.asarray(points).reshape(*np.shape(points)[:-1], len(ATOMS), 3)


def stretched(points):
    """Return by how much the most stretched or shrunken bond differs from its mean length, as a share."""
    lengths, mean = (
        np.stack([np.linalg.norm(f[..., PLACE[a], :] - f[..., PLACE[b], :], axis=-1) for a, b in BONDS], axis=-1)
        for f in (unfold(points), frames)
    )
    return np.abs(lengths / mean.mean(0) - 1).max(-1)


def company(points):
    """Count the frames whose torsions are within 10° of those of given points."""
    away = (torsions(unfold(points))[:, None] - angles + 180) % 360 - 180
    return (np.linalg.norm(away, axis=2) < 10).sum(1)


start, end = near(-150, 150), near(-75, -20)
path = geometry.path(start, end)
ways = {"along the data": path.numpy()[0], "straight": np.linspace(start, end, path.n_nodes)}
print(path, f"{len(X)} frames differ by {np.median(stretched(X)):.0%} in the median")
for name, points in ways.items():
    print(f"{name}: bonds off by {stretched(points[1:-1]).max():.0%}, {company(points).min()} frames or more near")


def unrolled(angles):
    """Count ψ from −270° to 90°, so that the way over ±180° is in one piece."""
    return np.stack([angles[..., 0], (angles[..., 1] - 90) % 360 - 270], axis=-1)


panels = Figure(figsize=(10.5, 4.6), layout="constrained").subplots(1, 2)
drawn = {name: unrolled(torsions(unfold(points))) for name, points in ways.items()}
plot_paths(drawn, points=unrolled(angles), axes=panels[0])
panels[0].set(xlabel="φ", ylabel="ψ", title="In the plane of the torsions")
for (name, points), color in zip(ways.items(), (BLUE, ORANGE), strict=True):
    panels[1].plot(np.linspace(0, 1, len(points)), 100 * stretched(points), color=color, label=name)
panels[1].axhline(100 * np.median(stretched(X)), color=GRAY, linestyle="--", label="median over the frames")
panels[1].set(xlabel="along the way", ylabel="% off", ylim=(0, None), title="How far the worst bond is from its length")
panels[1].legend()
save(panels, "paths")

# %% [markdown]
# The picture stands at the top of this page. Along the geodesic no bond differs from its mean length by more than 2%,
# less than in a typical frame (6%), since a path runs through the middle of what trembles. On the straight line a bond
# shrinks to half its length. Everywhere on the geodesic there are at least 8 frames with torsions within 10°; near
# those of the straight line's points, at least 3. That is the weaker evidence: a broken molecule has torsions, too.
# And a geodesic is the shortest way, by the distance that atoms travel, not the most probable one.
#
# ## Where it does not work
#
# The left-handed shape, φ ≈ 60°, is rare, and frames on the way to it are all but missing. Ask for a path
# nevertheless:

# %%
if DATA:
    hard = geometry.path(near(-75, -40), near(60, 40))
    points = hard.numpy()[0]
    print(hard, f"bonds off by {stretched(points[1:-1]).max():.0%}; {company(points).min()} frames or more near")
    print(f"{np.mean(angles[:, 0] > 0):.1%} of the frames have φ > 0")

# %% [markdown]
# It comes, and it is no good: a bond is off by 34%, there are stretches without a single frame, and `connected` is
# True: the check, which asks the same network, did not notice. Where samples are missing, no geometry can be learned
# from them; a measure that knows the subject, like the bond lengths here, is worth more than any flag.
