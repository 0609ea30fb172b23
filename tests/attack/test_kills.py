"""Kill −9 at any moment: a file is the former one or the new one, a fit goes on to the same bits, strays are swept."""

import os
import random
import signal
import time

import numpy as np
import pytest

import carre
from carre.data import write_table
from carre.files import write_whole
from tests.attack.kit import Verdict
from tests.attack.processes import command, count_events, dying, kill_after, run, start, wait
from tests.attack.questions import QUICK, X, weights_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


def names_in(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def fitting(tmp_path_factory):
    """A fit by the command, its weights where nothing interrupts it, and how long it takes here and now."""
    with pytest.MonkeyPatch.context() as patch:
        # Small, to be killed often: it is forked as it is here.
        patch.setattr("carre.training.DataScale.width", lambda *given: 16)
        yield _fitted(tmp_path_factory)


def _fitted(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    write_table(place / "data.csv", {"x": X[:, 0], "y": X[:, 1]})
    # What a first fit imports is there for all.
    carre.fit(X, **QUICK)
    told = ["fit", place / "data.csv", "--steps", "12", "--sigma", "0.3", "--quiet", "--out"]
    before = time.perf_counter()
    assert run(*told, place / "model") == 0
    return told, (place / "model" / "model.safetensors").read_bytes(), time.perf_counter() - before


def _state(model):
    """Say how far a fit had come."""
    if model.exists():
        return "saved"
    return "training" if model.with_name("model.checkpoint").exists() else "beginning"


def test_kills_of_a_fit(fitting, ledger, dose, tmp_path):
    told, wanted, seconds = fitting
    chance, found = random.Random(0), dict.fromkeys(("beginning", "training", "saved"), 0)
    events = count_events(command(*told, tmp_path / "tried" / "model"))
    for moment in range(dose(3, 50)):
        place = tmp_path / str(moment)
        place.mkdir()
        call, share = command(*told, place / "model"), (moment + 0.5) / dose(3, 50)
        if moment % 2:
            wait(start(dying(call, 1 + round(share * (events - 1)))))
        else:
            kill_after(start(call), (share + 0.02 * chance.random()) * seconds)
        state = _state(place / "model")
        found[state] += 1
        if state == "saved":
            # Whole: every byte is checked.
            carre.load(place / "model")
        code = run(*told, place / "model", "--resume")
        is_same = code == 0 and (place / "model" / "model.safetensors").read_bytes() == wanted
        verdict = Verdict.RIGHT if is_same and names_in(place) == {"model"} else Verdict.WRONG
        ledger.note(f"{share:.0%} of a fit, {state}", verdict, f"{code}; {names_in(place)}")
    for state, count in found.items():
        ledger.measure(f"killed while {state}", count)
    ledger.measure("half-written, not resumed or not the same bits", len(ledger.faults()))
    ledger.check(least=dose(3, 50))


def test_a_kill_between_training_and_saving_loses_nothing(fitting, ledger, tmp_path):
    told, wanted, _ = fitting
    model = tmp_path / "model"

    def killed_before_saving():
        carre.save = lambda *given, **options: os.kill(os.getpid(), signal.SIGKILL)
        command(*told, model)()

    assert wait(start(killed_before_saving)) == -signal.SIGKILL
    assert _state(model) == "training"

    def finished_without_training():
        import carre.training._steps as steps  # noqa: PLC0415

        steps.Stepper.step = lambda *given: os._exit(7)
        return command(*told, model, "--resume")()

    code = wait(start(finished_without_training))
    is_same = code == 0 and (model / "model.safetensors").read_bytes() == wanted
    ledger.note("killed between", Verdict.RIGHT if is_same and names_in(tmp_path) == {"model"} else Verdict.WRONG)
    ledger.check()


class Written:
    """Something that is written over what was there, and how to tell what is there now."""

    def __init__(self, place, name, former, new):
        self.path, self.former, self.new = place / name, former, new
        former(self.path)
        self.before = self.content()
        new(self.path)
        self.after = self.content()

    def content(self):
        if self.path.is_dir():
            # That its files belong together, and are whole, is seen when it is loaded.
            return weights_of(carre.load(self.path)), names_in(self.path)
        return self.path.read_bytes()


def _writings(place):
    first, second = (carre.fit(X, **{**QUICK, "random_state": seed}) for seed in (0, 1))
    numbers = np.random.default_rng(0).normal(size=(5000, 2))
    columns = {"x": numbers[:, 0], "y": numbers[:, 1]}
    former = {"x": numbers[:100, 1], "y": numbers[:100, 0]}
    carre.write_report(first, X[:5], place / "page.html", pairs=0, seconds=0.1)
    page = (place / "page.html").read_text(encoding="utf-8")
    (place / "page.html").unlink()
    return [
        Written(place, "model", lambda path: carre.save(first, path), lambda path: carre.save(second, path)),
        *(
            Written(
                place,
                f"table.{kind}",
                lambda path: write_table(path, former),
                lambda path: write_table(path, columns),
            )
            for kind in ("csv", "parquet", "npz")
        ),
        Written(
            place, "report.html", lambda path: write_whole(path, page[:1000]), lambda path: write_whole(path, page)
        ),
    ]


def test_kills_while_writing(ledger, dose, tmp_path):
    chance, n_strays = random.Random(0), 0
    written = _writings(tmp_path)
    expected = {one.path.name for one in written}
    for one in written:
        one.seconds = time.perf_counter()
        assert wait(start(lambda one=one: one.new(one.path))) == 0
        one.seconds = time.perf_counter() - one.seconds
        one.events = count_events(lambda one=one: one.new(one.path))
    for attempt in range(dose(20, 500)):
        one = written[attempt % len(written)]
        one.former(one.path)
        call = lambda one=one: one.new(one.path)  # noqa: E731
        if attempt // len(written) % 2:
            kill_after(start(call), chance.random() * one.seconds)
        else:
            wait(start(dying(call, chance.randint(1, one.events))))
        there = one.path.exists() and one.content()
        n_strays += names_in(tmp_path) != expected
        is_whole = there in (one.before, one.after)
        # The next one sweeps.
        one.new(one.path)
        is_swept = names_in(tmp_path) == expected and one.content() == one.after
        verdict = Verdict.RIGHT if is_whole and is_swept else Verdict.WRONG
        ledger.note(f"{one.path.name} {attempt}", verdict, f"{names_in(tmp_path) ^ expected}")
    ledger.measure("kills that left something to sweep", n_strays)
    ledger.measure("half-written, or not swept", len(ledger.faults()))
    assert n_strays > 0
    ledger.check(least=dose(20, 500))


def test_two_writers_to_one_model(fitting, ledger, dose, tmp_path):
    told, wanted, seconds = fitting
    for attempt in range(dose(1, 10)):
        place = tmp_path / str(attempt)
        place.mkdir()
        first = start(command(*told, place / "model"))
        while not (place / ".carre.lock.model").exists():
            time.sleep(0.001)
        time.sleep(0.1 * seconds * attempt / dose(1, 10))
        second = wait(start(command(*told, place / "model", "--overwrite"), err=place / "said"))
        said = (place / "said").read_text()
        is_told = (
            second == 2 and "--out must be written by one program at a time" in said and len(said.splitlines()) == 1
        )
        is_whole = wait(first) == 0 and (place / "model" / "model.safetensors").read_bytes() == wanted
        is_clean = names_in(place) == {"model", "said"}
        ledger.note(f"attempt {attempt}", Verdict.RIGHT if is_told and is_whole and is_clean else Verdict.WRONG, said)
    ledger.check()


def test_who_asks_a_fit_to_end_keeps_its_training(fitting, ledger, dose, tmp_path):
    told, wanted, seconds = fitting
    for attempt in range(dose(2, 15)):
        name = ("SIGTERM", "SIGHUP", "SIGINT")[attempt % 3]
        place = tmp_path / str(attempt)
        place.mkdir()
        child = start(command(*told, place / "model"), err=place / "said")
        deadline = time.monotonic() + 60
        while not (place / "model.checkpoint").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.3 * seconds * attempt / dose(2, 15))
        os.kill(child, getattr(signal, name))
        code, said = wait(child), (place / "said").read_text()
        is_kept = (code == 130 and "interrupted; what was learned is kept. Go on with:" in said) or (
            code in (0, 130) and (place / "model").exists()
        )
        again = run(*told, place / "model", "--resume")
        is_same = again == 0 and (place / "model" / "model.safetensors").read_bytes() == wanted
        verdict = Verdict.RIGHT if is_kept and is_same and names_in(place) == {"model", "said"} else Verdict.WRONG
        ledger.note(f"{name} {attempt}", verdict, f"{code}, {again}: {said}")
    ledger.check()


def test_a_fit_that_is_to_outlive_its_terminal_does(fitting, tmp_path):
    told, wanted, _ = fitting

    def without_hangup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return command(*told, tmp_path / "model")()

    child = start(without_hangup)
    while not (tmp_path / ".carre.lock.model").exists():
        time.sleep(0.001)
    os.kill(child, signal.SIGHUP)
    assert wait(child) == 0
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == wanted
