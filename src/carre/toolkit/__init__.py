"""What a metric is for: functions of any field."""

from carre.toolkit.bridges import DiffusionCarreDuChamp, MetricTensor
from carre.toolkit.calculus import carre_du_champ, gradient
from carre.toolkit.calibration import calibration_error, predictive_score
from carre.toolkit.curvature import (
    mean_curvature,
    ricci_curvature,
    scalar_curvature,
    second_fundamental_form,
    sectional_curvature,
)
from carre.toolkit.descent import Minimum, gradient_flow, minimize
from carre.toolkit.dimension import (
    DimensionEstimate,
    count_dimension,
    estimate_dimension,
    gap_dimension,
    local_dimension,
    participation_dimension,
    slope_dimension,
    trace_dimension,
)
from carre.toolkit.distance import distance_from_data
from carre.toolkit.exponential import exponential, logarithm
from carre.toolkit.geodesic import geodesic, geodesic_distances
from carre.toolkit.graph import SampleGraph, sample_graph
from carre.toolkit.interpolation import interpolate, lerp
from carre.toolkit.kernel_choice import KernelChoice, choose_kernel
from carre.toolkit.laplacian import divergence, hessian, laplacian
from carre.toolkit.path import Path
from carre.toolkit.rank import RankAdvice, rank_cuts_off, recommend_rank
from carre.toolkit.scale import LocalScales, ScaleProfile, choose_bandwidth, choose_local_bandwidths
from carre.toolkit.tangent import TangentFrame, project, tangent_angles, tangent_basis, tangent_frame
from carre.toolkit.thread import thread
from carre.toolkit.transport import parallel_transport
from carre.toolkit.validity import Validity, check
from carre.toolkit.values import gradient_of_values

__all__ = [
    "DiffusionCarreDuChamp",
    "DimensionEstimate",
    "KernelChoice",
    "LocalScales",
    "MetricTensor",
    "Minimum",
    "Path",
    "RankAdvice",
    "SampleGraph",
    "ScaleProfile",
    "TangentFrame",
    "Validity",
    "calibration_error",
    "carre_du_champ",
    "check",
    "choose_bandwidth",
    "choose_kernel",
    "choose_local_bandwidths",
    "count_dimension",
    "distance_from_data",
    "divergence",
    "estimate_dimension",
    "exponential",
    "gap_dimension",
    "geodesic",
    "geodesic_distances",
    "gradient",
    "gradient_flow",
    "gradient_of_values",
    "hessian",
    "interpolate",
    "laplacian",
    "lerp",
    "local_dimension",
    "logarithm",
    "mean_curvature",
    "minimize",
    "parallel_transport",
    "participation_dimension",
    "predictive_score",
    "project",
    "rank_cuts_off",
    "recommend_rank",
    "ricci_curvature",
    "sample_graph",
    "scalar_curvature",
    "second_fundamental_form",
    "sectional_curvature",
    "slope_dimension",
    "tangent_angles",
    "tangent_basis",
    "tangent_frame",
    "thread",
    "trace_dimension",
]
