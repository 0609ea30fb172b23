"""Fitted geometries as folders: a description, the tensors, and a page for people. No code is stored or run."""

from carre.persistence.errors import LoadError
from carre.persistence.export import export_field
from carre.persistence.folder import load, save
from carre.persistence.shipped import find, pretrained_models
from carre.persistence.state import GeometryState

__all__ = ["GeometryState", "LoadError", "export_field", "find", "load", "pretrained_models", "save"]
