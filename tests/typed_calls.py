"""Calls that mypy accepts, and calls that it must refuse: ``make lint`` checks this file, nothing runs it.

A call that is no longer refused leaves an unused ``type: ignore`` behind, and that is an error.
"""

import numpy as np

import carre


def calls(X: np.ndarray, geometry: carre.Geometry) -> None:
    """Call the front door, the tools and the faces by their arguments."""
    carre.fit(X, max_steps=10)
    carre.fit(X, steps=10)  # type: ignore[call-arg]
    geometry.path(X[0], X[1], n_nodes=9)
    geometry.path(X[0], X[1], nodes=9)  # type: ignore[call-arg]
    geometry.path(X[0], X[1], method=carre.Thread(slope=0.5))
    carre.Thread(steepness=0.5)  # type: ignore[call-arg]
    geometry.tangent_basis(X, 2, bandwidth=0.1)
    geometry.tangent_basis(X, dim=2)  # type: ignore[call-arg]
    geometry.gradient(lambda x: x[:, 0], X, dimension=2)
    geometry.gradient(lambda x: x[:, 0], X, dim=2)  # type: ignore[call-arg]
    geometry.minimize(lambda x: x[:, 0], X, max_step=3)  # type: ignore[call-arg]
    geometry.check(X, sample=X)  # type: ignore[call-arg]
    geometry.at(X, sigma=0.1)  # type: ignore[call-arg]
    carre.write_report(geometry, X, "page.html", titel="A page")  # type: ignore[call-arg]
    carre.save(geometry, "folder", overwrite=True)  # type: ignore[call-arg]
