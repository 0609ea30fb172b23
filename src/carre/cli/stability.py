"""``carre benchmark stability``."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from carre.cli.options import Device, listed
from carre.cli.output import say
from carre.cli.stability_parts import Part, Request

_TITLES = {"synthetic": "Synthetic images", "mnist": "MNIST", "cifar10": "CIFAR-10", "cost": "Time and memory"}
_NOTHING = (
    "nothing to measure: give --mnist FOLDER, or --cifar10 FOLDER with --cifar10-model MODEL, or --cost, or --quick "
    "for synthetic images"
)


def stability(
    mnist: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the files of MNIST lie.")] = None,
    mnist_model: Annotated[str, typer.Option(metavar="MODEL", help="Geometry of MNIST; the shipped one.")] = "mnist",
    cifar10: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the files of CIFAR-10 lie.")] = None,
    cifar10_model: Annotated[str | None, typer.Option(metavar="MODEL", help="Geometry of CIFAR-10.")] = None,
    cifar10_uncentered: Annotated[
        str | None, typer.Option(metavar="MODEL", help="One of CIFAR-10 that was fitted uncentered, to compare with.")
    ] = None,
    inception: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The Inception network of the FID; wavelets without it.")
    ] = None,
    cost: Annotated[bool, typer.Option("--cost", help="Also measure time and memory of each metric.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Synthetic images of known geometry: a minute.")] = False,
    only: Annotated[
        str | None, typer.Option(help="Of what was given, only these: synthetic, mnist, cifar10, cost.")
    ] = None,
    images: Annotated[int | None, typer.Option(help="Test images.")] = None,
    draws: Annotated[int | None, typer.Option(help="Draws at each test image.")] = None,
    sigmas: Annotated[str | None, typer.Option(help="Scales σ to try, separated by commas.")] = None,
    radii: Annotated[str | None, typer.Option(help="Lengths of the perturbations, separated by commas.")] = None,
    mixed: Annotated[bool, typer.Option("--mixed", help="Round the networks to bfloat16, for all methods.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for results.json, tables.md and figures.")] = Path("stability"),
    device: Device = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Ask how far features move along the learned metric, and along others of the same denoiser.

    Every method is tuned on the same validation images, then compared with ours image by image. Results that are in OUT
    are kept and added to; an interrupted run goes on where it was.

    \b
    Examples:
      carre benchmark stability --quick
      carre benchmark stability --mnist data/mnist --inception inception.pt
      carre benchmark stability --cifar10 data --cifar10-model cifar --inception inception.pt --cost
    """
    changes: dict[str, Any] = {"n_images": images, "n_draws": draws, "seed": seed}
    changes |= {"bandwidths": _numbers("--sigmas", sigmas), "radii": _numbers("--radii", radii)}
    if cifar10 is not None and cifar10_model is None:
        raise ValueError("--cifar10-model must be given with --cifar10; no geometry of CIFAR-10 ships with the library")
    if cifar10 is None and (cifar10_model or cifar10_uncentered):
        raise ValueError("--cifar10 must be given, the folder of the images, with a geometry of CIFAR-10")
    loaded = {"--mnist-model": mnist_model != "mnist", "--inception": inception is not None, "--mixed": mixed}
    for option, is_given in loaded.items():
        if is_given and mnist is None and (cifar10 is None or option == "--mnist-model"):
            datasets = "--mnist" if option == "--mnist-model" else "--mnist or --cifar10"
            raise ValueError(f"{option} must be given with {datasets}; nothing else depends on it")
    asked = {"synthetic": quick, "mnist": mnist is not None, "cifar10": cifar10 is not None, "cost": cost}
    parts = _chosen([name for name, is_asked in asked.items() if is_asked], only)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder; {out} is a file")
    results = _earlier(out / "results.json")
    request = partial(Request, inception=inception, changes=changes, device=_device(device), mixed=mixed)
    requests = {
        "mnist": request("mnist", mnist, mnist_model),
        "cifar10": request("cifar10", cifar10, cifar10_model, cifar10_uncentered),
        "synthetic": request("synthetic"),
    }
    # What is wrong with any of them is said before anything is measured.
    ready = {name: requests[name].prepare() for name in parts if name != "cost"}
    for name in parts:
        if name == "cost":
            _measure_cost(results, out, _device(device), quick=quick)
        else:
            _measure(ready[name], results, out)
        text = _write_all(results, out)
    typer.echo(text)


def _device(asked: str | None) -> str:
    """Choose where to compute."""
    import torch  # noqa: PLC0415

    from carre.fitting import choose_device  # noqa: PLC0415

    return str(choose_device(asked, torch.empty(0)))


