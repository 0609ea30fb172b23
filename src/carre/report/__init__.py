"""Pictures of a fitted geometry, and the HTML page that holds them.

Needs matplotlib (``pip install 'carre[plots]'``); nothing else in the library does.
"""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ImportError("carre.report needs matplotlib; install it with: pip install 'carre[plots]'")

from carre.report.classes import plot_class_spectra, plot_dimension_by_class, plot_dimension_over_scales
from carre.report.directions import plot_metric_ellipses, plot_tangents, plot_vectors
from carre.report.figures import plot_scale_profile, plot_spectrum, plot_training
from carre.report.images import plot_denoised_images, plot_tangent_images
from carre.report.maps import plot_dimension_map, plot_paths, plot_scalar_field
from carre.report.overview import plot_overview
from carre.report.panels import figure_of, render_png
from carre.report.report import write_report
from carre.report.stability import plot_bandwidths, plot_stability
from carre.report.strips import plot_image_rows, plot_path_strip

__all__ = [
    "figure_of",
    "plot_bandwidths",
    "plot_class_spectra",
    "plot_denoised_images",
    "plot_dimension_by_class",
    "plot_dimension_map",
    "plot_dimension_over_scales",
    "plot_image_rows",
    "plot_metric_ellipses",
    "plot_overview",
    "plot_path_strip",
    "plot_paths",
    "plot_scalar_field",
    "plot_scale_profile",
    "plot_spectrum",
    "plot_stability",
    "plot_tangent_images",
    "plot_tangents",
    "plot_training",
    "plot_vectors",
    "render_png",
    "write_report",
]
