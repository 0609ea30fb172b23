"""The command ``carre``: each subcommand reads its arguments, calls the library, and prints.

Nothing here imports torch when it is imported: the help should not wait for it.
"""

from carre.cli.application import app, benchmark
from carre.cli.demonstration import demo
from carre.cli.fitting import fit
from carre.cli.information import info
from carre.cli.paths import path
from carre.cli.questions import denoise, dimension, gradient, tangent
from carre.cli.reporting import report
from carre.cli.sphere import sphere
from carre.cli.stability import stability

__all__ = ["app"]

for command in (fit, dimension, tangent, denoise, path, gradient, report, info, demo):
    app.command()(command)
benchmark.command()(sphere)
benchmark.command()(stability)
app.add_typer(benchmark, name="benchmark")
