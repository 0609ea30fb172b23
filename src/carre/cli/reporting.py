"""``carre report``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from carre.cli import inputs
from carre.cli.options import AsJson, Columns, Data, Device, Model, Sigma, check_positive, listed, pair_of
from carre.cli.output import COMMAND, show
from carre.cli.wording import naming

_SHAPE = "HEIGHT,WIDTH or CHANNELS,HEIGHT,WIDTH"


def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    labels: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of DATA that says the class.")] = None,
    pair: Annotated[
        list[str] | None, typer.Option(metavar="I,J", help="Rows to draw a path between; may be given repeatedly.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    image_shape: Annotated[
        str | None, typer.Option(metavar="SHAPE", help=f"Draw the rows of a table as images: {_SHAPE}.")
    ] = None,
    sigma: Sigma = None,
    columns: Columns = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Write everything that MODEL knows of DATA on one HTML page that needs nothing else.

    Columns of DATA that are no coordinates are shown, too.

    \b
    Examples:
      carre report model points.csv -o report.html
      carre report model plants.csv --labels species --pair 0,99 --title Plants
      carre report mnist digits/ -o digits.html
    """
    from carre.data.writing import check_output  # noqa: PLC0415

    check_positive("--sigma", sigma)
    check_output(out, (".html", ".htm"))
    shape = None if image_shape is None else _shape(image_shape)
    geometry = inputs.load_model(model, device)
    drop = None if labels is None else [labels]
    points = inputs.load_data(geometry, data, columns=listed(columns), drop=drop)
    pairs = [pair_of("--pair", text, len(points.values)) for text in pair or ()]
    labels = "label" if labels is None and points.is_images and "label" in points.other else labels
    if labels is not None and labels not in points.other:
        known = ", ".join(points.other) or "there are none beside the coordinates"
        raise ValueError(f"--labels must be a column of {data} that is no coordinate ({known}); got {labels!r}")
    with _folder_for(out), naming(path="--out", columns="the other columns of DATA"):
        page = geometry.report(
            points.values,
            out,
            labels=None if labels is None else points.other[labels],
            columns={name: column for name, column in points.other.items() if name != labels} or None,
            pairs=pairs or None,
            image_shape=shape,
            bandwidth=sigma,
            title=title,
            command=COMMAND.get(),
        )
    show({"report": str(page)}, {"report": page, "n": len(points.values)}, as_json=as_json)


@contextmanager
def _folder_for(file: Path) -> Iterator[None]:
    """Make the folder that a file goes into; where the work fails, remove it again."""
    made = [folder for folder in file.parents if not folder.exists()]
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


def _shape(text: str) -> tuple[int, ...]:
    parts = text.lower().replace("x", ",").split(",")
    if len(parts) not in (2, 3) or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--image-shape must be {_SHAPE}, like 8,8; got {text!r}")
    return tuple(int(part) for part in parts)
