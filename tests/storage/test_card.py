"""The page of a saved geometry says what a reader needs to know."""

import dataclasses
import re

import pytest

from carre.storage import save
from carre.training import History
from tests.storage.geometries import image_geometry, tiny_geometry


def card(tmp_path, geometry, **options):
    save(geometry, tmp_path / "spiral", **options)
    return (tmp_path / "spiral" / "README.md").read_text(encoding="utf-8")


def test_it_begins_with_the_front_matter_that_hubs_read(tmp_path):
    front = re.match(r"---\n(.*?)\n---\n\n# spiral\n", card(tmp_path, tiny_geometry()), re.DOTALL).group(1)
    assert front.splitlines()[0] == "library_name: carre"
    assert "- manifold-learning" in front


def test_it_has_the_figures_of_the_geometry(tmp_path):
    page = card(tmp_path, tiny_geometry(), n_landmarks=7)
    for part in (
        "points with 5 coordinates",
        'carre.load("path/to/spiral")',
        "Columns, in this order: a, b, ç, d, e.",
        "| default scale σ | 0.3, in the units of the data |",
        "| rank of G | 4 |",
        "| why that scale | a reason |",
        "The weights of step 20 were kept. Losses on held-out samples",
        "| denoising | 0.5000 |",
        "| 0.1 | 0.30 | 0.33 |",
        "30 steps in 1 seconds, budget spent.",
        "7 of the samples themselves",
    ):
        assert part in page, part
    assert "rounded" not in page


def test_it_says_how_images_were_normalized_and_that_weights_are_rounded(tmp_path):
    page = card(tmp_path, image_geometry(), dtype="bfloat16")
    assert "images of shape 1 × 8 × 8" in page
    assert "mean [0.1307], deviation 0.3081" in page
    assert "Weights are rounded to bfloat16" in page


def test_it_repeats_the_warning_of_a_fit_that_is_not_done(tmp_path):
    bent = History((0.1,), (1.0,), [dataclasses.replace(tiny_geometry().history.evaluations[0], gain=(0.0,))], kept=0)
    assert "- Training stopped in its linear phase" in card(tmp_path, tiny_geometry(history=bent))
    assert "linear phase" not in card(tmp_path, tiny_geometry())


def test_it_does_not_call_losses_held_out_that_were_not(tmp_path):
    history = dataclasses.replace(tiny_geometry().history, kernel_gain=())
    page = card(tmp_path, tiny_geometry(history=history))
    assert "Losses on the training samples (nothing was held out)" in page
    assert "held-out" not in page


def test_sections_of_the_caller_stand_before_the_limits_and_their_front_matter_is_joined(tmp_path):
    more = "---\nlicense: mit\ndatasets:\n- mnist\n---\n\n## Data\n\nSpirals."
    page = card(tmp_path, tiny_geometry(), card=more)
    assert page.index("## Training") < page.index("## Data\n\nSpirals.") < page.index("## Limits")
    assert page.count("---\n") == 2
    assert "license: mit\ndatasets:\n- mnist\n---\n\n# spiral" in page


def test_a_front_matter_that_repeats_ours_is_refused(tmp_path):
    with pytest.raises(ValueError, match="card must leave tags of the front matter to carre"):
        card(tmp_path, tiny_geometry(), card="---\ntags:\n- mine\n---\n")
