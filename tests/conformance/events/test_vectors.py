"""The vectors of `vectors.jsonl`, which `make_vectors.py` has written from the contract."""

from __future__ import annotations

import json
from pathlib import Path

from roost.schemas.validation import judge, judge_exactly

VECTORS = Path(__file__).with_name("vectors.jsonl").read_text().splitlines()


def test_every_vector_is_judged_as_the_contract_says() -> None:
    verdicts = {True: 0, False: 0}
    for line in VECTORS:
        vector = json.loads(line)
        text = vector["text"].encode() if "text" in vector else bytes.fromhex(vector["hex"])
        for judged in (judge, judge_exactly):
            found = judged(text, stored=vector["stored"])
            said = (vector["ok"], vector.get("code", ""), vector.get("path", ""))
            assert (found.ok, found.code, found.path) == said, line
        verdicts[vector["ok"]] += 1
    assert min(verdicts.values()) > 50
