"""``python -m carre.cli``."""

from carre.cli import app

app(prog_name="carre")
