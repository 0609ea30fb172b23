"""Saving and loading as methods: the fitted attributes become a record, and a record fitted attributes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from carre.fitting import choose_device
from carre.persistence import GeometryState, LoadError, find, load, save

# They are given again at loading: code is not stored, and a device is not part of a geometry.
_NOT_STORED = ("device", "denoiser")

_Geometry = TypeVar("_Geometry", bound="SavingMethods")


class SavingMethods:
    """What `MetricMatching` needs to be kept in a folder, shared, and loaded elsewhere."""

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        dtype: str | None = None,
        n_landmarks: int | None = None,
        card: str | None = None,
    ) -> None:
        """Save the fitted geometry in a folder: config.json, model.safetensors and README.md.

        The folder appears when it is complete; a geometry that was saved there before is replaced then. It contains
        landmarks, that is some of the samples.

        Args:
            folder: A new or empty folder, or one that holds a saved geometry and nothing else.
            dtype: ``"float16"`` or ``"bfloat16"`` to store the weights and the landmarks in half the space, rounded to
                11 or 8 binary digits. None stores everything exactly.
            n_landmarks: How many landmarks to store; None for all.
            card: Sections in Markdown to add to README.md; it may begin with a front matter (license, datasets).

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> from carre import MetricMatching
            >>> circle = np.stack([np.cos(np.arange(100)), np.sin(np.arange(100))], axis=1)
            >>> geometry = MetricMatching(max_steps=20, width=16, bandwidth=0.1, random_state=0).fit(circle)
            >>> with tempfile.TemporaryDirectory() as place:
            ...     geometry.save_pretrained(place + "/circle")
            ...     again = MetricMatching.from_pretrained(place + "/circle", device=geometry.device_)
            >>> bool((again.denoise(circle) == geometry.denoise(circle)).all())
            True
        """
        check_is_fitted(self, "field_")
        names = [field.name for field in dataclasses.fields(GeometryState) if field.name != "parameters"]
        fitted: dict[str, Any] = {name: getattr(self, f"{name}_", None) for name in names}
        parameters: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        stored = {name: value for name, value in parameters.items() if name not in _NOT_STORED}
        state = GeometryState(**fitted, parameters=stored)
        save(state, folder, dtype=dtype, n_landmarks=n_landmarks, card=card)

    @classmethod
    def from_pretrained(
        cls: type[_Geometry],
        name_or_folder: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        network: nn.Module | None = None,
        denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
        verify: bool = True,
    ) -> _Geometry:
        """Load a geometry that `save_pretrained` wrote, or one that ships with the library. No code is loaded.

        Args:
            name_or_folder: The path of a folder, or one of the names of `carre.persistence.pretrained_models`.
            device: Where to compute; None takes a GPU if there is one.
            network: The module that the geometry was fitted with, if it was one of your own.
            denoiser: The denoiser that the geometry was fitted around, if there was one.
            verify: Whether to check the SHA-256 of the tensors.

        Raises:
            LoadError: There is no such geometry, or something is wrong with its files.

        Example:
            >>> from carre import MetricMatching
            >>> MetricMatching.from_pretrained("./nowhere")  # doctest: +ELLIPSIS
            Traceback (most recent call last):
                ...
            carre.persistence.errors.LoadError: name_or_folder must be the path of an existing folder, ...
        """
        place = choose_device(device, torch.empty(0))
        state = load(find(name_or_folder), network=network, denoiser=denoiser, verify=verify)
        given = {"device": device, "denoiser": denoiser, **({} if network is None else {"network": network})}
        unknown = sorted(state.parameters.keys() - cls().get_params(deep=False).keys())  # type: ignore[attr-defined]
        if unknown:
            raise LoadError(f"config.json has parameters that {cls.__name__} does not know: {unknown}. Upgrade carre")
        geometry = cls(**{**state.parameters, **given})
        for field in dataclasses.fields(state):
            value = getattr(state, field.name)
            # scikit-learn asks whether there is an attribute of the column names, not whether it is None.
            if field.name != "parameters" and not (field.name == "feature_names_in" and value is None):
                setattr(geometry, f"{field.name}_", value)
        geometry.device_ = place  # type: ignore[attr-defined]
        return geometry
