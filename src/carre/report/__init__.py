"""The HTML page on a fitted geometry: one file to look around in.

Needs matplotlib (``pip install 'carre[plots]'``).
"""

from carre.report.page import write_report

__all__ = ["write_report"]
