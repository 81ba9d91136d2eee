"""Writes `vectors.jsonl`: texts of events with their verdicts, for a suite that has no contract at hand.

Usage: python -P tests/conformance/events/make_vectors.py CONTRACTS, the folder with `seeds/` and `fixtures/`.
Whether a text is accepted is the JSON Schema's word (and the limits'); the path is ours, and stops the script if the two
disagree. The texts come from fixed seeds, so the file only changes when the contract or the rules do.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from bench.event_cases import Case, Cases
from bench.event_oracle import Oracle
from roost.schemas.validation import judge

PER_KIND = 2
TEXTS = 4_000
LONGEST = 700


def fixtures(contracts: Path) -> list[Case]:
    """Return every published example as a text."""
    cases: list[Case] = []
    for file in sorted((contracts / "fixtures" / "events").glob("*/*.json")):
        for entry in json.loads(file.read_bytes())["cases" if "invalid" in file.name else "events"]:
            stored = entry.get("kind") != "new"
            event = entry["event"] if "kind" in entry else entry
            cases.append(Case(json.dumps(event).encode(), stored, "fixture"))
    return cases


def generated() -> list[Case]:
    """Return short texts, at most a few of each kind of verdict."""
    cases, seen = Cases(Random(20_260_101)), Counter[tuple[str, str, bool]]()
    found: list[Case] = []
    for _ in range(TEXTS):
        case = cases.some()
        verdict = judge(case.text, stored=case.stored)
        top = "/".join(verdict.path.split("/")[:2])
        kind = (case.way, top, verdict.ok)
        if len(case.text) <= LONGEST and seen[kind] < PER_KIND:
            seen[kind] += 1
            found.append(case)
    return found


def line(case: Case, oracle: Oracle) -> str:
    """Return a vector as a line."""
    verdict = judge(case.text, stored=case.stored)
    if oracle.accepts(case.text, stored=case.stored) is not verdict.ok:
        raise SystemExit(f"schema and verdict disagree: {verdict}: {case.text!r}")
    try:
        text = {"text": case.text.decode()}
    except UnicodeDecodeError:
        text = {"hex": case.text.hex()}
    said = {"code": verdict.code, "path": verdict.path} if not verdict.ok else {}
    return json.dumps({**text, "stored": case.stored, "ok": verdict.ok, **said})


def main(contracts: Path) -> None:
    oracle = Oracle(contracts / "seeds" / "stored-event.schema.json")
    lines = dict.fromkeys(line(case, oracle) for case in (*fixtures(contracts), *generated()))
    (HERE / "vectors.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
