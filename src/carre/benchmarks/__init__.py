"""Benchmarks that a command regenerates: the learned metric beside the classical ones, as the data grow."""

from carre.benchmarks.blobs import BlobField, Blobs, draw_blobs
from carre.benchmarks.cost import QUICK_COST, CostSettings, CostShape, measure_cost
from carre.benchmarks.cost_table import cost_tables
from carre.benchmarks.settings import CPU, FULL, QUICK, SphereSettings
from carre.benchmarks.sphere import run_sphere
from carre.benchmarks.stability import run_stability
from carre.benchmarks.stability_settings import (
    CIFAR10_STABILITY,
    MNIST_STABILITY,
    QUICK_STABILITY,
    StabilitySettings,
)
from carre.benchmarks.stability_table import stability_tables
from carre.benchmarks.step import measure_product_rate, measure_step
from carre.benchmarks.table import sphere_tables

__all__ = [
    "CIFAR10_STABILITY",
    "CPU",
    "FULL",
    "MNIST_STABILITY",
    "QUICK",
    "QUICK_COST",
    "QUICK_STABILITY",
    "BlobField",
    "Blobs",
    "CostSettings",
    "CostShape",
    "SphereSettings",
    "StabilitySettings",
    "cost_tables",
    "draw_blobs",
    "measure_cost",
    "measure_product_rate",
    "measure_step",
    "run_sphere",
    "run_stability",
    "sphere_tables",
    "stability_tables",
]
