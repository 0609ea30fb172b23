"""Geometries as folders: a description, the tensors, and a page for people. No code is stored or run."""

from carre.arguments import check_room
from carre.storage._export import export
from carre.storage.folder import save
from carre.storage.places import load, pretrained_models, push_to_hub
from carre.storage.tensors import LoadError

__all__ = ["LoadError", "export", "load", "pretrained_models", "push_to_hub", "save"]

check_room(__name__)
