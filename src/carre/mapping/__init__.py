"""Answers at many rows: files to files in bounded memory, by one process, by several, or by an engine."""

from carre.arguments import check_room
from carre.mapping.answers import Asked
from carre.mapping.engines import map_in_processes, map_on_ray
from carre.mapping.rows import RowMapper
from carre.mapping.task import Mapped, MapPlan, MapProgress, MapTask, map_rows

__all__ = [
    "Asked",
    "MapPlan",
    "MapProgress",
    "MapTask",
    "Mapped",
    "RowMapper",
    "map_in_processes",
    "map_on_ray",
    "map_rows",
]

check_room(__name__, but=("Asked", "MapPlan", "MapProgress", "MapTask", "Mapped"))
