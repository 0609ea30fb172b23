"""Calculus and curvature along the data, as methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from carre import toolkit
from carre.estimator.calls import ToolCalls


class CalculusMethods(ToolCalls):
    """The methods of `MetricMatching` that differentiate: functions along the data, or the data themselves.

    In the examples ``geometry`` was fitted on the 360 points X of a circle (`QueryMethods`).
    """

    def gradient(self, function: Callable[[Tensor], Tensor], X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the intrinsic gradient of a torch function at each point (`carre.toolkit.gradient`).

        Example:
            >>> gradient = geometry.gradient(lambda x: x.sum(1), X[:1])
            >>> np.abs(gradient).round(1)  # of x + y: at (1, 0) the circle goes up
            array([[0., 1.]])
        """
        return self._at(toolkit.gradient, X, bandwidth, function, vectors=True, **options)

    def gradient_of_values(self, samples: Any, values: Any, X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the intrinsic gradient of a quantity that is known at samples (`carre.toolkit.gradient_of_values`).

        Example:
            >>> gradient = geometry.gradient_of_values(X, X.sum(axis=1), X[:1])
            >>> np.abs(gradient).round(1)
            array([[0., 1.]])
        """
        known = self._validated(samples, name="samples").tensor.detach().to(self.device_)
        return self._at(toolkit.gradient_of_values, X, bandwidth, known, values, vectors=True, **options)

    def carre_du_champ_of(self, left: Any, right: Any, X: Any, bandwidth: Any = None) -> Any:
        """Return Γ(f, h) = ½⟨∇f, ∇h⟩ of torch functions or maps at each point (`carre.toolkit.carre_du_champ`).

        Example:
            >>> gamma = geometry.carre_du_champ_of(lambda x: x[:, 0], None, X)
            >>> bool(np.allclose(gamma, X[:, 1] ** 2 / 2, atol=0.1))  # ½ sin²
            True
        """
        return self._at(toolkit.carre_du_champ, X, bandwidth, left, right)

    def laplacian(self, function: Callable[[Tensor], Tensor], X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the Laplace–Beltrami operator of a torch function at each point (`carre.toolkit.laplacian`).

        Example:
            >>> laplacian = geometry.laplacian(lambda x: x[:, 0], X[::30])
            >>> bool(np.allclose(laplacian, -X[::30, 0], atol=0.2))  # (cos)'' = −cos
            True
        """
        return self._at(toolkit.laplacian, X, bandwidth, function, **options)

    def divergence(
        self, vector_field: Callable[[Tensor], Tensor], X: Any, bandwidth: Any = None, **options: Any
    ) -> Any:
        """Return the divergence along the data of a torch vector field (`carre.toolkit.divergence`).

        Example:
            >>> rotation = lambda x: x.roll(1, 1) * x.new_tensor([-1.0, 1.0])
            >>> bool(np.allclose(geometry.divergence(rotation, X[::30]), 0.0, atol=0.2))
            True
        """
        return self._at(toolkit.divergence, X, bandwidth, vector_field, **options)

    def hessian(self, function: Callable[[Tensor], Tensor], X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the Hessian along the data in a tangent basis, and that basis (`carre.toolkit.hessian`).

        Example:
            >>> hessian, basis = geometry.hessian(lambda x: x[:, 0], X[:1])
            >>> round(float(hessian[0, 0, 0]))  # cos falls away from 1 like 1 − t²/2
            -1
        """
        return self._at(toolkit.hessian, X, bandwidth, function, **options)

    def second_fundamental_form(self, X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return how the data bend, and the basis it refers to (`carre.toolkit.second_fundamental_form`).

        Example:
            >>> form, basis = geometry.second_fundamental_form(X[:1])
            >>> round(float(np.linalg.norm(form[0, 0, 0])))  # 1 / radius
            1
        """
        return self._at(toolkit.second_fundamental_form, X, bandwidth, **options)

    def mean_curvature(self, X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the mean curvature vector at each point (`carre.toolkit.mean_curvature`).

        Example:
            >>> bool(np.allclose(geometry.mean_curvature(X[::30]), -X[::30], atol=0.2))  # inwards
            True
        """
        return self._at(toolkit.mean_curvature, X, bandwidth, vectors=True, **options)

    def scalar_curvature(self, X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the scalar curvature at each point (`carre.toolkit.scalar_curvature`).

        Example:
            >>> np.abs(geometry.scalar_curvature(X[:3])).round(1)  # a curve unrolls without stretching
            array([0., 0., 0.])
        """
        return self._at(toolkit.scalar_curvature, X, bandwidth, **options)
