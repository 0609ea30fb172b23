"""Nearest neighbors: exact on any device, or approximate."""

from carre.arguments import check_room
from carre.neighbors.engines import FaissIndex, SklearnIndex, build_index, measure_recall
from carre.neighbors.index import NeighborIndex, Neighbors, TorchIndex

__all__ = ["FaissIndex", "NeighborIndex", "Neighbors", "SklearnIndex", "TorchIndex", "build_index", "measure_recall"]

check_room(__name__)
