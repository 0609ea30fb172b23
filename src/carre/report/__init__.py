"""The HTML page on a fitted geometry: one file to look around in.

Needs matplotlib (``pip install 'carre[plots]'``).
"""

from carre.arguments import check_room
from carre.report.page import write_report

__all__ = ["write_report"]

check_room(__name__)
