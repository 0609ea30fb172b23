"""The words of the digits report: what each number and picture of `digits.py` means."""

from __future__ import annotations

from typing import Any

from carre.report import Fact, Picture, Section


def facts(results: dict[str, Any]) -> list[Fact]:
    """Put the main results into words."""
    low, high = results["bandwidth_range"]
    smallest, largest = results["eigenvalue_range"]
    removed, run = results["noise_removed"][0], results["run"]
    return [
        Fact("Digits", f"{run['n_train']} + {run['n_test']}", "for the fit, and held out to ask about"),
        Fact(
            "Local dimension", f"{results['dimension']:.1f} of 64", "directions in which a digit can change, on average"
        ),
        Fact(
            "Noise removed",
            f"{removed['Carré']:.0%}",
            f"at σ = {removed['bandwidth']:.2f}; linear {removed['linear']:.0%}, kernel {removed['kernel']:.0%}",
        ),
        Fact("Scale σ", f"{results['bandwidth']:.2f}", f"chosen from {low:.2f} to {high:.1f}; pixels run from 0 to 16"),
        Fact("Eigenvalues", f"{smallest:.2f} to {largest:.2f}", "of the metric: near 1 along the data, near 0 across"),
        Fact(
            "Calibration error", f"{results['calibration_error']:.2f}", "predicted against found spread; good below 0.1"
        ),
        Fact("Score", f"{results['score']:.1f}", "nats per digit over knowing only the noise; higher is better"),
        Fact("Time", f"{run['seconds']:.0f} s", f"of which the fit {run['fit_seconds']:.0f} s, on {run['device']}"),
    ]


def sections(results: dict[str, Any], pictures: dict[str, bytes]) -> list[Section]:
    """Explain the pictures, in the order in which a newcomer would ask."""
    return [
        _directions(pictures["tangents"]),
        _dimension(results, pictures["dimension"]),
        _scale(results, pictures["scale"]),
        _denoising(results, pictures["denoising"]),
        _training(pictures["training"]),
        _origin(results["run"]),
    ]


def _directions(png: bytes) -> Section:
    picture = Picture(
        png,
        "Ten digits, each followed by signed pictures of its leading tangent directions.",
        "The first held-out digit of each class. Along a direction, ink appears where the picture is red and vanishes "
        "where it is blue, or the reverse: strokes shift, bend, lengthen and thicken. Far from the strokes "
        "little happens.",
    )
    return Section(
        "How can a digit change?",
        "A digit is a point in a space of 64 pixels. At each digit the fitted metric names the directions in which one "
        "may walk and still find digits, strongest first. Along a direction with eigenvalue λ near 1 the data extend "
        "freely; one with λ near 0 leads away from them.",
        [picture],
    )


def _dimension(results: dict[str, Any], png: bytes) -> Section:
    by_class = results["dimension_by_class"]
    fewest, most = min(by_class, key=by_class.__getitem__), max(by_class, key=by_class.__getitem__)
    return Section(
        "In how many directions?",
        "The local dimension counts the eigenvalues above one half. On average it is lowest for the digit "
        f"{fewest} ({by_class[fewest]:.1f}) and highest for {most} ({by_class[most]:.1f}).",
        [Picture(png, "Local dimension of held-out digits by class: a dot plot with means.")],
    )


def _scale(results: dict[str, Any], png: bytes) -> Section:
    picture = Picture(
        png,
        "Mean eigenvalues of the metric against the scale, and the measures it is chosen from.",
        "There is no gap in the eigenvalues: digits have a few strong directions and many weaker ones, so their "
        "dimension is a matter of degree, and falls as σ grows.",
    )
    return Section(
        "At which scale?",
        "Dimension depends on how closely one looks: at a tiny scale every scan is alone, at a huge one all of them "
        "are one blob. The scale σ is the deviation of a blur: variation much smaller than σ is taken for noise. "
        f"It was chosen without labels. Of σ = {results['bandwidth']:.2f} the library says: "
        f"{results['bandwidth_reason']}.",
        [picture],
    )


def _denoising(results: dict[str, Any], png: bytes) -> Section:
    names = ("linear", "kernel", "Carré")
    rows = [(f"{row['bandwidth']:.2f}", *(f"{row[name]:.1%}" for name in names)) for row in results["noise_removed"]]
    return Section(
        "Does it know where digits are?",
        "A geometry that is right knows where data can be, so it can take noise off digits it has never seen. The "
        "table gives the share of the noise that is removed from all held-out digits, next to two denoisers that need "
        "no training: the best linear one, and a kernel, which averages the training digits by their distance.",
        [Picture(png, "Digits, the same with noise, and restored by three denoisers.", "Noise of the chosen scale σ.")],
        [("noise σ", *names), *rows],
    )


def _training(png: bytes) -> Section:
    picture = Picture(
        png,
        "Held-out losses against training steps, and the gain over a linear denoiser against the scale.",
        "Left: the error of the denoiser. Right: how badly a digit is predicted from its noisy copy by denoiser and "
        "metric together, in nats; 0 is knowing nothing but the noise.",
    )
    return Section(
        "Was it trained for long enough?",
        "The losses on samples held out from training should be flat at the end. And the network should beat the best "
        "linear denoiser wherever the kernel does; if it does not, it has seen only the flat hull of the data, its "
        "dimensions are too high, and the library warns.",
        [picture],
    )


def _origin(run: dict[str, Any]) -> Section:
    return Section(
        "How this page was made",
        f"By python examples/digits.py --steps {run['max_steps']} on {run['date']}: a network {run['width']} wide, "
        f"{run['cores']} processor cores, torch {run['torch']}. All numbers are in results.json beside this page.",
    )
