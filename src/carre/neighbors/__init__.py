"""Nearest neighbors: exact on any device, or approximate."""

from carre.neighbors.brute_force import TorchIndex
from carre.neighbors.choice import build_index
from carre.neighbors.engines import FaissIndex, SklearnIndex, measure_recall
from carre.neighbors.protocol import NeighborIndex, Neighbors

__all__ = [
    "FaissIndex",
    "NeighborIndex",
    "Neighbors",
    "SklearnIndex",
    "TorchIndex",
    "build_index",
    "measure_recall",
]
