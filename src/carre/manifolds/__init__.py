"""Oracles: manifolds with samples, tangent spaces and exact posteriors."""

from carre.manifolds.curve import ClosedCurve, Curve
from carre.manifolds.embedded import Embedded
from carre.manifolds.finite import FiniteSet
from carre.manifolds.gaussian import Gaussian, SubspaceGaussian
from carre.manifolds.interval import Interval
from carre.manifolds.manifold import Manifold, Posterior
from carre.manifolds.noisy import Noisy
from carre.manifolds.product import Box, CliffordTorus, Cylinder, Product
from carre.manifolds.rotations import SpecialOrthogonal3
from carre.manifolds.sphere import Sphere
from carre.manifolds.swiss_roll import SwissRoll
from carre.manifolds.torus import TorusOfRevolution
from carre.manifolds.union import Union, gaussian_mixture

__all__ = [
    "Box",
    "CliffordTorus",
    "ClosedCurve",
    "Curve",
    "Cylinder",
    "Embedded",
    "FiniteSet",
    "Gaussian",
    "Interval",
    "Manifold",
    "Noisy",
    "Posterior",
    "Product",
    "SpecialOrthogonal3",
    "Sphere",
    "SubspaceGaussian",
    "SwissRoll",
    "TorusOfRevolution",
    "Union",
    "gaussian_mixture",
]
