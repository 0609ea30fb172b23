"""The command ``carre``: each subcommand reads its arguments, calls the library, and prints.

Nothing here imports torch when it is imported: the help should not wait for it.
"""

from carre.cli.application import app
from carre.cli.fitting import fit
from carre.cli.mapping import rows_to_files
from carre.cli.questions import denoise, dimension, gradient, path, tangent
from carre.cli.reporting import demo, info, report

__all__ = ["app"]

for command in (fit, dimension, tangent, denoise, path, gradient, report, info, demo):
    app.command()(command)
    if command is gradient:
        app.command("map")(rows_to_files)
