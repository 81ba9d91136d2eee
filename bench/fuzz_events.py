"""Does the decoder of events hold against a million texts, right, wrong and broken, without a crash, a hang or a wrong verdict?

Usage: python -P bench/fuzz_events.py [texts [seed]]; 100,000 texts unless told. Deterministic for a seed.

Each verdict is compared with the slow path's, each accepted event is decoded as the daemon does and judged again, and
where ROOST_CONTRACTS names a folder with `seeds/stored-event.schema.json` every verdict is compared with the JSON Schema's.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec

from bench.event_cases import Case, Cases
from bench.report import Figure, at_most, table
from roost.schemas import canonical
from roost.schemas.unions import event_decoder
from roost.schemas.validation import StoredForm, Verdict, judge, judge_exactly

if TYPE_CHECKING:
    from bench.event_oracle import Oracle

TEXTS = 100_000
# One text in so many is made around a byte limit, which takes as long as hundreds of others.
LIMIT_CASES = 1_000
SHOWN = 10
HANGS_AFTER = 5.0


class Wrong(Exception):
    """The decoder is wrong about a text."""


class Fuzz:
    """One run, and what it has seen."""

    def __init__(self, seed: int, oracle: Oracle | None) -> None:
        self.cases = Cases(Random(seed))
        self.oracle = oracle
        self.accepted = 0
        self.paths: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest = 0.0
        self.spent = 0.0

    def run(self, texts: int) -> None:
        """Judge this many texts."""
        for number in range(texts):
            case = self.cases.at_limit() if number % LIMIT_CASES == 0 else self.cases.some()
            try:
                self._check(case)
            except Exception as error:  # noqa: BLE001 - a crash is what is looked for
                self.wrong.append(f"text {number}, {case.way}: {error!r}: {case.text[:300]!r}")

    def _check(self, case: Case) -> None:
        begin = time.perf_counter()
        verdict = judge(case.text, stored=case.stored)
        took = time.perf_counter() - begin
        self.spent += took
        self.slowest = max(self.slowest, took)
        self.accepted += verdict.ok
        self.paths[verdict.path.partition("/")[2].partition("/")[0]] += not verdict.ok
        check_verdict(case, verdict)
        if (
            self.oracle is not None
            and self.oracle.accepts(case.text, stored=case.stored) is not verdict.ok
        ):
            raise Wrong(f"the schema does not say {verdict}")


def check_verdict(case: Case, verdict: Verdict) -> None:
    """Compare a verdict with the slow path's, and an accepted event with itself after a round trip.

    Raises:
        Wrong: they differ.
    """
    exact = judge_exactly(case.text, stored=case.stored)
    if _form(exact) != _form(verdict):
        raise Wrong("the two paths differ")
    if verdict.event is None:
        if not verdict.path.startswith("/") or not verdict.code or not verdict.message:
            raise Wrong("a refusal without a reason")
        return
    body = verdict.event.body
    event_decoder.decode(body)
    again = judge(body, stored=False)
    if again.event is None or _form(again)[1] != _form(verdict)[1]:
        raise Wrong("what is stored is not what was accepted")


def _form(verdict: Verdict) -> tuple[object, object]:
    found: StoredForm | None = verdict.event
    if found is None:
        return (verdict.code, verdict.path, verdict.message), None
    draft = canonical.encode(msgspec.json.decode(found.body))
    return (found.id, found.type, found.session_id, found.turn_id, found.sequence), draft


def run(texts: int = TEXTS, seed: int = 1) -> list[Figure]:
    """Return what a run says."""
    fuzz = Fuzz(seed, _oracle())
    fuzz.run(texts)
    for line in fuzz.wrong[:SHOWN]:
        sys.stderr.write(line + "\n")
    against = "slow path and JSON Schema" if fuzz.oracle else "slow path"
    common = ", ".join(f"/{path} {count:,}" for path, count in fuzz.paths.most_common(6))
    return [
        Figure(
            f"{texts:,} texts (seed {seed}) against the {against}",
            f"{len(fuzz.wrong)} wrong",
            bound="0 wrong",
            met=not fuzz.wrong,
        ),
        Figure("accepted, and the most frequent paths of refusals", f"{fuzz.accepted:,}; {common}"),
        Figure(
            "texts judged a second, those at the byte limits too", f"{texts / fuzz.spent:,.0f}/s"
        ),
        at_most("the slowest text", fuzz.slowest, HANGS_AFTER, "s"),
    ]


def _oracle() -> Oracle | None:
    contracts = os.environ.get("ROOST_CONTRACTS")
    if not contracts:
        return None
    from bench.event_oracle import Oracle

    return Oracle(Path(contracts) / "seeds" / "stored-event.schema.json")


if __name__ == "__main__":
    figures = run(*map(int, sys.argv[1:3]))
    sys.stdout.write(table(figures) + "\n")
    sys.exit(int(any(figure.met is False for figure in figures)))
