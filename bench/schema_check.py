"""Whether what a daemon sends is of the schema: its notifications and its answers, each by the schema of its own.

With ROOST_CONTRACTS naming a folder with `seeds/daemon-protocol.schema.json` that schema is the judge, else the exported one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import jsonschema_rs

from bench.schema_cases import Json, by_method, resolved
from roost.schemas.export import daemon_schema

if TYPE_CHECKING:
    from collections.abc import Mapping


class NotOfTheSchema(AssertionError):
    """The daemon sent what the schema does not know."""


def judging_schema() -> Json:
    """Return the contract if it is at hand, else the exported schema."""
    folder = os.environ.get("ROOST_CONTRACTS") or "/nonexistent"
    file = Path(folder) / "seeds" / "daemon-protocol.schema.json"
    found: Json = json.loads(file.read_bytes() if file.exists() else json.dumps(daemon_schema()))
    return found


class Check:
    """Call it with each message."""

    def __init__(self, schema: Json) -> None:
        self._schema = schema
        self._notifications = {
            name: self._validator(one) for name, one in by_method(schema, "notifications").items()
        }
        answers = [resolved(schema, one) for one in cast("list[Json]", schema["oneOf"])]
        self._answers = {
            name: self._validator(one)
            for one in answers
            for name in ("result", "error")
            if name in cast("Mapping[str, object]", one.get("properties", {}))
        }

    def __call__(self, message: object) -> None:
        """Do nothing if a message is right.

        Raises:
            NotOfTheSchema: it is not.
        """
        members = cast("Json", message)
        kind = "error" if "error" in members else "result"
        validator = (
            self._notifications.get(str(members["method"]))
            if "method" in members
            else self._answers[kind]
        )
        if validator is None:
            raise NotOfTheSchema(f"no such notification: {json.dumps(message)[:500]}")
        if not validator.is_valid(message):
            faults = [f"{e.instance_path}: {e.message}" for e in validator.iter_errors(message)]
            raise NotOfTheSchema(f"{faults[:3]}: {json.dumps(message)[:1000]}")

    def _validator(self, one: Json) -> jsonschema_rs.Draft7Validator:
        whole = {**one, "definitions": self._schema["definitions"]}
        return jsonschema_rs.Draft7Validator(whole)


class Results:
    """Whether a result is as the exported schema says for its method; of some methods it says nothing."""

    def __init__(self) -> None:
        schema: Json = json.loads(json.dumps(daemon_schema()))
        links = cast("dict[str, Json]", schema["x-roost-results"])
        self._validators = {
            name: jsonschema_rs.Draft7Validator({**one, "definitions": schema["definitions"]})
            for name, one in links.items()
        }

    def fault(self, method: str, result: object) -> str:
        """Return what is wrong with a result, or nothing."""
        validator = self._validators.get(method)
        faults = validator.iter_errors(result) if validator is not None else ()
        return "; ".join(f"{list(e.instance_path)}: {e.message[:200]}" for e in faults)


def checker() -> Check:
    """Return a check by the schema that judges here."""
    return Check(judging_schema())
