"""Benchmarks that a command regenerates: the learned metric beside the classical ones, as the data grow."""

from carre.benchmarks.settings import CPU, FULL, QUICK, SphereSettings
from carre.benchmarks.sphere import run_sphere
from carre.benchmarks.step import measure_product_rate, measure_step
from carre.benchmarks.table import sphere_tables

__all__ = [
    "CPU",
    "FULL",
    "QUICK",
    "SphereSettings",
    "measure_product_rate",
    "measure_step",
    "run_sphere",
    "sphere_tables",
]
