"""TypeScript from the JSON Schemas of the thread door; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec

from roost.schemas.thread_export import json_schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.schemas.json_schema import Schema

_WITHOUT: Final = frozenset(("JsonRpcMessage",))
_WORDS: Final[Mapping[str, str]] = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def exported() -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of all JSON Schemas by name, and of the TypeScript files by theirs."""
    schemas = json_schemas()
    shown = {name: msgspec.json.format(_text(one)).decode() for name, one in schemas.items()}
    files = {
        f"{name}.ts": typescript(name, one) for name, one in schemas.items() if name not in _WITHOUT
    }
    return shown, files


def typescript(name: str, schema: Schema) -> str:
    """Return a file that exports the type of a schema, and those that it refers to."""
    parts = [f"export type {name} = {_type(schema)};"]
    defs = cast("Mapping[str, Schema]", schema.get("$defs", {}))
    parts += [f"export type {key} = {_type(one)};" for key, one in defs.items()]
    return "\n\n".join(parts) + "\n"


def _text(schema: Schema) -> bytes:
    return msgspec.json.encode(schema)


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return _literal(schema["const"])
    if "enum" in schema:
        return " | ".join(map(_literal, cast("list[object]", schema["enum"])))
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return " | ".join(map(_type, cast("list[Schema]", schema[word])))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": one}) for one in cast("list[str]", kind))
    match kind:
        case "object":
            return _object(schema)
        case "array":
            return f"Array<{_type(cast('Schema', schema.get('items', {})))}>"
        case str():
            return _WORDS[kind]
        case _:
            return "unknown"


def _object(schema: Schema) -> str:
    properties = cast("Mapping[str, Schema]", schema.get("properties", {}))
    further = schema.get("additionalProperties")
    if not properties:
        inner = _type(cast("Schema", further)) if isinstance(further, dict) else "unknown"
        return f"Record<string, {inner}>"
    required = cast("list[str]", schema.get("required", []))
    members = [
        f"{_literal(name)}{'' if name in required else '?'}: {_type(one)}"
        for name, one in properties.items()
    ]
    return "{ " + "; ".join(members) + " }"


def _literal(value: object) -> str:
    return msgspec.json.encode(value).decode()
