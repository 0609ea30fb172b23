"""Ask how far features move along the learned metric, and along others of the same denoiser.

    python experiments/stability/run.py --quick                      synthetic images of known geometry, a minute
    python experiments/stability/run.py --mnist data/mnist --inception inception.pt
    python experiments/stability/run.py --cifar10 data --cifar10-model cifar --inception inception.pt --cost

Every method is tuned on the same validation images, then compared with ours image by image. Results that are in OUT
are kept and added to; an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from experiments.measures.command import check_folder, checked_device, naming, numbers, write
from experiments.measures.speed import hardware
from experiments.stability.comparison import run_stability
from experiments.stability.cost import QUICK_COST, CostSettings, cost_ratios, measure_cost
from experiments.stability.figures import plot_bandwidths, plot_stability
from experiments.stability.parts import Part, Request
from experiments.stability.tables import TITLES, tables

_NOTHING = (
    "nothing to measure: give --mnist FOLDER, or --cifar10 FOLDER with --cifar10-model MODEL, or --cost, or --quick "
    "for synthetic images"
)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment from the command line."""
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        names, results = _chosen(given), _earlier(given.out)
        with naming(device="--device"):
            device = str(checked_device(given.device))
        # What is wrong with any of them is said before anything is measured.
        ready = {name: request.prepare() for name, request in _requests(given, device).items() if name in names}
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    for name in names:
        if name == "cost":
            _measure_cost(results, given.out, device, quick=given.quick)
        else:
            _measure(ready[name], results, given.out)
            _draw(results, given.out)
        write(given.out / "results.json", _as_json(results))
        write(given.out / "tables.md", tables(results) + "\n")
    print(f"{tables(results)}\n\nwritten to {given.out}")
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--mnist", type=Path, metavar="FOLDER", help="where the files of MNIST lie")
    add("--mnist-model", default="mnist", metavar="MODEL", help="geometry of MNIST; the shipped one")
    add("--cifar10", type=Path, metavar="FOLDER", help="where the files of CIFAR-10 lie")
    add("--cifar10-model", metavar="MODEL", help="geometry of CIFAR-10")
    add("--cifar10-uncentered", metavar="MODEL", help="one of CIFAR-10 that was fitted uncentered, to compare with")
    add("--inception", type=Path, metavar="FILE", help="the Inception network of the FID; wavelets without it")
    add("--cost", action="store_true", help="also measure time and memory of each metric")
    add("--quick", action="store_true", help="synthetic images of known geometry: a minute")
    add("--only", help="of what was given, only these: synthetic, mnist, cifar10, cost")
    add("--images", type=int, help="test images")
    add("--draws", type=int, help="draws at each test image")
    add("--sigmas", help="scales σ to try, separated by commas")
    add("--radii", help="lengths of the perturbations, separated by commas")
    add("--mixed", action="store_true", help="round the networks to bfloat16, for all methods")
    add("--out", type=Path, default=Path("stability"), help="folder of results, tables and figures")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    add("--seed", type=int, default=0, help="seed of everything random")
    return parser


def _chosen(given: argparse.Namespace) -> list[str]:
    """Return the parts to measure; refuse options that do not go together."""
    if given.cifar10 is not None and given.cifar10_model is None:
        raise ValueError("--cifar10-model must be given with --cifar10; no geometry of CIFAR-10 ships with the library")
    if given.cifar10 is None and (given.cifar10_model or given.cifar10_uncentered):
        raise ValueError("--cifar10 must be given, the folder of the images, with a geometry of CIFAR-10")
    loaded = {"--mnist-model": given.mnist_model != "mnist", "--inception": given.inception, "--mixed": given.mixed}
    for option, is_given in loaded.items():
        if is_given and given.mnist is None and (given.cifar10 is None or option == "--mnist-model"):
            datasets = "--mnist" if option == "--mnist-model" else "--mnist or --cifar10"
            raise ValueError(f"{option} must be given with {datasets}; nothing else depends on it")
    by_name = {"synthetic": given.quick, "mnist": given.mnist, "cifar10": given.cifar10, "cost": given.cost}
    asked = [name for name, is_asked in by_name.items() if is_asked]
    if not asked:
        raise ValueError(_NOTHING)
    wanted = asked if given.only is None else [name.strip() for name in given.only.split(",") if name.strip()]
    if not wanted or not set(wanted) <= set(TITLES):
        raise ValueError(f"--only must be among {', '.join(TITLES)}, separated by commas; got {given.only!r}")
    missing = [name for name in wanted if name not in asked]
    if missing:
        option = "--quick" if missing[0] == "synthetic" else f"--{missing[0]}"
        raise ValueError(f"--only must name parts that are asked for; {missing[0]} is not: give {option}")
    return [name for name in asked if name in wanted]


