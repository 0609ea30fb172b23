"""``python -m carre``."""

from carre.cli import app

app(prog_name="carre")
