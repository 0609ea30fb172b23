"""Everything that was chosen: the fit, the paths and what they are compared with, the scales that are looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from carre.networks import UNetSettings


@dataclass(frozen=True)
class Fit:
    """How the geometry is learned.

    Attributes:
        network: The sizes of the two U-Nets.
        rank: Rows of the factor.
        bandwidth: The default σ; None lets the library choose it.
        bandwidth_range: The σ that are trained on. The root mean square norm of a normalized digit is 28.
        batch_size: Noisy digits per step.
        learning_rate: Its peak; None takes the library's.
        minutes: The budget; None leaves it to ``max_steps``.
        max_steps: Steps at most; None leaves it to ``minutes``.
        validation_fraction: Share of the training digits that are held out to watch the losses.
        n_landmarks: Training digits that are saved with the model.
    """

    network: UNetSettings = field(default_factory=lambda: UNetSettings(96, (1, 1), n_blocks=2, attention=(1,), patch=2))
    rank: int = 100
    bandwidth: float | None = None
    bandwidth_range: tuple[float, float] = (0.4, 10.0)
    batch_size: int = 512
    learning_rate: float | None = 2e-3
    minutes: float | None = 8.0
    max_steps: int | None = None
    validation_fraction: float = 0.05
    n_landmarks: int = 500


@dataclass(frozen=True)
class Method:
    """How paths are made.

    Attributes:
        kind: "lerp"; "flow" (the formula of `carre.toolkit.Flow`, with nothing done about the end); "thread",
            "interpolate" or "geodesic" (the toolkit's `Thread`, `Flow` and `Geodesic` themselves).
        metric: "learned"; "stein" for the Stein-score metric of the learned denoiser; for flows also "none", the
            identity, with the denoiser's whole pull as landing.
        bandwidth: σ.
        step: η.
        ridge: δ.
        landing: α.
        landing_bandwidth: σ of the landing; None takes ``bandwidth``. Flows only.
        finest: σ at the ends. Threads only.
        slope: How fast σ grows with the distance from the ends. Threads only.
        max_steps: Steps or sweeps at most.
        strength: λ/σ² of the Stein-score metric; 0 is the Euclidean metric.
    """

    kind: str = "flow"
    metric: str = "learned"
    bandwidth: float = 2.0
    step: float = 0.1
    ridge: float = 0.0
    landing: float = 0.5
    landing_bandwidth: float | None = None
    finest: float = 0.5
    slope: float = 0.3
    max_steps: int = 300
    strength: float = 1.0


LERP, LEARNED, PAPER = "LERP", "learned", "learned, the paper's recipe"
STEIN, STEIN_THREAD, EUCLIDEAN = "Stein, as published", "Stein, as a thread", "no metric, as a thread"
FLOW, EUCLIDEAN_FLOW = "learned, flow with landing", "no metric, flow with landing"
METHODS = {
    LERP: Method(kind="lerp"),
    STEIN: Method(metric="stein", landing=0.0),
    STEIN_THREAD: Method(kind="thread", metric="stein", max_steps=40),
    EUCLIDEAN: Method(kind="thread", metric="stein", strength=0.0, max_steps=40),
    # η 0.01 for Γ = G/2 and 2¹³ steps: 41 units of time for G, here in 512 longer steps.
    PAPER: Method(bandwidth=7.0, step=0.08, ridge=1e-4, landing=0.0, max_steps=512),
    FLOW: Method(bandwidth=2.0, ridge=0.01, landing=0.1, landing_bandwidth=1.0),
    EUCLIDEAN_FLOW: Method(metric="none", bandwidth=2.0, landing=0.1, landing_bandwidth=1.0),
    LEARNED: Method(kind="thread", bandwidth=3.0, max_steps=40),
}


@dataclass(frozen=True)
class Settings:
    """The whole experiment.

    Attributes:
        fit: How the geometry is learned.
        methods: How paths are made, by name.
        path_bandwidths: σ at which the learned thread is shown, all else equal.
        searched: Values to try for each attribute of the learned thread; ``strength`` is of Stein's metric.
        pairs: Test and validation pairs of each class.
        n_nodes: Nodes of every path, at equal distances, ends included; odd, so that one is the middle.
        bandwidths: σ at which the spectrum is looked at, beside the model's default.
        n_spectra: Held-out digits of each class at these σ; at the default σ, all.
        eigenvectors: Which of them are shown, counted from 1.
        noise: Deviations of the noise that is removed.
        restore_bandwidths: σ at which damaged digits are led back to the data.
        n_restored: Held-out digits that are spoiled.
        n_train: Training digits; None takes all.
        n_test: Held-out digits; None takes all.
        classifier_epochs: Epochs of the classifier.
        checked_bandwidths: σ at which eigenvalues are held against an exact kernel and against noisy digits.
        n_checked: Noisy test digits for that; clean ones against the kernel, a fifth as many.
        timed_batches: Batch sizes of the training steps that are timed.
        timed_steps: How many steps are timed.
        mixed_precision: Whether the geometry is asked in bfloat16 on a GPU.
        seed: Of everything random.
    """

    fit: Fit = field(default_factory=Fit)
    methods: dict[str, Method] = field(default_factory=lambda: dict(METHODS))
    path_bandwidths: tuple[float, ...] = (1.0, 2.0, 4.0)
    searched: dict[str, tuple[float, ...]] = field(
        default_factory=lambda: {
            "bandwidth": (1.4, 2.0, 2.8),
            "landing": (0.2, 0.3, 0.5),
            "slope": (0.3, 0.6, 1.0),
            "strength": (1.0, 10.0, 100.0),
        }
    )
    pairs: tuple[int, int] = (50, 30)
    n_nodes: int = 17
    bandwidths: tuple[float, ...] = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
    n_spectra: int = 200
    eigenvectors: tuple[int, ...] = (1, 2, 3, 4, 5, 50, 100)
    noise: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    restore_bandwidths: tuple[float, ...] = (1.0, 2.0, 4.0)
    n_restored: int = 1000
    n_train: int | None = None
    n_test: int | None = None
    classifier_epochs: float = 10.0
    checked_bandwidths: tuple[float, ...] = (1.0, 2.0, 4.0, 5.6, 8.0)
    n_checked: int = 500
    timed_batches: tuple[int, ...] = (512, 1024)
    timed_steps: int = 30
    mixed_precision: bool = False
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)


FULL = Settings()
# A minute on two processor cores. Nothing good comes of it, but everything is gone through.
QUICK = Settings(
    fit=Fit(
        UNetSettings(channels=8, multipliers=(1,), n_blocks=1, attention=(), patch=4),
        rank=8,
        bandwidth=2.0,
        bandwidth_range=(0.5, 8.0),
        batch_size=64,
        minutes=None,
        max_steps=40,
        n_landmarks=20,
    ),
    methods={name: replace(method, max_steps=6) for name, method in METHODS.items()},
    path_bandwidths=(2.0,),
    searched={"bandwidth": (2.0, 4.0), "landing": (0.2, 0.5), "strength": (1.0, 10.0)},
    pairs=(2, 1),
    n_nodes=5,
    bandwidths=(1.0, 4.0),
    n_spectra=4,
    eigenvectors=(1, 2, 8),
    noise=(1.0,),
    restore_bandwidths=(2.0,),
    n_restored=20,
    n_train=2000,
    n_test=400,
    classifier_epochs=1.0,
    checked_bandwidths=(4.0,),
    n_checked=8,
    timed_batches=(4,),
    timed_steps=1,
)
