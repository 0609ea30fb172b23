"""Fitted geometries as folders: a description, the tensors, and a page for people. No code is stored or run."""

from carre.storage.errors import LoadError
from carre.storage.export import export_field
from carre.storage.folder import load, save
from carre.storage.shipped import find, pretrained_models
from carre.storage.state import GeometryState

__all__ = ["GeometryState", "LoadError", "export_field", "find", "load", "pretrained_models", "save"]
