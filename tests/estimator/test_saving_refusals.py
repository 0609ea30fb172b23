"""What is wrong with a folder is said in words of its own; where it is loaded does not matter."""

import json

import numpy as np
import pytest

from carre import LoadError, MetricMatching
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def fitted():
    return MetricMatching(**TINY, bandwidth=0.2).fit(circle(80))


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def tamper(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)


WRONGS = {
    "is truncated": truncate,
    "is not the file that was saved": tamper,
    "holds a FunctionMatching, not a MetricMatching": lambda folder: edit(folder, **{"class": "FunctionMatching"}),
    "Upgrade carre": lambda folder: edit(folder, format_version=99),
    "must be JSON": lambda folder: (folder / "config.json").write_text("{", encoding="utf-8"),
    "this is one of something else": lambda folder: edit(folder, format="another library"),
    "it has no config.json": lambda folder: (folder / "config.json").unlink(),
}


def test_every_wrong_has_its_own_sentence(fitted, tmp_path):
    messages = []
    for wanted, spoil in WRONGS.items():
        folder = tmp_path / f"folder {len(messages)}"
        fitted.save_pretrained(folder)
        spoil(folder)
        with pytest.raises(LoadError, match=wanted) as caught:
            MetricMatching.from_pretrained(folder)
        messages.append(str(caught.value))
    for wanted in WRONGS:
        assert sum(wanted in message for message in messages) == 1, wanted


@pytest.mark.gpu
def test_a_geometry_that_was_fitted_on_a_cpu_answers_on_a_gpu(fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "geometry")
    loaded = MetricMatching.from_pretrained(tmp_path / "geometry", device="cuda")
    assert loaded.device_.type == "cuda"
    np.testing.assert_allclose(loaded.denoise(circle(80)), fitted.denoise(circle(80)), atol=1e-6)
    np.testing.assert_allclose(loaded.eigenvalues(circle(80)), fitted.eigenvalues(circle(80)), atol=1e-6)
