"""One message of a thread client from bytes to what it is, and what is sent to it to bytes (T 1.1, 1.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from roost.actors.errors import DaemonError
from roost.actors.front.envelope import TOO_SHORT_TO_BE_DEEP, NotARequest, is_too_deep
from roost.actors.front.wire import Wire
from roost.actors.threads.shorten import shortened
from roost.schemas.rpc import NO_PARAMS, ClientReply

if TYPE_CHECKING:
    from collections.abc import Mapping

BUSY = "Server overloaded; retry later."
OVERLOADED, INVALID_PARAMS, INTERNAL = -32001, -32602, -32603
AROUND = 256
"""More than there is of a line around its params or its result, but for the id of a request."""

_CODES: Mapping[str, tuple[int, str]] = {
    "PARSE_ERROR": (-32700, ""),
    "INVALID_REQUEST": (-32600, ""),
    "BATCH_UNSUPPORTED": (-32600, ""),
    "MESSAGE_TOO_LARGE": (-32600, "messageTooLarge"),
    "METHOD_NOT_FOUND": (-32601, ""),
    "INVALID_ARGUMENT": (INVALID_PARAMS, "invalidParams"),
    "UNKNOWN_PROTOCOL": (INVALID_PARAMS, "unknownProtocol"),
    "EMPTY_INPUT": (INVALID_PARAMS, "emptyInput"),
    "INPUT_TOO_LARGE": (INVALID_PARAMS, "inputTooLarge"),
    "TURN_IN_PROGRESS": (INVALID_PARAMS, "turnInProgress"),
    "UNKNOWN_MODEL": (INVALID_PARAMS, "unknownModel"),
    "APPROVAL_NOT_FOUND": (INVALID_PARAMS, "approvalNotFound"),
    "APPROVAL_ALREADY_RESOLVED": (INVALID_PARAMS, "approvalAlreadyResolved"),
    "CLIENT_MESSAGE_ID_CONFLICT": (INVALID_PARAMS, "clientMessageIdConflict"),
    "CONNECTION_NOT_INITIALIZED": (-32010, ""),
    "CONNECTION_ALREADY_INITIALIZED": (-32011, ""),
    "EXPERIMENTAL_API_REQUIRED": (-32012, "experimentalApiRequired"),
    "UNSUPPORTED_METHOD": (-32013, ""),
    "SESSION_NOT_FOUND": (-32020, "threadNotFound"),
    "AGENT_NOT_FOUND": (-32020, "threadNotFound"),
    "SESSION_CLOSED": (-32021, "threadArchived"),
    "NO_ACTIVE_TURN": (-32030, "noActiveTurn"),
    "TURN_ID_MISMATCH": (-32031, "turnIdMismatch"),
    "TOO_MANY_QUEUED_REQUESTS": (OVERLOADED, "tooManyQueued"),
    "TOO_MANY_QUEUED_MESSAGES": (OVERLOADED, "tooManyQueued"),
    "TOO_MANY_IN_FLIGHT_REQUESTS": (OVERLOADED, "tooManyInFlight"),
    "RATE_LIMITED": (OVERLOADED, "rateLimited"),
    "OVERLOADED": (OVERLOADED, "overloaded"),
    "SHUTTING_DOWN": (OVERLOADED, "serverShuttingDown"),
    "DISK_FULL": (INTERNAL, "storeFull"),
    "EVENT_STORE_CAPACITY_EXCEEDED": (INTERNAL, "storeFull"),
    "ANSWER_TOO_LARGE": (INTERNAL, "answerTooLarge"),
    "REQUEST_TOO_LARGE": (INTERNAL, "requestTooLarge"),
    "INTERNAL": (INTERNAL, ""),
}
_INT64 = 2**63

_encode = msgspec.json.Encoder().encode
_decode_id = msgspec.json.Decoder(str | int).decode
_decode_text = msgspec.json.Decoder(str).decode


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A request (with an id) or a notification; `params` is `NO_PARAMS` where they are absent or null."""

    id: str | int | None
    method: str
    params: msgspec.Raw


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: msgspec.Raw | UnsetType = UNSET
    id: msgspec.Raw | UnsetType = UNSET
    method: msgspec.Raw | UnsetType = UNSET
    params: msgspec.Raw | UnsetType = UNSET
    result: msgspec.Raw | UnsetType = UNSET
    error: msgspec.Raw | UnsetType = UNSET


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    message: str
    data: dict[str, object] | UnsetType = UNSET


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    id: str | int | None
    error: _Error


class _Code(msgspec.Struct, frozen=True):
    code: int = 0


_decode = msgspec.json.Decoder(_Envelope).decode
_decode_code = msgspec.json.Decoder(_Code).decode