def _requests(given: argparse.Namespace, device: str) -> dict[str, Request]:
    """Say what is asked of every dataset."""
    changes: dict[str, Any] = {"n_images": given.images, "n_draws": given.draws, "seed": given.seed}
    changes |= {"bandwidths": numbers("--sigmas", given.sigmas, float), "radii": numbers("--radii", given.radii, float)}
    request = partial(Request, inception=given.inception, changes=changes, device=device, mixed=given.mixed)
    return {
        "synthetic": request("synthetic"),
        "mnist": request("mnist", given.mnist, given.mnist_model),
        "cifar10": request("cifar10", given.cifar10, given.cifar10_model, given.cifar10_uncentered),
    }


def _measure(part: Part, results: dict[str, Any], out: Path) -> None:
    """Run one part, writing results as they come."""

    def save(found: dict[str, Any]) -> None:
        results[part.name] = found
        write(out / "results.json", _as_json(results))

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
        report=lambda line: _say(f"{TITLES[part.name]}: {line}"),
        save=save,
    )


def _measure_cost(results: dict[str, Any], out: Path, device: str, *, quick: bool) -> None:
    """Measure time and memory, shape after shape; those that an earlier run has measured are kept."""
    settings = QUICK_COST if quick else CostSettings()
    plain = json.loads(json.dumps(dataclasses.asdict(settings)))
    earlier = results.get("cost", {})
    # Times of another machine are no times of this one.
    if earlier.get("settings") != plain or earlier.get("hardware") != hardware(device):
        earlier = {}
    for shape in settings.shapes:
        if any(known["name"] == shape.name for known in earlier.get("shapes", [])):
            continue
        found = measure_cost(dataclasses.replace(settings, shapes=(shape,)), device=device, report=_say)
        joined = {name: [*earlier.get(name, []), *found[name]] for name in ("shapes", "rows")}
        earlier = found | joined | {"ratios": cost_ratios(joined["rows"]), "settings": plain}
        results["cost"] = earlier
        write(out / "results.json", _as_json(results))


def _earlier(out: Path) -> dict[str, Any]:
    """Read the results of earlier runs, which are added to."""
    check_folder(out)
    file = out / "results.json"
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        found = None
    if not isinstance(found, dict) or not all(_is_ours(name, part) for name, part in found.items()):
        raise ValueError(f"--out must be a new folder, or one of this experiment; {file} is something else")
    return found


def _is_ours(name: str, part: Any) -> bool:
    """Say whether a part of earlier results has what tables are made of."""
    needed = {"shapes", "rows", "ratios"} if name == "cost" else {"methods", "settings", "source", "choice"}
    return name in TITLES and isinstance(part, dict) and needed | {"hardware"} <= set(part)


def _draw(results: dict[str, Any], out: Path) -> None:
    """Write the figures, of all datasets."""
    plot_stability(results).savefig(out / "stability.png", dpi=150)
    plot_bandwidths(results).savefig(out / "bandwidths.png", dpi=150)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _as_json(results: dict[str, Any]) -> str:
    """Write JSON with every list of numbers on one line: there are thousands of them."""
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    return re.sub(r"\[\s+([^][{}\"]*?)\s+\]", lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text) + "\n"


if __name__ == "__main__":
    main()
