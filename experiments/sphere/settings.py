"""What the comparison on a sphere is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_ENGINES = ("auto", "torch", "faiss", "hnsw", "ivf", "sklearn")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class SphereSettings:
    """A sphere S^d, randomly rotated in R^D, and the methods that are to find its tangent spaces.

    Every method gets the same samples. Its settings (σ, and k where it has neighbors) are searched on the same
    validation points, with labels, as in [RMM, App. E]; errors are then measured at other points.

    Attributes:
        dimension: d.
        ambient_dim: D.
        rank: Rows of the learned factor.
        sizes: Numbers of samples.
        bandwidths: The grid of σ. The learned field is asked only within its trained range.
        n_neighbors: The grid of k, the paper's and three steps more; values beyond the number of samples are left out.
        engines: Searches for the kernel, by the names of `carre.neighbors.build_index`.
        n_validation: Points that settings are searched on.
        n_test: Points that errors are measured at.
        n_timed: Points per timed call of a kernel.
        n_timed_learned: Points per timed call of the learned field.
        with_score: Whether to measure the Jacobian of the learned denoiser, in full and by ``rank`` products.
        profile_size: The size at which mean eigenvalues are recorded.
        unevenness: How uneven the density on the sphere is: coordinates are stretched by up to e^u either way before a
            point is brought to the sphere. On the uniform sphere, 0, every neighborhood is symmetric about its
            point, and a local covariance has the right eigenvectors at any size; elsewhere it has not.
        with_hull: Whether to fit the smallest size a second time in the linear hull, as the defaults do.
        fit: Settings of `carre.fit`, beyond the rank.
        seed: Of everything random.

    Example:
        >>> from dataclasses import replace
        >>> from experiments.sphere.settings import QUICK
        >>> smaller = replace(QUICK, sizes=(1000,))
        >>> smaller.dimension, smaller.ambient_dim, smaller.sizes
        (5, 32, (1000,))
    """

    dimension: int = 8
    ambient_dim: int = 64
    rank: int = 16
    sizes: tuple[int, ...] = (8192, 65_536, 524_288, 2_097_152, 8_388_608)
    bandwidths: tuple[float, ...] = tuple(2.0**k for k in range(-9, 5))
    n_neighbors: tuple[int, ...] = tuple(2**p for p in range(3, 15))
    engines: tuple[str, ...] = ("torch",)
    n_validation: int = 1000
    n_test: int = 2000
    n_timed: int = 4096
    n_timed_learned: int = 2**19
    with_score: bool = True
    profile_size: int = 524_288
    unevenness: float = 0.0
    with_hull: bool = True
    fit: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.dimension < self.ambient_dim:
            raise ValueError(
                f"dimension must be at least 1 and below ambient_dim, {self.ambient_dim}; got {self.dimension}"
            )
        if not self.sizes or min(self.sizes) < 100:
            raise ValueError(f"sizes must be at least 100 samples each; got {self.sizes}")
        if not self.engines or not set(self.engines) <= set(_ENGINES):
            raise ValueError(f"engines must be among {', '.join(_ENGINES)}; got {', '.join(self.engines)}")
        if not 0 <= self.unevenness <= 3:
            raise ValueError(f"unevenness must lie between 0 and 3; got {self.unevenness}")
        if not self.dimension <= self.rank:
            raise ValueError(f"rank must be at least the dimension, {self.dimension}; got {self.rank}")
        if not self.bandwidths or min(self.bandwidths) <= 0:
            raise ValueError(f"bandwidths must be positive; got {self.bandwidths}")
        if not self.n_neighbors or min(self.n_neighbors) < 2:
            raise ValueError(f"n_neighbors must be at least 2; got {self.n_neighbors}")


FULL = SphereSettings()
"""The paper's setting, for a GPU."""

CPU = SphereSettings(
    sizes=(8192, 65_536, 1_048_576),
    n_neighbors=tuple(2**p for p in range(3, 12)),
    engines=("torch", "faiss", "hnsw"),
    n_validation=300,
    n_test=500,
    n_timed=256,
    n_timed_learned=16_384,
    with_score=False,
    with_hull=False,
)
"""The same sphere on a CPU, with the searches that are used there."""

QUICK = SphereSettings(
    dimension=5,
    ambient_dim=32,
    rank=12,
    sizes=(1000, 8000),
    bandwidths=tuple(2.0**k for k in range(-6, 3)),
    n_neighbors=(32, 128, 512),
    n_validation=200,
    n_test=500,
    n_timed=256,
    n_timed_learned=4096,
    profile_size=8000,
    with_hull=False,
    fit=MappingProxyType({"max_steps": 1000, "width": 128, "batch_size": 256}),
)
"""A small sphere, for a look on any machine."""
