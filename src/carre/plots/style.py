"""How every figure looks."""

from __future__ import annotations

from typing import Any

# The palette of Okabe and Ito, which is told apart with every kind of color vision.
BLUE, ORANGE, GREEN, INK, GRAY = "#0072B2", "#D55E00", "#009E73", "#222222", "#8A8A8A"
PINK, SKY, YELLOW = "#CC79A7", "#56B4E9", "#E69F00"

# Any: newer matplotlib types the keys as literals, older ones as strings.
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.labelsize": 10,
    "axes.edgecolor": GRAY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 2.0,
    "lines.markersize": 5.0,
    "legend.frameon": False,
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
    "figure.facecolor": "white",
}