def decode_message(line: bytes) -> tuple[Incoming | ClientReply | None, bool]:
    """Return what a message is (None: nothing) and whether it carries `jsonrpc`.

    Raises:
        NotARequest: it is none of these.
    """
    try:
        if not line.isascii():
            line.decode()
        if len(line) > TOO_SHORT_TO_BE_DEEP and is_too_deep(line):
            raise NotARequest(DaemonError("PARSE_ERROR", "JSON is nested too deeply"))
        found = _decode(line)
    except msgspec.ValidationError:
        what = (
            "batch requests are not supported" if line.lstrip()[:1] == b"[" else "invalid request"
        )
        raise _invalid(what) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        if not line.strip():
            return None, False
        raise NotARequest(DaemonError("PARSE_ERROR", "invalid JSON")) from None
    return _judge(found), found.jsonrpc is not UNSET


def _judge(found: _Envelope) -> Incoming | ClientReply:
    request_id = _id_of(found.id)
    if isinstance(found.method, msgspec.Raw):
        try:
            method = _decode_text(found.method)
        except msgspec.MsgspecError:
            raise _invalid("a method is a string") from None
        params = found.params
        absent = not isinstance(params, msgspec.Raw) or bytes(params) == b"null"
        return Incoming(
            id=request_id,
            method=method,
            params=NO_PARAMS if absent or not isinstance(params, msgspec.Raw) else params,
        )
    if request_id is not None:
        if isinstance(found.result, msgspec.Raw):
            return ClientReply(id=request_id, result=found.result)
        if isinstance(found.error, msgspec.Raw):
            return ClientReply(id=request_id, error=_code_of(found.error))
    raise _invalid("neither a request nor an answer")


def _id_of(raw: msgspec.Raw | UnsetType) -> str | int | None:
    if not isinstance(raw, msgspec.Raw):
        return None
    text = bytes(raw)
    try:
        if text[:1] != b'"' and not text.lstrip(b"-").isdigit():
            raise _invalid("an id is a string or an integer")
        found = _decode_id(text)
    except msgspec.MsgspecError:
        raise _invalid("an id is a string or an integer") from None
    if isinstance(found, int) and not -_INT64 <= found < _INT64:
        raise _invalid("an id is an integer of at most 64 bits")
    return found


def _code_of(raw: msgspec.Raw) -> int:
    try:
        return _decode_code(raw).code
    except msgspec.MsgspecError:
        return 0


def _invalid(text: str) -> NotARequest:
    return NotARequest(DaemonError("INVALID_REQUEST", text))


_HEADS = (b"{", b'{"jsonrpc":"2.0",')


class ThreadWire(Wire):
    """The thread door's answers and notifications; `jsonrpc` is on them if it was on what the client sent.

    With `line_bytes` the texts of a result that would make a longer line are cut.
    """

    def __init__(self, *, jsonrpc: bool, line_bytes: int = 0) -> None:
        self.jsonrpc = jsonrpc
        self._line_bytes = line_bytes
        self._head = _HEADS[jsonrpc]

    def answer(self, request_id: str | int, result: bytes) -> bytes:
        """Return the line that answers a request with a result."""
        shown = b"%d" % request_id if isinstance(request_id, int) else _encode(request_id)
        room = self._line_bytes - AROUND - len(shown)
        if self._line_bytes and len(result) > room:
            result = shortened(result, max(room, AROUND))
        return b'%b"id":%b,"result":%b}\n' % (self._head, shown, result)

    def error(self, request_id: str | int | None, error: DaemonError) -> bytes:
        """Return the line that answers a request with an error; the code is the door's own."""
        code, word = _CODES.get(error.code, (INTERNAL, ""))
        data = {"code": word, **error.data} if word else dict(error.data)
        text = BUSY if code == OVERLOADED else error.message or error.code
        line = _encode(
            _Refusal(id=request_id, error=_Error(code=code, message=text, data=data or UNSET))
        )
        room = self._line_bytes - len(_HEADS[True])
        if self._line_bytes and len(line) > room:
            line = shortened(line, room)
        return b"%b%b\n" % (self._head, line[1:])

    def notification(self, method: str, params: bytes) -> bytes:
        """Return the line of a notification."""
        return b'%b"method":"%b","params":%b}\n' % (self._head, method.encode(), params)

    def request(self, request_id: str, method: str, params: bytes) -> bytes:
        """Return the line of a request to the client."""
        shown = _encode(request_id)
        line = (self._head, shown, method.encode(), params)
        return b'%b"id":%b,"method":"%b","params":%b}\n' % line


WIRES = (ThreadWire(jsonrpc=False), ThreadWire(jsonrpc=True))
