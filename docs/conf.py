"""Configuration of the documentation site: `make docs` builds it into docs/_build/html."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import carre

project = "Carré"
author = "The Carré developers"
copyright = author
version = release = carre.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_parser",
    "sphinx_copybutton",
    "outside",
    "reference",
    "tutorials",
]
exclude_patterns = ["_build", "_extensions", "conf.py", "figures.py", "house.py", "how_to_figures.py", "screenshots.py"]
highlight_language = "none"
# Dashes only: quotes stay as they are typed, since primes and code need them.
smartquotes_action = "D"

# Pages in Markdown: anchors for headings, so that links read the same here and on a code host.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "html_image"]

# Pages that show a file from outside this folder. Links to such a file lead to its page.
mirrored_pages = {
    "changelog": "CHANGELOG.md",
    "results/core": "experiments/core/README.md",
    "results/sphere": "experiments/sphere/README.md",
    "results/toolkit": "experiments/toolkit/README.md",
    "results/dimension": "experiments/dimension/README.md",
    "results/mnist": "experiments/mnist/README.md",
    "results/stability": "experiments/stability/README.md",
    "results/limits": "experiments/limits/README.md",
    "results/streams": "experiments/streams/README.md",
    "results/times": "experiments/times/README.md",
    "results/distances": "experiments/distances/README.md",
    "results/together": "experiments/together/README.md",
    "results/map": "experiments/map/README.md",
    "results/recipe": "experiments/recipe/README.md",
    "results/attack": "experiments/attack/README.md",
    "results/own_loop": "experiments/own_loop/README.md",
    "results/newcomer": "experiments/newcomer/README.md",
    "results/eigenfunctions": "experiments/eigenfunctions/README.md",
    "results/cells": "experiments/cells/README.md",
    "results/sphere_gpu_tables": "experiments/sphere/gpu/tables.md",
    "results/sphere_cpu_tables": "experiments/sphere/cpu/tables.md",
    "results/sphere_uneven_tables": "experiments/sphere/uneven/tables.md",
    "results/toolkit_tables": "experiments/toolkit/tables.md",
    "results/dimension_tables": "experiments/dimension/tables.md",
    "results/mnist_tables": "experiments/mnist/tables.md",
    "results/stability_tables": "experiments/stability/tables.md",
    "results/stability_shipped_tables": "experiments/stability/shipped/tables.md",
    "results/stability_before_tables": "experiments/stability/before/tables.md",
    "results/recipe_tables": "experiments/recipe/tables.md",
    "results/attack_tables": "experiments/attack/tables.md",
}

# Docstrings: single backticks are references where they name something, and code otherwise.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_attr_annotations = False

# The theme is used as it comes: system fonts and local scripts, so that pages open without a network.
html_theme = "furo"
html_title = "Carré"
html_static_path = ["_static"]
html_css_files = ["carre.css"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
