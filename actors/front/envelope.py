"""One JSON-RPC message of a client from bytes to a request, and answers to bytes (P 4.1 to 4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from roost.actors.errors import DaemonError
from roost.schemas.errors import DAEMON_CODES, INTERNAL_ERROR
from roost.schemas.rpc import NO_PARAMS, ErrorObject, ErrorResponse, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DEPTH = 128
TOO_SHORT_TO_BE_DEEP = 2 * MAX_DEPTH

_decode = msgspec.json.Decoder(Request).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")
_MEMBERS = frozenset(("jsonrpc", "id", "method", "params"))


class NotARequest(Exception):
    """What came is no request; `error` is None if it is to be ignored."""

    def __init__(self, error: DaemonError | None, request_id: str | int | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.request_id = request_id


def decode_request(line: bytes) -> Request:
    """Return the request in one message.

    Raises:
        NotARequest: it is none.
    """
    try:
        if not line.isascii():
            line.decode()
        if len(line) > TOO_SHORT_TO_BE_DEEP and is_too_deep(line):
            raise NotARequest(DaemonError("PARSE_ERROR", "JSON is nested too deeply"))
        return _decode(line)
    except msgspec.ValidationError:
        return _unusual(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _not_json(line) from None


def answer_line(request_id: str | int, result: bytes) -> bytes:
    """Return the line that answers a request with a result."""
    shown = b"%d" % request_id if isinstance(request_id, int) else _encode(request_id)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (shown, result)


def error_line(request_id: str | int | None, error: DaemonError) -> bytes:
    """Return the line that answers a request with an error."""
    found = ErrorObject(
        code=DAEMON_CODES.get(error.code, INTERNAL_ERROR),
        message=error.message or error.code,
        data={"code": error.code, **error.data},
    )
    return _encode(ErrorResponse(id=request_id, error=found)) + b"\n"


def is_too_deep(line: bytes) -> bool:
    """Return whether the JSON is nested deeper than `MAX_DEPTH`; of no use for what is not JSON."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return False
    outside = b"".join(line.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    brackets = outside.translate(_AS_BRACKETS, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):
            break
        brackets = inner
    return bool(brackets)


def _not_json(line: bytes) -> NotARequest:
    if not line.strip():
        return NotARequest(None)
    return NotARequest(DaemonError("PARSE_ERROR", "invalid JSON"))


def _unusual(line: bytes) -> Request:
    """Return a request with a member given twice, of which the last counts, or with an integer spelled as 1.0."""
    try:
        raw = _decode_members(line)
        request_id = msgspec.json.decode(raw["id"], type=float | int | str)
        if isinstance(request_id, float) and request_id.is_integer():
            request_id = int(request_id)
        members = {name: msgspec.json.decode(raw[name]) for name in ("jsonrpc", "method")}
        found = msgspec.convert({**members, "id": request_id}, Request)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError):
        raise _judge(line) from None
    if not raw.keys() <= _MEMBERS:
        raise _judge(line)
    return msgspec.structs.replace(found, params=raw.get("params", NO_PARAMS))


def _judge(line: bytes) -> NotARequest:
    """Return what is wrong with a message that is JSON."""
    try:
        value: object = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _not_json(line)
    if isinstance(value, list):
        error = DaemonError("BATCH_UNSUPPORTED", "batch requests are not supported")
        return NotARequest(error)
    if not isinstance(value, dict):
        return NotARequest(DaemonError("INVALID_REQUEST", "a request must be an object"))
    members = cast("dict[str, object]", value)
    if _wants_no_answer(members):
        return NotARequest(None)
    return NotARequest(DaemonError("INVALID_REQUEST", _fault(members)), _id_of(members))


def _wants_no_answer(value: Mapping[str, object]) -> bool:
    """A notification, or an answer to a request that the daemon never sent."""
    if "method" in value:
        return "id" not in value
    return "result" in value or "error" in value


def _id_of(value: Mapping[str, object]) -> str | int | None:
    found = value.get("id")
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if type(found) is int or (isinstance(found, str) and found):
        return found
    return None


def _fault(value: Mapping[str, object]) -> str:
    if value.get("jsonrpc") != "2.0":
        return "invalid JSON-RPC version"
    if not isinstance(value.get("method"), str):
        return "missing daemon method"
    if _id_of(value) is None:
        return "missing daemon request id"
    unknown = [str(key)[:64] for key in value if key not in _MEMBERS]
    return f"a request has no member '{unknown[0]}'" if unknown else "invalid request"
