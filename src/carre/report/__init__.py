"""Pictures of a fitted geometry, and the HTML page that holds them.

Needs matplotlib (``pip install 'carre[plots]'``); nothing else in the library does.
"""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ImportError("carre.report needs matplotlib; install it with: pip install 'carre[plots]'")

from carre.report.classes import plot_class_spectra, plot_dimension_over_scales
from carre.report.figures import plot_dimension_by_class, plot_scale_profile, plot_training
from carre.report.images import plot_denoised_images, plot_image_rows, plot_tangent_images
from carre.report.page import Fact, Picture, Section, render_png, write_page

__all__ = [
    "Fact",
    "Picture",
    "Section",
    "plot_class_spectra",
    "plot_denoised_images",
    "plot_dimension_by_class",
    "plot_dimension_over_scales",
    "plot_image_rows",
    "plot_scale_profile",
    "plot_tangent_images",
    "plot_training",
    "render_png",
    "write_page",
]