def _measure(part: Part, results: dict[str, Any], out: Path) -> None:
    """Run one part, writing results as they come."""
    from carre.benchmarks import run_stability  # noqa: PLC0415

    def save(found: dict[str, Any]) -> None:
        results[part.name] = found
        _write(out / "results.json", _as_json(results))

    results[part.name] = run_stability(
        part.field,
        part.validation,
        part.test,
        part.features,
        part.settings,
        uncentered=part.uncentered,
        extra=part.extra,
        source=part.source,
        done=results.get(part.name),
        report=lambda line: say(f"{_TITLES[part.name]}: {line}"),
        save=save,
    )


def _measure_cost(results: dict[str, Any], out: Path, device: str, *, quick: bool) -> None:
    """Measure time and memory, shape after shape; those that an earlier run has measured are kept."""
    from carre.benchmarks import QUICK_COST, CostSettings, measure_cost  # noqa: PLC0415
    from carre.benchmarks.cost import cost_ratios, hardware  # noqa: PLC0415

    settings = QUICK_COST if quick else CostSettings()
    plain = json.loads(json.dumps(dataclasses.asdict(settings)))
    earlier = results.get("cost", {})
    # Times of another machine are no times of this one.
    if earlier.get("settings") != plain or earlier.get("hardware") != hardware(device):
        earlier = {}
    for shape in settings.shapes:
        if any(known["name"] == shape.name for known in earlier.get("shapes", [])):
            continue
        found = measure_cost(dataclasses.replace(settings, shapes=(shape,)), device=device, report=say)
        joined = {name: [*earlier.get(name, []), *found[name]] for name in ("shapes", "rows")}
        earlier = found | joined | {"ratios": cost_ratios(joined["rows"]), "settings": plain}
        results["cost"] = earlier
        _write(out / "results.json", _as_json(results))


def _chosen(asked: list[str], only: str | None) -> list[str]:
    """Return the parts to measure."""
    if not asked:
        raise ValueError(_NOTHING)
    wanted = asked if only is None else listed(only) or []
    unknown = [name for name in wanted if name not in _TITLES]
    if unknown or not wanted:
        raise ValueError(f"--only must be among {', '.join(_TITLES)}, separated by commas; got {only!r}")
    missing = [name for name in wanted if name not in asked]
    if missing:
        given = "--quick" if missing[0] == "synthetic" else f"--{missing[0]}"
        raise ValueError(f"--only must name parts that are asked for; {missing[0]} is not: give {given}")
    return [name for name in asked if name in wanted]


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """Read numbers, separated by commas."""
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name} must be numbers separated by commas; got {text!r}") from error


def _earlier(file: Path) -> dict[str, Any]:
    """Read the results of earlier runs, which are added to."""
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        found = None
    if not isinstance(found, dict) or not all(_is_ours(name, part) for name, part in found.items()):
        raise ValueError(f"--out must be a new folder, or one of this benchmark; {file} is something else")
    return found


def _is_ours(name: str, part: Any) -> bool:
    """Say whether a part of earlier results has what tables are made of."""
    needed = {"shapes", "rows", "ratios"} if name == "cost" else {"methods", "settings", "source", "choice"}
    return name in _TITLES and isinstance(part, dict) and needed | {"hardware"} <= set(part)


def _write_all(results: dict[str, Any], out: Path) -> str:
    """Write results, tables and, with matplotlib, figures; return the tables."""
    _write(out / "results.json", _as_json(results))
    tables = _tables(results)
    _write(out / "tables.md", tables + "\n")
    if not set(results) - {"cost"}:
        return f"{tables}\n\nwritten to {out}"
    try:
        from carre.report.stability import plot_bandwidths, plot_stability  # noqa: PLC0415
    except ImportError as error:
        return f"{tables}\n\nwritten to {out}, without figures: {error}"
    plot_stability(results).savefig(out / "stability.png", dpi=150)
    plot_bandwidths(results).savefig(out / "bandwidths.png", dpi=150)
    return f"{tables}\n\nwritten to {out}"


def _tables(results: dict[str, Any]) -> str:
    """Put the tables of all parts under one another."""
    from carre.benchmarks import cost_tables, stability_tables  # noqa: PLC0415

    parts = []
    for name, title in _TITLES.items():
        if name == "cost" and name in results:
            parts.append(f"## {title}\n\n{results[name]['hardware']}.\n\n{cost_tables(results[name])}")
        elif name in results:
            source = results[name]["source"]
            about = f"{source['data']}; features: {source['features']}; {results[name]['hardware']}."
            split = f" {source['split']}" if "split" in source else ""
            parts.append(f"## {title}\n\n{about}{split}\n\n{stability_tables(results[name])}")
    return "\n\n".join(parts)


def _as_json(results: dict[str, Any]) -> str:
    """Write JSON with every list of numbers on one line: there are thousands of them."""
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    return re.sub(r"\[\s+([^][{}\"]*?)\s+\]", lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text) + "\n"


def _write(file: Path, text: str) -> None:
    from carre.data.writing import written_whole  # noqa: PLC0415

    with written_whole(file) as partial:
        partial.write_text(text, encoding="utf-8")
