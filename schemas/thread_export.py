"""The schemas of the thread door, made from the structs that decode and encode it: JSON Schema and TypeScript; pure.

The schema of the client's requests is, member for member, that of the protocol; what only this door takes is not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, get_args

import msgspec
from msgspec import inspect

from roost.schemas import thread as t, thread_notifications as n, thread_results as r
from roost.schemas.json_schema import Definitions, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_Shape = type[msgspec.Struct]

NAMED: Final[Mapping[str, _Shape]] = {
    "SchemaExportResponse": r.SchemaExportResponse,
    "InitializeParams": t.InitializeParams,
    "InitializeResponse": r.InitializeResponse,
    "ThreadStartResponse": r.ThreadStartResponse,
    "ThreadReadResponse": r.ThreadReadResponse,
    "ThreadResumeResponse": r.ThreadResumeResponse,
    "TurnStartResponse": r.TurnStartResponse,
    "AppThread": r.AppThread,
    "AppTurn": r.AppTurn,
    "AppItem": r.AppItem,
    "ApprovalRequestParams": n.ApprovalRequestParams,
    "ApprovalResolveParams": t.ApprovalResolveParams,
    "ThreadListResponse": r.ThreadListResponse,
    "TurnSteerResponse": r.TurnSteerResponse,
    "ApprovalResolveResponse": r.ApprovalResolveResponse,
    "ModelListResponse": r.ModelListResponse,
    "ThreadUnsubscribeResponse": r.ThreadUnsubscribeResponse,
    "EmptyResponse": r.Empty,
}
"""What is exported by a name of its own, besides the messages; the last six are additions."""
_ID: Final[Schema] = {"anyOf": [{"type": "string"}, {"type": "integer", "format": "int64"}]}


class ThreadDefinitions(Definitions):
    """Definitions under `$defs`; what may be null says so in its type, and what has a default names it."""

    always = frozenset(("capabilities", "turnId"))

    def _definition(self, info: inspect.StructType) -> Schema:
        made = super()._definition(info)
        if issubclass(info.cls, r.Shown):
            # What is sent has all of its members but those that are `UNSET`.
            fields = msgspec.structs.fields(info.cls)
            required = [f.encode_name for f in fields if f.default is not msgspec.UNSET]
            made.pop("required", None)
            if required:
                made["required"] = required
            return made
        properties = cast("dict[str, Schema]", made["properties"])
        for field in info.fields:
            shown = properties.get(field.encode_name)
            if shown is not None and not field.required and _tells_default(field):
                shown["default"] = _default(field)
        return made

    def _of_struct(self, info: inspect.StructType) -> Schema:
        super()._of_struct(info)
        return {"$ref": f"#/$defs/{info.cls.__name__}"}

    def _of(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.LiteralType(values=values) if values == get_args(t.ApprovalDecision):
                self.made["ApprovalDecision"] = {"type": "string", "enum": ["allow", "deny"]}
                return {"$ref": "#/$defs/ApprovalDecision"}
            case inspect.LiteralType(values=values):
                return {"type": "string", "enum": list(values)}
            case inspect.UnionType(types=types) if any(
                isinstance(one, inspect.NoneType) for one in types
            ):
                (only,) = [one for one in types if not isinstance(one, inspect.NoneType)]
                made = self._of(only)
                return {**made, "type": [made["type"], "null"]}
            case inspect.IntType(ge=0):
                return {"type": "integer", "format": "uint", "minimum": 0}
            case _:
                return super()._of(kind)


def json_schemas() -> dict[str, Schema]:
    """Return the schemas by name: the messages of both directions, and what they are made of."""
    found: dict[str, Schema] = {
        "ClientRequest": client_request(),
        "ServerNotification": server_notification(),
        "ServerRequest": server_request(),
        "JsonRpcMessage": json_rpc_message(),
    }
    for name, shape in NAMED.items():
        found[name] = schema_of(name, shape)
    return found


def client_request() -> Schema:
    """Return the schema of the 13 requests, without their ids."""
    maker = ThreadDefinitions()
    return _whole("ClientRequest", [_message(m, s, maker) for m, s in t.REQUESTS.items()], maker)


def server_notification() -> Schema:
    """Return the schema of every notification."""
    maker = ThreadDefinitions()
    shapes = n.NOTIFICATIONS.items()
    return _whole("ServerNotification", [_message(m, s, maker) for m, s in shapes], maker)


def server_request() -> Schema:
    """Return the schema of the one request to a client."""
    maker = ThreadDefinitions()
    request = _message(n.REQUEST, n.ApprovalRequestParams, maker)
    properties = cast("dict[str, Schema]", request["properties"])
    request["properties"] = {"id": _ID, **properties}
    request["required"] = ["id", "method", "params"]
    return _whole("ServerRequest", [request], maker)


def json_rpc_message() -> Schema:
    """Return the schema of what any message is."""
    error: Schema = {
        "type": "object",
        "properties": {
            "code": {"type": "integer"},
            "message": {"type": "string"},
            "data": {},
        },
        "required": ["code", "message"],
    }
    kinds: list[Schema] = [
        _object({"id": _ID, "method": {"type": "string"}, "params": {}}, "id", "method"),
        _object({"method": {"type": "string"}, "params": {}}, "method"),
        _object({"id": _ID, "result": {}}, "id", "result"),
        _object({"id": {"anyOf": [_ID, {"type": "null"}]}, "error": error}, "id", "error"),
    ]
    return {"$schema": DRAFT, "title": "JsonRpcMessage", "anyOf": kinds}


def schema_of(name: str, shape: _Shape) -> Schema:
    """Return the schema of one struct with everything that it refers to."""
    maker = ThreadDefinitions()
    maker.ref(shape)
    own = cast("Schema", maker.made.pop(shape.__name__))
    found: Schema = {"$schema": DRAFT, "title": name, **own}
    return {**found, "$defs": maker.made} if maker.made else found


def _whole(title: str, messages: list[Schema], maker: ThreadDefinitions) -> Schema:
    return {"$schema": DRAFT, "title": title, "oneOf": messages, "$defs": maker.made}


def _object(properties: Mapping[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _message(method: str, shape: _Shape, maker: ThreadDefinitions) -> Schema:
    properties: dict[str, Schema] = {"method": {"type": "string", "const": method}}
    if shape is t.NoParams:
        return _object(properties, "method")
    return _object({**properties, "params": maker.ref(shape)}, "method", "params")


def _tells_default(field: inspect.Field) -> bool:
    return isinstance(field.type, inspect.BoolType | inspect.ListType)


def _default(field: inspect.Field) -> object:
    return [] if isinstance(field.type, inspect.ListType) else cast("object", field.default)
