"""What the first release saved is read, and answers as it did then."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from carre.storage import load, save

HOUSE = Path(__file__).parents[2] / "experiments" / "house"
# Samples of each, and how many of them are asked for their dimension: images take their time.
DATA = {"swiss_roll": (2, None), "sphere": (3, None), "digits": (5, 32)}


@pytest.fixture(scope="module")
def samples():
    """The functions that draw the samples."""
    # Scripts of other experiments may have imported a module of that name.
    sys.path.insert(0, str(HOUSE))
    other = sys.modules.pop("data", None)
    try:
        import data  # noqa: PLC0415
    finally:
        sys.path.remove(str(HOUSE))
    yield data.DATA
    del sys.modules["data"]
    if other is not None:
        sys.modules["data"] = other


def answers(geometry, X, dimension, n):
    """What was asked then, of points that were asked then."""
    local = geometry.at(X[:8])
    return {
        "bandwidth": geometry.bandwidth,
        "bandwidth_range": geometry.bandwidth_range,
        "metric": np.asarray(local.metric),
        "eigenvalues": geometry.eigenvalues(X[:n][:100]),
        "tangent_basis": local.tangent_basis(dimension),
        "denoised": geometry.denoise(X[:8] + 0.1),
        "dimension": geometry.dimension(X[:n]),
    }


@pytest.mark.parametrize("name", DATA)
def test_answers_are_those_of_the_first_release(name, samples):
    (dimension, n), X = DATA[name], samples[name]()
    found = answers(load(HOUSE / "answers" / name, device="cpu"), X, dimension, n)
    if name == "digits":
        # They have no sharp dimension, and what is an edge is decided by other evidence since.
        found.pop("dimension")
    with np.load(HOUSE / "answers" / f"{name}.npz") as then:
        for question, answer in found.items():
            expected = then[question] if np.ndim(answer) == 0 else then[question][: len(answer)]
            np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-6, err_msg=question)


@pytest.mark.parametrize("name", DATA)
def test_what_is_written_now_is_the_same(name, tmp_path):
    """All but the class, and who wrote it when: the format is still the first."""
    place = HOUSE / "answers" / name
    save(load(place), tmp_path / name)
    then, now = (
        json.loads((folder / "config.json").read_text(encoding="utf-8")) for folder in (place, tmp_path / name)
    )
    assert (then.pop("class"), now.pop("class")) == ("MetricMatching", "Geometry")
    # What training tells since, and what a fit could be told then.
    assert now["history"].pop("gained") is now["history"].pop("gained_noise") is None
    assert now["history"].pop("trains_mean")
    for found in now["history"]["evaluations"]:
        assert found.pop("improvement") is None
        assert found.pop("noise") is None
        assert found.pop("drop") == 0.0
    assert not now["fitted"].pop("concerns")
    assert now["fitted"].pop("n_samples") is None
    assert now["fitted"].pop("noise_estimate")["value"] == now["field"].pop("noise") == 0.0
    assert then["parameters"].pop("patience") is None
    assert {name for name in then.keys() | now.keys() if then.get(name) != now.get(name)} <= {"created", "versions"}
    assert (tmp_path / name / "model.safetensors").read_bytes() == (place / "model.safetensors").read_bytes()
    then, now = ((folder / "README.md").read_text(encoding="utf-8") for folder in (place, tmp_path / name))
    then = then.replace("from carre import MetricMatching", "import carre")
    then = then.replace("MetricMatching.from_pretrained", "carre.load")
    changed = [line for line, other in zip(then.splitlines(), now.splitlines(), strict=True) if line != other]
    assert len(changed) <= 1
    assert all("Written on" in line for line in changed)
