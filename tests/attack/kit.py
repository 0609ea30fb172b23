"""What an attack is made of: a ledger of answers, a verdict on each, and calls that run in a process of their own.

A case is right, or refused by a sentence; everything else is a fault. A test of an attack asks all cases of a corpus,
writes down what came of each, and ends with ``ledger.check()``.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import carre

SOURCE = Path(carre.__file__).parent
_LONGEST_SENTENCE = 1200
_SHOWN = 12


class Verdict(StrEnum):
    """What came of a case."""

    RIGHT = "right"
    CLEAR = "clear"
    UNCLEAR = "unclear"
    WRONG = "silently wrong"
    INFINITE = "not finite, without a word"
    CRASHED = "crashed"
    HUNG = "hung"
    OVERSIZED = "too much memory"


GOOD = (Verdict.RIGHT, Verdict.CLEAR)


def is_sentence(error: BaseException, names: Sequence[str] = ()) -> bool:
    """Say whether an error is this library's own sentence, one that names what it is about.

    It was raised by a line of the library, on purpose: what torch or NumPy raise further down is no sentence of ours.
    """
    frames = traceback.extract_tb(error.__traceback__)
    is_ours = bool(frames) and Path(frames[-1].filename).is_relative_to(SOURCE)
    is_ours = is_ours and (frames[-1].line or "raise").lstrip().startswith("raise")
    said = str(error)
    is_short = 0 < len(said) <= _LONGEST_SENTENCE and "\n" not in said.strip()
    return is_ours and is_short and (not names or any(name in said for name in names))


@dataclass
class Ledger:
    """What came of the cases of one corpus.

    Attributes:
        corpus: What it is called in the tables.
        rows: Case, verdict, detail.
        figures: What was measured beside, by name, like the largest peak of memory.
    """

    corpus: str
    rows: list[tuple[str, Verdict, str]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def note(self, case: str, verdict: Verdict, detail: str = "") -> None:
        """Write down what came of a case."""
        self.rows.append((case, verdict, detail))

    def measure(self, name: str, value: float) -> None:
        """Keep the largest of what was measured under a name."""
        self.figures[name] = max(value, self.figures.get(name, value))

    def ask(
        self,
        case: str,
        call: Callable[[], Any],
        *,
        names: Sequence[str] = (),
        verdict: Callable[[Any], Verdict] = lambda answer: Verdict.RIGHT,
    ) -> Any:
        """Make a call here, and judge it: by its sentence, or by its answer.

        Args:
            case: What it is called.
            call: The call.
            names: What its sentence has to name, one of them.
            verdict: Judges the answer.
        """
        try:
            answer = call()
        except Exception as error:
            good = is_sentence(error, names)
            said = "" if good else f"{type(error).__name__}: {error}"
            self.note(case, Verdict.CLEAR if good else Verdict.UNCLEAR, said)
            return None
        self.note(case, verdict(answer), "")
        return answer

    def take(self, case: str, outcome: Outcome, *, most_bytes: float = float("inf"), must_refuse: bool = False) -> None:
        """Judge a call that had a process of its own.

        Args:
            case: What it is called.
            outcome: What came of it.
            most_bytes: The most that its memory may have grown.
            must_refuse: Whether an answer is wrong.
        """
        self.measure("peak memory, MB", outcome.peak / 1e6)
        self.measure("seconds", outcome.seconds)
        verdict = outcome.verdict
        if verdict is Verdict.RIGHT and must_refuse:
            verdict = Verdict.WRONG
        if verdict in GOOD and outcome.peak > most_bytes:
            verdict = Verdict.OVERSIZED
        detail = "" if verdict in GOOD else f"{outcome.said}; {outcome.peak / 1e6:.0f} MB, {outcome.seconds:.1f} s"
        self.note(case, verdict, detail)

    def counts(self) -> Counter[str]:
        """Count the verdicts."""
        return Counter(str(verdict) for _, verdict, _ in self.rows)

    def faults(self) -> list[tuple[str, Verdict, str]]:
        """Return what was neither right nor refused by a sentence."""
        return [row for row in self.rows if row[1] not in GOOD]

    def check(self, *, least: int = 1) -> None:
        """Fail if anything went wrong, or if there were fewer cases than meant."""
        faults = self.faults()
        shown = "\n".join(f"  {case}: {verdict}. {detail}"[:400] for case, verdict, detail in faults[:_SHOWN])
        assert not faults, f"{self.corpus}: {len(faults)} of {len(self.rows)} cases went wrong:\n{shown}"
        assert len(self.rows) >= least, f"{self.corpus}: only {len(self.rows)} cases"

    def write(self, folder: Path) -> None:
        """Write what came of it for the table of `experiments/attack`."""
        content = {"corpus": self.corpus, "cases": len(self.rows), "counts": dict(self.counts())}
        content |= {"figures": self.figures, "faults": [list(map(str, row)) for row in self.faults()]}
        name = "".join(letter if letter.isalnum() else "_" for letter in self.corpus)
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Outcome:
    """What came of a call in a process of its own.

    Attributes:
        verdict: RIGHT for an answer, CLEAR or UNCLEAR for an error, else CRASHED or HUNG.
        answer: What it returned, if that can be sent.
        said: The error, or the signal.
        peak: Bytes by which its memory grew at most.
        seconds: How long it took.
    """

    verdict: Verdict
    answer: Any
    said: str
    peak: float
    seconds: float


def isolated(call: Callable[[], Any], *, names: Sequence[str] = (), seconds: float = 20.0) -> Outcome:
    """Make a call in a forked process: it may hang, crash or take all memory, and is measured and ended.

    Args:
        call: The call.
        names: What its sentence has to name, one of them.
        seconds: How long it may take before it counts as hung.
    """
    reader, writer = os.pipe()
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(call, names, writer)
    os.close(writer)
    content = bytearray()
    while True:
        left = seconds - (time.perf_counter() - start)
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            break
        some = os.read(reader, 2**16)
        if not some:
            break
        content += some
    os.close(reader)
    _, status, usage = os.wait4(child, 0)
    took = time.perf_counter() - start
    if took >= seconds:
        return Outcome(Verdict.HUNG, None, f"hung for {seconds:g} s", 0.0, took)
    if not content or os.WIFSIGNALED(status):
        return Outcome(Verdict.CRASHED, None, f"ended with status {status}", 0.0, took)
    verdict, answer, said, before = pickle.loads(bytes(content))
    return Outcome(verdict, answer, said, max(0.0, 1024.0 * usage.ru_maxrss - before), took)


def _answer(call: Callable[[], Any], names: Sequence[str], writer: int) -> None:
    """Make the call in the child, send what came of it, and end."""
    code = 1
    try:
        before = resident()
        try:
            found: tuple[Any, ...] = (Verdict.RIGHT, call(), "", before)
        except Exception as error:
            verdict = Verdict.CLEAR if is_sentence(error, names) else Verdict.UNCLEAR
            found = (verdict, None, f"{type(error).__name__}: {error}"[:2000], before)
        try:
            content = pickle.dumps(found)
        except Exception:
            content = pickle.dumps((found[0], None, found[2], before))
        with os.fdopen(writer, "wb") as stream:
            stream.write(content)
        code = 0
    finally:
        os._exit(code)


def resident() -> int:
    """Return how many bytes this process holds in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
