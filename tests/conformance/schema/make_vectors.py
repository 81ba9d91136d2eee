"""Writes `vectors.jsonl`: messages of the daemon door with their verdicts, for a suite that has no contract at hand.

Usage: python -P tests/conformance/schema/make_vectors.py CONTRACTS, the folder with `seeds/`.
Each verdict is the contract's word; the script stops if the exported schema says otherwise. The messages come from a fixed
seed, so the file only changes when the contract does.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import cast

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

import jsonschema_rs

from bench.schema_cases import Cases, Json
from roost.schemas.export import daemon_schema

MESSAGES = 60_000
# How many there may be of one method and verdict, and how many of those with the same members.
MOST = (12, 1)
LONGEST = 500


def names_in(value: object) -> str:
    """Return the names of all members, which tell one kind of message from others."""
    if isinstance(value, dict):
        members = cast("Json", value)
        return "{" + ",".join(f"{k}{names_in(members[k])}" for k in sorted(members)) + "}"
    return "" if value is None or isinstance(value, str | int | float) else type(value).__name__


def main(contracts: Path) -> None:
    contract: Json = json.loads((contracts / "seeds" / "daemon-protocol.schema.json").read_bytes())
    theirs = jsonschema_rs.Draft7Validator(contract)
    ours = jsonschema_rs.Draft7Validator(json.loads(json.dumps(daemon_schema())))
    cases, seen = Cases(contract, Random(20_260_101)), Counter[tuple[str, bool]]()
    known = {*cases.requests, *cases.notifications}
    lines: dict[str, None] = {}
    for number in range(MESSAGES):
        case = cases.right()
        message = cases.changed(case.message).message if number % 3 else case.message
        text = json.dumps(message)
        accepted = theirs.is_valid(message)
        if accepted is not ours.is_valid(message):
            raise SystemExit(f"the contract says {accepted}, the exported schema not: {text}")
        method = str(cast("Json", message).get("method"))
        kinds = (
            (method if method in known else "", accepted),
            (f"{method}{names_in(message)}", accepted),
        )
        if len(text) <= LONGEST and all(
            seen[kind] < most for kind, most in zip(kinds, MOST, strict=True)
        ):
            seen.update(kinds)
            lines[json.dumps({"message": message, "ok": accepted})] = None
    (HERE / "vectors.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
