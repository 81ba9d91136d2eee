"""JSON-RPC 2.0 as the daemon door speaks it: requests, answers, errors."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

RequestId = Annotated[str, msgspec.Meta(min_length=1)] | int

NO_PARAMS = msgspec.Raw(b"{}")
"""The params of a request that has none; the very object tells that they are absent."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request; `params` is decoded by method."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    method: str
    params: msgspec.Raw = NO_PARAMS


class ClientReply(msgspec.Struct, frozen=True, kw_only=True):
    """A client's answer to a request of the daemon: a result, or the code of an error (0 for one without)."""

    id: RequestId
    result: msgspec.Raw | None = None
    error: int | None = None


class ErrorObject(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was not carried out; `data` has at least a string `code`."""

    code: int
    message: str
    data: dict[str, object]


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that failed; `id` is None where the request had none that can be repeated."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None
    error: ErrorObject


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon says of itself; `params` is one of the structs of `roost.schemas.daemon`."""

    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: object
