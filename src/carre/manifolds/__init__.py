"""Oracles: manifolds with samples, tangent spaces and exact posteriors."""

from carre.arguments import check_room
from carre.manifolds.combinations import Box, CliffordTorus, Cylinder, Product, Union, gaussian_mixture
from carre.manifolds.curves import ClosedCurve, Curve
from carre.manifolds.finite import FiniteSet
from carre.manifolds.flat import Gaussian, Interval, SubspaceGaussian
from carre.manifolds.manifold import Embedded, Manifold, Noisy, Posterior
from carre.manifolds.sphere import SpecialOrthogonal3, Sphere
from carre.manifolds.surfaces import SwissRoll, TorusOfRevolution

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

check_room(__name__)
