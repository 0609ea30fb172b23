"""The MNIST experiment runs from end to end: a tiny network on drawn strokes."""

import importlib
import importlib.util
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments/mnist"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        spec = importlib.util.spec_from_file_location("mnist_run", FOLDER / "run.py")
        run = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "mnist_run", run)
        spec.loader.exec_module(run)
        tiny = replace(
            run.QUICK,
            fit=replace(run.QUICK.fit, max_steps=4, batch_size=8),
            searched={"bandwidth": (2.0,), "landing": (0.5,), "strength": (1.0, 10.0)},
            n_train=160,
            n_test=48,
            classifier_epochs=1.0,
            timed_batches=(2,),
        )
        patch.setattr(run, "QUICK", tiny)
        out = tmp_path_factory.mktemp("mnist") / "new"
        with warnings.catch_warnings():
            # Four steps are not enough, and the fit says so.
            warnings.simplefilter("ignore")
            run.main(["--quick", "--search", "--device", "cpu", "--out", str(out)])
        yield run, out


@pytest.mark.slow
def test_a_run_writes_its_model_its_pictures_and_its_numbers(finished):
    run, out = finished
    pictures = ("losses", "eigenvectors", "cumulative", "dimension_count", "dimension_trace", "paths", "paths_scales")
    expected = {f"{name}.png" for name in (*pictures, "restored")} | {"results.json", "tables.md", "model"}
    assert {path.name for path in out.iterdir()} == expected
    assert all(path.stat().st_size <= 200_000 for path in out.glob("*.png"))
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert (out / "tables.md").read_text(encoding="utf-8") == run.tables(results)
    for part in ("train", "spectra", "search", "paths", "restore", "classifier"):
        assert {"date", "hardware", "versions", "command"} <= set(results[part]["about"])
    assert results["train"]["steps"] == 4
    assert json.loads((out / "model/config.json").read_text(encoding="utf-8"))["weights"]["dtype"] == "float16"


@pytest.mark.slow
def test_every_share_of_a_run_is_one_and_the_straight_line_reaches_its_end(finished):
    _, out = finished
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    methods = results["paths"]["methods"]
    assert len(methods) == 8 + 1  # and ours at another σ
    for row in methods.values():
        shares = [
            row["reached"],
            *(row[part][key] for part in ("inner", "midpoint") for key in ("right", "confidence")),
        ]
        assert all(0 <= share <= 1 for share in shares)
        assert row["length_over_chord"] >= 1 - 1e-5
    assert methods["LERP"]["reached"] == methods["LERP"]["length_over_chord"] == pytest.approx(1)
    assert 0 <= results["spectra"]["default"]["share_in_range"] <= 1
    assert results["spectra"]["default"]["smallest"] >= 0
    assert [row["bandwidth"] for row in results["spectra"]["scales"]] == [1.0, 4.0]
    assert len(results["restore"]["rows"]) == 2 * (1 + 3)


@pytest.mark.slow
def test_one_part_alone_keeps_what_the_others_found(finished):
    run, out = finished
    before = json.loads((out / "results.json").read_text(encoding="utf-8"))
    run.main(["--quick", "--only", "spectra", "--device", "cpu", "--out", str(out)])
    after = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert after["paths"] == before["paths"]
    # The model is loaded from the folder and the digits are the same: so are the numbers.
    assert after["spectra"]["scales"] == before["spectra"]["scales"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--only", "nonsense"], "--only must name parts among"), ([], "--data must be the folder of MNIST")],
)
def test_wrong_arguments_are_named(finished, capsys, arguments, sentence):
    run, out = finished
    with pytest.raises(SystemExit):
        run.main([*arguments, "--out", str(out)])
    assert sentence in capsys.readouterr().err
