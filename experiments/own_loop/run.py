"""A training loop of one's own beside `carre.fit`, at equal steps: `python experiments/own_loop/run.py`.

The loop is the code of docs/own_parts.md itself, run as it is printed there with more steps. Results go to
results.json, the table into README.md and onto that page.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre import LowRankMetric, MetricField, NeuralField
from carre.manifolds import Manifold, Sphere, TorusOfRevolution
from carre.matching import LogUniform, denoising_loss, metric_matching_loss, perturb
from carre.metric import AffineFrame
from experiments.measures.accuracy import best_bandwidth, tangent_errors
from experiments.measures.command import check_folder, write
from experiments.measures.speed import hardware

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "own_parts.md"
AMBIENT, N_SAMPLES, N_NEW = 10, 2000, 500
FIT, LOOP, PLAIN = "`carre.fit`", "this loop", "losses alone"


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed and few steps: to see that it runs")
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    try:
        check_folder(arguments.out)
    except ValueError as error:
        parser.error(str(error))
    results = measure(seeds=1 if arguments.quick else 3, steps=20 if arguments.quick else 1000)
    write(arguments.out / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    # Elsewhere no page is written: these are figures of the project.
    for page in (HERE / "README.md", PAGE) if arguments.out == HERE else ():
        before, _, rest = page.read_text(encoding="utf-8").partition("<!-- own loop -->")
        after = rest.partition("<!-- end of own loop -->")[2]
        write(page, f"{before}<!-- own loop -->\n{table(results)}<!-- end of own loop -->{after}")
    print(table(results))
    return 0


def measure(*, seeds: int, steps: int) -> dict[str, Any]:
    """Train each on the same samples, shape by shape and seed by seed."""
    rows = []
    for name, shape in (("sphere", Sphere(2)), ("torus", TorusOfRevolution())):
        manifold = shape.embed(AMBIENT, generator=torch.Generator().manual_seed(0))
        # What the loop was made with is not what it is judged by.
        for seed in range(1, seeds + 1):
            generator = torch.Generator().manual_seed(seed)
            samples = manifold.sample(N_SAMPLES, generator=generator)
            known, new = (manifold.sample(N_NEW, generator=generator) for _ in range(2))
            for how, train in ((FIT, by_fit), (LOOP, by_loop), (PLAIN, by_losses)):
                start = time.perf_counter()
                field = train(samples.numpy(), seed, steps)
                seconds = time.perf_counter() - start
                row = {"shape": name, "seed": seed, "how": how, **errors(field, manifold, known, new)}
                rows.append(row | {"seconds": seconds})
                print(rows[-1], flush=True)
    told = {"date": str(date.today()), "hardware": hardware("cpu"), "torch": torch.__version__, "steps": steps}
    return {**told, "n_samples": N_SAMPLES, "rows": rows}


def errors(field: MetricField, manifold: Manifold, known: Tensor, new: Tensor) -> dict[str, float]:
    """Compute the mean tangent error at new points, at the σ that is best at others."""
    sigma = best_bandwidth(field, manifold, known, np.geomspace(0.02, 0.6, 8)).bandwidth
    return {"error": float(tangent_errors(field, manifold, new, sigma).mean()), "bandwidth": sigma}


def by_fit(X: np.ndarray, seed: int, steps: int) -> MetricField:
    """Fit with the defaults, in so many steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return carre.fit(X, max_steps=steps, random_state=seed, noise=0, verbose=False).field


def by_loop(X: np.ndarray, seed: int, steps: int) -> MetricField:
    """Run the loop of the page."""
    torch.manual_seed(seed)
    names: dict[str, Any] = {"carre": carre, "torch": torch, "nn": nn, "X": X}
    exec(compile(documented(steps), str(PAGE), "exec"), names)
    field: MetricField = names["field"]
    return field


def documented(steps: int) -> str:
    """Read the loop from its page, with another number of steps."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    code = next(block for block in blocks if "DataLoader(" in block)
    found, count = re.subn(r"^STEPS = \d+", f"STEPS = {steps}", code, flags=re.MULTILINE)
    assert count == 1
    return found


def by_losses(X: np.ndarray, seed: int, steps: int) -> MetricField:
    """Minimize the two losses, and nothing else: what the page showed before, with a network of the same size."""
    torch.manual_seed(seed)
    network, samples = Plain(X.shape[1], 6, 128), torch.from_numpy(X).float()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for _ in range(steps):
        x = samples[torch.randint(len(samples), (256,))]
        sigma = LogUniform(0.01, 2.0).quantile(torch.rand(len(x)))
        batch = perturb(x, sigma)
        mean, factor = network(batch.points, sigma)
        displacement = batch.centered(mean).displacement
        loss = denoising_loss(mean, x) / sigma**2 + metric_matching_loss(LowRankMetric(factor), displacement)
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    return NeuralField(network, AffineFrame(torch.zeros(X.shape[1]), 1.0))


class Plain(nn.Module):
    """A plain network with two heads."""

    def __init__(self, dim: int, rank: int, width: int) -> None:
        super().__init__()
        self.shape = (rank, dim)
        layers = [nn.Linear(dim + 1, width), nn.SiLU()]
        for _ in range(3):
            layers += [nn.Linear(width, width), nn.SiLU()]
        self.body = nn.Sequential(*layers)
        self.mean, self.factor = nn.Linear(width, dim), nn.Linear(width, rank * dim)

    def forward(self, points: Tensor, bandwidth: Tensor) -> tuple[Tensor, Tensor]:
        """Estimate the mean and the factor."""
        hidden = self.body(torch.cat([points, bandwidth.log()[:, None]], 1))
        return points + bandwidth[:, None] * self.mean(hidden), self.factor(hidden).reshape(-1, *self.shape)


def table(results: dict[str, Any]) -> str:
    """Write what was measured as a table.

    Example:
        >>> rows = [{"shape": "sphere", "how": how, "error": e} for how, e in ((FIT, 0.02), (LOOP, 0.022), (PLAIN, 1))]
        >>> told = {"rows": rows, "steps": 10, "n_samples": 50, "hardware": "CPU", "date": "today"}
        >>> print(table(told))
        | tangent error | `carre.fit` | this loop | losses alone |
        |---|---|---|---|
        | sphere | 0.0200 | 0.0220 (1.10 ×) | 1.0000 |
        <BLANKLINE>
        10 steps of 256 points, 50 samples in R¹⁰, means over 1 seed. CPU, today.
        <BLANKLINE>
    """
    rows = results["rows"]
    lines = [f"| tangent error | {FIT} | {LOOP} | {PLAIN} |", "|---|---|---|---|"]
    for shape in dict.fromkeys(row["shape"] for row in rows):
        found = {
            how: [r["error"] for r in rows if r["shape"] == shape and r["how"] == how] for how in (FIT, LOOP, PLAIN)
        }
        mean = {how: float(np.mean(values)) for how, values in found.items()}
        ratio = f"({mean[LOOP] / mean[FIT]:.2f} ×)"
        lines.append(f"| {shape} | {mean[FIT]:.4f} | {mean[LOOP]:.4f} {ratio} | {mean[PLAIN]:.4f} |")
    n = len(found[FIT])
    what = f"{results['steps']:,} steps of 256 points, {results['n_samples']:,} samples in R¹⁰, means over {n} seed"
    return "\n".join([*lines, "", f"{what}{'s' * (n > 1)}. {results['hardware']}, {results['date']}."]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
