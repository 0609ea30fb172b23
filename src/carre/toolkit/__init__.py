"""What a metric is for: functions of any field."""

from carre.arguments import check_room
from carre.toolkit.bridges import DiffusionCarreDuChamp, MetricTensor
from carre.toolkit.calculus import carre_du_champ, divergence, gradient, gradient_of_values, hessian, laplacian
from carre.toolkit.curvature import Curvature, curvature, second_fundamental_form, sectional_curvature
from carre.toolkit.descent import Minimum, gradient_flow, minimize
from carre.toolkit.dimension import (
    DimensionEstimate,
    RankAdvice,
    eigenvalues,
    estimate_dimension,
    local_dimension,
    rank_cuts_off,
    recommend_rank,
    slope_dimension,
    spectral_dimension,
)
from carre.toolkit.eigenfunctions import Eigenfunctions, eigenfunctions
from carre.toolkit.exponential import exponential, logarithm, transport
from carre.toolkit.geodesic import EnergyGeodesic, Geodesic
from carre.toolkit.graph import SampleGraph, sample_graph
from carre.toolkit.landing import distance_from_data
from carre.toolkit.noise import NoiseEstimate, estimate_noise
from carre.toolkit.pairwise import distances
from carre.toolkit.path import Path
from carre.toolkit.paths import PATH_METHODS, Flow, PathMethod, Straight, Thread, path
from carre.toolkit.scale import (
    KernelChoice,
    LocalScales,
    ScaleProfile,
    choose_bandwidth,
    choose_kernel,
    choose_local_bandwidths,
)
from carre.toolkit.tangent import TangentFrame, project, tangent_angles, tangent_basis, tangent_frame
from carre.toolkit.validity import Validity, calibration_error, check, predictive_score

__all__ = [
    "PATH_METHODS",
    "Curvature",
    "DiffusionCarreDuChamp",
    "DimensionEstimate",
    "Eigenfunctions",
    "EnergyGeodesic",
    "Flow",
    "Geodesic",
    "KernelChoice",
    "LocalScales",
    "MetricTensor",
    "Minimum",
    "NoiseEstimate",
    "Path",
    "PathMethod",
    "RankAdvice",
    "SampleGraph",
    "ScaleProfile",
    "Straight",
    "TangentFrame",
    "Thread",
    "Validity",
    "calibration_error",
    "carre_du_champ",
    "check",
    "choose_bandwidth",
    "choose_kernel",
    "choose_local_bandwidths",
    "curvature",
    "distance_from_data",
    "distances",
    "divergence",
    "eigenfunctions",
    "eigenvalues",
    "estimate_dimension",
    "estimate_noise",
    "exponential",
    "gradient",
    "gradient_flow",
    "gradient_of_values",
    "hessian",
    "laplacian",
    "local_dimension",
    "logarithm",
    "minimize",
    "path",
    "predictive_score",
    "project",
    "rank_cuts_off",
    "recommend_rank",
    "sample_graph",
    "second_fundamental_form",
    "sectional_curvature",
    "slope_dimension",
    "spectral_dimension",
    "tangent_angles",
    "tangent_basis",
    "tangent_frame",
    "transport",
]

check_room(__name__, but=("DimensionEstimate",))
