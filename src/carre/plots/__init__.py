"""Pictures of a geometry as matplotlib figures: axes in, axes out.

Needs matplotlib (``pip install 'carre[plots]'``).
"""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ImportError("carre.plots needs matplotlib; install it with: pip install 'carre[plots]'")

from carre.arguments import check_room
from carre.plots.curves import (
    plot_dimension_by_class,
    plot_dimension_over_scales,
    plot_scale_profile,
    plot_spectrum,
    plot_training,
)
from carre.plots.images import plot_denoised_images, plot_path_strip, plot_tangent_images
from carre.plots.panels import figure_of, render_png
from carre.plots.plane import (
    plot_coordinates,
    plot_dimension_map,
    plot_eigenfunction,
    plot_metric_ellipses,
    plot_overview,
    plot_paths,
    plot_scalar_field,
    plot_tangents,
    plot_vectors,
)

__all__ = [
    "figure_of",
    "plot_coordinates",
    "plot_denoised_images",
    "plot_dimension_by_class",
    "plot_dimension_map",
    "plot_dimension_over_scales",
    "plot_eigenfunction",
    "plot_metric_ellipses",
    "plot_overview",
    "plot_path_strip",
    "plot_paths",
    "plot_scalar_field",
    "plot_scale_profile",
    "plot_spectrum",
    "plot_tangent_images",
    "plot_tangents",
    "plot_training",
    "plot_vectors",
    "render_png",
]

check_room(__name__)
