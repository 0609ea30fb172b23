"""How far features move along each metric, where no truth is known [RMM, Sec. 5.2, Fig. 4]."""

from __future__ import annotations

import copy
import hashlib
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre import __version__
from carre.boundary import as_images
from carre.fields import MetricField, NoDenoiserError
from experiments.measures.accuracy import grid_search
from experiments.measures.speed import hardware
from experiments.measures.stability import (
    Features,
    PairedDifference,
    Stability,
    compare_stability,
    feature_stability,
    fingerprints,
)
from experiments.stability.methods import OURS, RANDOM, UNCENTERED, Method, Timed, methods_on
from experiments.stability.settings import StabilitySettings

Row = Mapping[str, Any]
"""What was found of one setting of a method."""

CHOICE = (
    "Settings are those with the least mean over the radii of the mean shift divided by that of random directions on "
    "the same validation images: every radius weighs the same."
)


def run_stability(
    field: MetricField,
    validation: Any,
    test: Any,
    features: Features,
    settings: StabilitySettings,
    *,
    uncentered: MetricField | None = None,
    extra: Mapping[str, MetricField] | None = None,
    source: Mapping[str, Any] | None = None,
    done: Mapping[str, Any] | None = None,
    report: Callable[[str], None] | None = None,
    save: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Compare a learned metric with random directions, the Stein score and the score Jacobian; return what JSON holds.

    All methods take the denoiser of ``field``, so that they differ in the metric alone. Each is tuned on the validation
    images and measured on the test images; then ours is compared with each, image by image.

    Args:
        field: The learned metric, with a denoiser.
        validation: Images that settings are searched on, (n, channels, height, width), where it shall be computed.
        test: Other images, that methods are compared on.
        features: What an image is described by, such as `experiments.measures.inception_features`.
        settings: Radii, grids and sizes.
        uncentered: A metric that was learned uncentered, if there is one.
        extra: More fields to compare with, by name, that do not depend on σ: a true tangent space, say.
        source: Says what was measured: the model, the images, the features. Kept in the results.
        done: Results of a run that was interrupted: what they hold is not measured again, if they are of the same
            settings, images and source.
        report: Told in a line what was measured, as it goes.
        save: Given the results so far after every setting.

    Example:
        >>> from carre import ExactField
        >>> from experiments.stability.settings import StabilitySettings
        >>> from carre.manifolds import FiniteSet
        >>> images = torch.randn(30, 1, 2, 2, generator=torch.Generator().manual_seed(0))
        >>> field = ExactField(FiniteSet(images.flatten(1)))
        >>> settings = StabilitySettings(radii=(1.0,), bandwidths=(0.5, 1.0), n_validation=10, n_images=20)
        >>> results = run_stability(field, images[:10], images[10:], lambda x: x, settings)
        >>> results["methods"]["metric matching"]["test"]["mean"]  # the features are the image itself
        [1.0]
    """
    images = _Images(_enough("validation", validation, settings.n_validation), _enough("test", test, settings.n_images))
    if images.test.shape[1:] != images.validation.shape[1:]:
        shapes = tuple(images.validation.shape[1:]), tuple(images.test.shape[1:])
        raise ValueError(f"test must be images of the shape of validation, {shapes[0]}; got {shapes[1]}")
    _check_denoiser(field, images.validation, settings)
    results = _begin(images, settings, dict(source or {}), done)
    run = _Run(images, features, settings, results, report or (lambda line: None), save or (lambda results: None))
    for method in methods_on(field, settings, uncentered, extra):
        run.measure(method)
    run.compare()
    return results


@dataclass(frozen=True, eq=False)
class _Images:
    """The images that are used, no more."""

    validation: Float[Tensor, "n channels height width"]
    test: Float[Tensor, "m channels height width"]

    def describe(self) -> dict[str, Any]:
        """Name them, so that a run on others is told apart."""
        parts = {"validation": self.validation, "test": self.test}
        return {
            name: {
                "n": len(part),
                "shape": list(part.shape[1:]),
                "fingerprint": hashlib.sha256("".join(fingerprints(part.flatten(1))).encode()).hexdigest()[:16],
            }
            for name, part in parts.items()
        }


@dataclass(frozen=True, eq=False)
class _Run:
    """A run: what it measures with, and what it has found."""

    images: _Images
    features: Features
    settings: StabilitySettings
    results: dict[str, Any]
    tell: Callable[[str], None]
    save: Callable[[dict[str, Any]], None]

    def measure(self, method: Method) -> None:
        """Search the settings of a method, then measure it on the test images; whatever is known is left as it is."""
        entry = self.results["methods"].setdefault(method.name, {"grid": [], "seconds": 0.0})
        for setting in method.settings():
            if not any(row["setting"] == setting for row in entry["grid"]):
                row = self._row(method, setting, self.images.validation[: method.n_validation], "validation", entry)
                entry["grid"].append(row | {"relative": self._relative(row)})
                self.save(self.results)
        if "test" not in entry:
            self._choose(method, entry)
            row = self._row(method, entry["chosen"], self.images.test[: method.n_images], "test", entry)
            entry["test"] = row | interval_of_mean(row, self.settings.radii, self.settings.level)
            self.compare()
            self.save(self.results)

    def compare(self) -> None:
        """Bring the comparisons up to date."""
        self.results.update(compare_methods(self.results["methods"], self.settings.radii, self.settings.level))

    def _row(
        self, method: Method, setting: Mapping[str, float], images: Tensor, split: str, entry: dict[str, Any]
    ) -> dict[str, Any]:
        """Measure one setting on some images."""
        start = time.perf_counter()
        timed = Timed(method.make(**{name: value for name, value in setting.items() if name != "bandwidth"}))
        found = feature_stability(
            timed,
            images,
            self.features,
            self.settings.radii,
            self.settings.n_draws if split == "test" else self.settings.n_validation_draws,
            bandwidth=setting.get("bandwidth", self.settings.bandwidths[0]),
            seed=self.settings.seed,
            batch_size=method.batch_size,
        )
        seconds = time.perf_counter() - start
        entry["seconds"] += seconds
        values = ", ".join(f"{radius:g}: {mean:.4g}" for radius, mean in zip(found.radii, found.mean, strict=True))
        self.tell(f"{method.name}{_where(setting)}, {len(images)} {split} images, {seconds:.1f} s: {values}")
        return {
            "setting": dict(setting),
            "n_images": len(images),
            "mean": rounded(found.mean),
            "deviation": rounded(found.deviation),
            "of_images": rounded(found.of_images),
            "seconds": rounded(torch.tensor(seconds)),
            "metric_seconds_per_image": rounded(torch.tensor(statistics.median(timed.seconds))),
        }

    def _relative(self, row: Mapping[str, Any]) -> float:
        """Compare with random directions on the same images, every radius with the same weight."""
        grid = self.results["methods"][RANDOM]["grid"]
        random = torch.tensor((grid[0] if grid else row)["of_images"])[:, : row["n_images"]].mean(1)
        if not bool((random > 0).all()):
            raise ValueError(
                "features must move along random directions; they do not at some radius. Check their scale"
            )
        return float(rounded((torch.tensor(row["of_images"]).mean(1) / random).mean()))

    def _choose(self, method: Method, entry: dict[str, Any]) -> None:
        """Take the best of the grid."""
        entry["chosen"], entry["at_end"] = {}, []
        if not method.grids:
            return

        def error(**setting: float) -> float:
            return float(next(row["relative"] for row in entry["grid"] if row["setting"] == setting))

        tuned = grid_search(error, method.grids)
        entry["chosen"], entry["at_end"] = dict(tuned.setting), list(tuned.at_end)


def _begin(
    images: _Images, settings: StabilitySettings, source: dict[str, Any], done: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Begin anew, or with what an interrupted run has found."""
    results: dict[str, Any] = {
        "hardware": hardware(images.validation.device),
        "date": date.today().isoformat(),
        "versions": {
            "carre": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "source": source,
        "images": images.describe(),
        "settings": settings.to_dict(),
        "choice": CHOICE,
        "methods": {},
    }
    if done is None or not _is_of_the_same(results, done):
        return results
    # A copy: what was given is not added to.
    known = copy.deepcopy(dict(done.get("methods", {})))
    if done.get("source", {}).get(UNCENTERED) != source.get(UNCENTERED):
        known.pop(UNCENTERED, None)
    return results | {"methods": known}


def _is_of_the_same(results: Mapping[str, Any], done: Mapping[str, Any]) -> bool:
    """Say whether earlier results were measured of the same; whether a second model was there does not matter."""

    def what(some: Mapping[str, Any]) -> list[Any]:
        main = {name: value for name, value in some.get("source", {}).items() if name != UNCENTERED}
        return [main, some.get("images"), some.get("settings")]

    return what(results) == what(done)


def _enough(name: str, images: Any, count: int) -> Tensor:
    given = as_images(images, name=name)
    if len(given.tensor) < count:
        raise ValueError(f"{name} must be at least {count} images, as the settings ask for; got {len(given.tensor)}")
    assert given.sample_shape is not None
    return given.tensor[:count].reshape(count, *given.sample_shape)


def _check_denoiser(field: MetricField, images: Tensor, settings: StabilitySettings) -> None:
    try:
        with torch.no_grad():
            field.denoise(images[:1].flatten(1), settings.bandwidths[0])
    except NoDenoiserError as error:
        raise NoDenoiserError(
            "field must have a denoiser, which all methods share; this one was trained uncentered. Fit one with "
            "method='joint', and give this one as uncentered"
        ) from error


def _where(setting: Mapping[str, float]) -> str:
    """Name a setting in a line."""
    symbols = {"bandwidth": "σ", "strength": "λ/σ²"}
    return "".join(f", {symbols.get(name, name)} = {value:g}" for name, value in setting.items())


def compare_methods(methods: Mapping[str, Any], radii: Sequence[float], level: float) -> dict[str, Any]:
    """Compare our method with every other one, image by image.

    Differences are ours minus theirs: negative where ours moves features less.

    Args:
        methods: What was measured of each method so far.
        radii: The lengths of the perturbations.
        level: The probability with which the intervals of all radii of a comparison hold together.

    Returns:
        Under "paired", each method on the test images, both at their own best settings; under "same_bandwidth", both
        at the same σ on the validation images, for all settings; under "beaten", where another one is better than ours
        beyond chance, on either.
    """
    ours = methods.get(OURS, {})
    paired: dict[str, Any] = {}
    same: dict[str, list[Any]] = {}
    beaten: list[Any] = []
    for name, theirs in methods.items():
        if name == OURS:
            continue
        if "test" in ours and "test" in theirs:
            found = compare_stability(_stability(ours["test"], radii), _stability(theirs["test"], radii), level=level)
            paired[name] = _plain(found)
            sides = {"method": name, "images": "test", "ours": ours["chosen"], "theirs": theirs["chosen"]}
            beaten += [sides | loss for loss in _losses(found)]
        same[name] = []
        for mine, other in _of_same_bandwidth(ours.get("grid", []), theirs["grid"]):
            found = compare_stability(_stability(mine, radii), _stability(other, radii), level=level)
            sides = {"ours": mine["setting"], "theirs": other["setting"]}
            same[name].append(sides | _plain(found))
            beaten += [{"method": name, "images": "validation", **sides, **loss} for loss in _losses(found)]
    return {"paired": paired, "same_bandwidth": same, "beaten": beaten}


def interval_of_mean(row: Row, radii: Sequence[float], level: float) -> dict[str, list[float]]:
    """Compute the confidence interval of the mean shift: that of the difference from a metric that moves nothing."""
    measured = _stability(row, radii)
    nothing = Stability(measured.radii, torch.zeros_like(measured.shifts), measured.images)
    found = compare_stability(measured, nothing, level=level)
    return {"low": rounded(found.low), "high": rounded(found.high)}


def rounded(values: torch.Tensor) -> Any:
    """Turn numbers into lists, to six digits: more is noise, and fills files."""
    if values.ndim == 0:
        return float(f"{float(values):.6g}")
    return [rounded(part) for part in values]


def _of_same_bandwidth(ours: Sequence[Row], theirs: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Pair settings of equal σ; what does not depend on σ is paired with all."""
    return [
        (mine, other)
        for other in theirs
        for mine in ours
        if other["setting"].get("bandwidth", mine["setting"]["bandwidth"]) == mine["setting"]["bandwidth"]
    ]


def _stability(row: Row, radii: Sequence[float]) -> Stability:
    """Take the means at each image for draws: all methods see the same images in the same order, or the first ones."""
    of_images = torch.tensor(row["of_images"], dtype=torch.float64)
    names = tuple(str(place) for place in range(of_images.shape[1]))
    return Stability(tuple(radii), of_images.unsqueeze(-1), names)


def _plain(found: PairedDifference) -> dict[str, Any]:
    return {name: rounded(getattr(found, name)) for name in ("difference", "low", "high", "ratio", "share")} | {
        "wins": found.wins.tolist(),
        "loses": found.loses.tolist(),
        "n_images": found.n_images,
    }


def _losses(found: PairedDifference) -> list[dict[str, float]]:
    """List the radii at which ours is worse beyond chance."""
    return [
        {"radius": found.radii[place]}
        | {name: rounded(getattr(found, name)[place]) for name in ("difference", "low", "high")}
        for place in range(len(found.radii))
        if bool(found.loses[place])
    ]
