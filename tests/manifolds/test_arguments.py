"""Wrong arguments are answered by a sentence that names them."""

from collections.abc import Callable

import pytest
import torch

from carre.manifolds import (
    Box,
    CliffordTorus,
    ClosedCurve,
    Cylinder,
    Embedded,
    FiniteSet,
    Gaussian,
    Interval,
    Product,
    SpecialOrthogonal3,
    Sphere,
    SubspaceGaussian,
    SwissRoll,
    TorusOfRevolution,
    Union,
)

from .oracles import SMOOTH

zeros, eye = torch.zeros(2).double(), torch.eye(2).double()
mistakes = {
    "dimension must be at least 1; got 0": lambda: Sphere(0),
    "radius must be positive; got -1.0": lambda: Sphere(2, -1.0),
    "high must be larger than low": lambda: Interval(1.0, 0.0),
    "components must hold at least one manifold": lambda: Product([]),
    "radii must hold at least one number": lambda: CliffordTorus([]),
    "deviation must be positive; got 0.0": lambda: Cylinder(1.0, 0.0),
    "lows and highs must have the same length": lambda: Box([0.0], [1.0, 2.0]),
    r"must share one ambient dimension; got \[2, 3\].*embed\(3\)": lambda: Union([Sphere(1), Sphere(2)]),
    r"weights must be 1 positive numbers; got \[0.0\]": lambda: Union([Sphere(1)], [0.0]),
    "covariance must be symmetric": lambda: Gaussian(zeros, torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double()),
    "covariance must be positive semi-definite": lambda: Gaussian(zeros, -eye),
    "basis must have orthonormal columns": lambda: SubspaceGaussian(2 * eye, torch.ones(2).double()),
    "variances must be 2 positive numbers": lambda: SubspaceGaussian(eye, zeros),
    "basis must have 3 columns": lambda: Embedded(Sphere(2), eye),
    "ambient_dim must be at least 3; got 2": lambda: Sphere(2).embed(2),
    "level must be positive; got 0.0": lambda: Sphere(2).noisy(0.0),
    "samples must have shape": lambda: FiniteSet(torch.zeros(0, 2)),
    "weights must be 2 positive numbers": lambda: FiniteSet(eye, zeros),
    "end must be larger than start": lambda: SwissRoll(start=2.0, end=1.0),
    "minor must be smaller than major": lambda: TorusOfRevolution(1.0, 1.0),
    "n_nodes must be at least 32": lambda: TorusOfRevolution(n_nodes=8),
    "function must map parameters": lambda: ClosedCurve(torch.cos),
    "points must have shape .batch, 3.; got .4, 2.": lambda: Sphere(2).tangent_basis(torch.zeros(4, 2)),
    "bandwidth must be positive; got 0.0": lambda: Sphere(1).posterior(eye, 0.0),
    "bandwidth must be positive; got -1.0": lambda: Sphere(1).posterior(eye, torch.tensor([1.0, -1.0])),
    "must be at least .*Increase n_nodes": lambda: TorusOfRevolution().posterior(torch.ones(1, 3), 1e-3),
    "components must share one dimension.*tangent_projector": lambda: SMOOTH["union"].dimension,
    r"got \[1, 3\]. Use local_dimension": lambda: SMOOTH["union"].tangent_basis(torch.zeros(1, 5).double()),
}  # fmt: skip


@pytest.mark.parametrize(("message", "mistake"), mistakes.items(), ids=range(len(mistakes)))
def test_mistakes_are_named(message: str, mistake: Callable[[], object]):
    with pytest.raises(ValueError, match=message):
        mistake()


def test_missing_posterior_names_the_remedy(rng):
    manifold = SpecialOrthogonal3()
    points = manifold.sample(2, generator=rng)
    with pytest.raises(NotImplementedError, match=r"use FiniteSet\(manifold.sample\(n\)\)"):
        manifold.posterior(points, 0.1)


def test_finite_set_has_no_tangent_space():
    atoms = FiniteSet(eye)
    with pytest.raises(NotImplementedError, match="no tangent space"):
        atoms.tangent_basis(eye)
    with pytest.raises(NotImplementedError, match="no tangent space"):
        atoms.local_dimension(eye)


def test_finite_set_draws_its_atoms(rng):
    atoms = FiniteSet(eye, torch.tensor([1.0, 3.0]).double())
    draws = atoms.sample(4000, generator=rng)
    assert float(atoms.distance(draws).max()) == 0.0
    # Four standard errors of a probability of ¾.
    assert float(draws[:, 1].mean()) == pytest.approx(0.75, abs=4 * (0.1875 / 4000) ** 0.5)
