"""Every public callable, found by its signature, and those that are asked in other ways."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import carre

# Made by the library and read by people: nothing is computed of what they are given.
_RECORDS = """
    Curvature DimensionEstimate Eigenfunctions Evaluation History JacobianProbe KernelChoice LearnedCarreDuChamp
    Local LocalScales
    Minimum Neighbors NoiseEstimate Perturbation Posterior Progress RankAdvice SampleGraph ScaleProfile TangentFrame
    TraceEstimate Validity ColumnConcern CellError MetricMatching Asked Block MapPlan MapProgress MapTask
    Mapped Source
"""
# What others are made of, or have to be like: asked through those.
_BASES = """
    DataField DataField.accept DataField.sample_graph DataField.samples DataField.scale_at Field Manifold Metric
    MetricField MetricField.denoise MetricField.metric NeighborIndex NeighborIndex.search PathMethod PathMethod.draw
    BandwidthDistribution BandwidthDistribution.quantile Field.points_at_once Metric.apply Metric.congruence
    Metric.frobenius_product Metric.solve Metric.tangent_basis
"""
# Spoken between the rooms, with tensors that were checked at the door.
_INNER = """
    ArgumentError.worded BalancedScales.between CellError.worded Checkpoint.damaged Checkpoint.read
    Checkpoint.told Checkpoint.write
    DataScale.balance DataScale.batch_size DataScale.evaluations DataScale.fills DataScale.harder
    DataScale.learning_rate DataScale.max_steps DataScale.mixed_precision DataScale.n_references
    DataScale.polish_batch DataScale.rank DataScale.round_steps DataScale.width DataScale.worth Flow.draw
    FrozenDenoiser.train Geodesic.draw
    Geodesic.first_curves Geodesic.shorten Geometry.accept Geometry.scale_at ImageScale.balance ImageScale.batch_size
    ImageScale.evaluations ImageScale.harder ImageScale.learning_rate ImageScale.max_steps ImageScale.mixed_precision
    ImageScale.n_references ImageScale.polish_batch MetricModel.along FactorNetwork.envelope Neighbors.to
    NeuralField.points_at_once Objective.above_floor Objective.image Objective.losses Path.in_units
    Perturbation.centered Perturbation.image SampleGraph.along SampleGraph.curves
    SampleGraph.doubtful SampleGraph.routes Straight.draw TangentFrame.project Thread.draw
    TorchIndex.search_wide rebuild_model trusted likely_steps seconds_per_step ScaleProfile.picture Asked.at
    Asked.of MapTask.begin MapTask.check MapTask.plan MapTask.run MapTask.write Source.blocks Source.of_shard
    map_in_processes
    map_on_ray
"""
# Files and folders are corpora of their own.
_FILES = """
    FaissIndex Normalization.from_dict from_anndata load_anndata load_celeba load_cifar10 load_ffhq load_mnist
    open_source push_to_hub read_idx
"""
EXEMPT = (
    dict.fromkeys(_RECORDS.split(), "a record that the library makes")
    | dict.fromkeys(_BASES.split(), "a base or a protocol")
    | dict.fromkeys(_INNER.split(), "spoken inside the house")
    | dict.fromkeys(_FILES.split(), "reads files, or needs what is not here")
)


def public() -> dict[str, Callable[..., Any]]:
    """Find every public callable: functions, classes, and the methods of these that are ours."""
    found: dict[str, Callable[..., Any]] = {}
    for room in ("", *carre._ROOMS):
        module = importlib.import_module(f"carre.{room}" if room else "carre")
        for name in module.__all__:
            thing = getattr(module, name)
            if not callable(thing) or not str(thing.__module__).startswith("carre"):
                continue
            found[thing.__qualname__] = thing
            for other, method in inspect.getmembers(thing, inspect.isroutine) if inspect.isclass(thing) else ():
                if not other.startswith("_") and str(getattr(method, "__module__", "")).startswith("carre"):
                    found.setdefault(method.__qualname__, method)
    return found


def has_arguments(thing: Callable[..., Any]) -> bool:
    """Say whether there is something to attack: an error says what it is told, a call without arguments does too."""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return False
    return bool(set(inspect.signature(thing).parameters) - {"self"})


def attacked() -> dict[str, Callable[..., Any]]:
    """Find the callables whose arguments are attacked; the passes of networks are torch's own."""
    return {
        name: thing
        for name, thing in public().items()
        if name not in EXEMPT and not name.endswith(".forward") and has_arguments(thing)
    }
