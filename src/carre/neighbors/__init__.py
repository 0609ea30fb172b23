"""Nearest neighbors: exact on any device, or approximate."""

from carre.neighbors.engines import FaissIndex, SklearnIndex, build_index, measure_recall
from carre.neighbors.index import NeighborIndex, Neighbors, TorchIndex

__all__ = ["FaissIndex", "NeighborIndex", "Neighbors", "SklearnIndex", "TorchIndex", "build_index", "measure_recall"]
