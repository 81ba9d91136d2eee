"""What the daemon's own decoder says of a request, and in what it may differ from the JSON Schema (P 4)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

import msgspec

from bench.schema_cases import Json, objects_in
from roost.actors.errors import DaemonError
from roost.actors.front.envelope import NotARequest, decode_request
from roost.actors.front.params import decode_params
from roost.schemas.errors import (
    DAEMON_CODES,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    SERVER_ERROR,
)
from roost.schemas.export import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Mapping

# P 4.4: these texts must not be blank where they must be there.
NOT_BLANK = frozenset(("agentId", "sessionId", "runId", "requestId", "threadId", "processId"))
# What existing clients send although no schema has it; the daemon takes it.
UNPUBLISHED = ("initialContent", "permissionMode")


def line_of(message: object) -> bytes:
    """Return a message as the line that a client sends."""
    return json.dumps(message, ensure_ascii=False).encode()


def struct_refuses(message: object) -> str:
    """Return why the daemon's decoder refuses a message: `data.code`, or nothing if it takes it."""
    try:
        request = decode_request(line_of(message))
        shape = REQUESTS.get(request.method)
        if shape is None:
            return "METHOD_NOT_FOUND"
        decode_params(request.method, shape, request.params)
    except NotARequest as fault:
        return fault.error.code if fault.error is not None else "IGNORED"
    except DaemonError as error:
        return error.code
    return ""


def has_blank_id(message: object) -> bool:
    """Return whether an id that must be there is only white space."""
    found = objects_in(message)[:2]
    shape = REQUESTS.get(str(found[0].get("method"))) if found else None
    if shape is None or len(found) < 2 or found[0].get("params") is not found[1]:
        return False
    members = found[1]
    for field in msgspec.structs.fields(shape):
        value = members.get(field.encode_name)
        named = field.required and field.encode_name in NOT_BLANK
        if named and isinstance(value, str) and not value.strip():
            return True
    return False


def without_unpublished(message: object) -> object:
    """Return a message without the members that only the daemon knows."""
    if not isinstance(message, dict):
        return message
    members = cast("Json", message)
    params = members.get("params")
    if members.get("method") != "agent.create" or not isinstance(params, dict):
        return members
    kept = {k: v for k, v in cast("Json", params).items() if k not in UNPUBLISHED}
    return {**members, "params": kept}


_CWD = r"cwd (must be an absolute path|is not an existing directory|is not accessible)"
_SANDBOX = r"metadata\.sandbox\b"  # free metadata for the schema, a policy for the daemon
_NOT_PENDING = r"request is not pending: "
_NO_COMMAND = r"no active commandExec session for process id"  # P 6.33 to 6.35
# The rules beyond the schema by which a request may be refused as −32602 INVALID_ARGUMENT, by method, with where they are listed.
ARGUMENT_RULES: Mapping[str, tuple[str, ...]] = {
    "": (  # any method
        r"^[\w./]+ requires (agentId|sessionId|runId|requestId|threadId|processId)$",  # P 4.4
        r"^[\w./]+ param 'requestId' must be a string or integer$",  # P 6.2, 6.29: not blank
        r"^daemon request is already in flight: ",  # P 4.2
    ),
    "initialize": (r"must match protocol\.version",),  # P 6.1
    "agent.create": (
        r"requires a non-empty objective",  # P 6.3
        _CWD,  # P 6.3
        r"envOverrides has a name or value that cannot be set",  # P 6.3
        r"there is no provider '",  # P 6.3, L 12: the runner's providers
        _SANDBOX,
    ),
    "session.create": (_CWD, _SANDBOX),  # P 6.9
    "agent.attach": (r"is already registered",),  # P 6.5
    "session.attach": (r"is already registered",),  # P 6.11
    "message.send": (r"metadata 'displayUserMessage' must be",),  # P 6.19
    "message.stream": (r"metadata 'displayUserMessage' must be",),  # P 6.20
    "tool.approve": (_NOT_PENDING,),  # P 6.26
    "tool.deny": (_NOT_PENDING,),  # P 6.27
    "tool.cancel": (_NOT_PENDING,),  # P 6.28
    "elicitation.respond": (
        _NOT_PENDING,  # P 6.29
        r"requires serverName",  # P 6.29
        r"response",  # P 6.29: a malformed response
    ),
    "permission.list": (
        r"accepts agentId or sessionId, not both",
        r"requires agentId or sessionId",
    ),
    "fs.fuzzy_search": (
        r"param 'roots' must not contain empty paths",  # P 6.31
        r"param 'cancellationToken' must not be empty",  # P 6.31
        r"param '(roots|query)' ",  # P 10.1, 10.6: bounds
    ),
    "commandExec.start": (
        r"param 'command\[\d+\]' must be a (non-empty )?string",  # P 9.1 rules 2 and 3
        r"param 'size\.(rows|cols)' must be at most 65535",  # P 6.34
        r"param 'sandboxPolicy\.\w+' must be|unsupported sandboxPolicy",  # P 9.7
        r"param 'permissionProfile\.id' must be|unsupported permissionProfile",  # P 9.7
        r"param '(cwd|env\.)",  # what no system call takes
        r"tty or streaming requires a client-supplied processId",  # P 9.1 rule 10
        r"param 'size' requires tty true",  # rule 12
        r"cannot combine (outputBytesCap|timeoutMs|sandboxPolicy) with",  # rules 13 to 15
        r"duplicate active commandExec process id",  # rule 16
        r"requires an explicit permissionProfile or sandboxPolicy",  # rule 17
        _CWD,  # P 9.2
    ),
    "commandExec.write": (
        r"requires deltaBase64 or closeStdin",  # P 6.33
        r"invalid deltaBase64",  # P 6.33
        _NO_COMMAND,
    ),
    "commandExec.resize": (
        r"param 'size\.(rows|cols)' must be at most 65535",
        _NO_COMMAND,
    ),  # P 6.34
    "commandExec.terminate": (_NO_COMMAND,),
}
_SESSION = ("AGENT_NOT_FOUND", "BACKGROUND_RUNNER_UNAVAILABLE")
# The other codes that are −32602, by method (P 24).
CODE_RULES: Mapping[str, tuple[str, ...]] = {
    "agent.create": ("INPUT_TOO_LARGE",),
    "agent.attach": _SESSION,
    "agent.stop": _SESSION,
    "agent.logs": _SESSION,
    "run.cancel": ("RUN_NOT_FOUND",),
    "agent.list": ("INVALID_CURSOR",),
    "session.list": ("INVALID_CURSOR",),
    "session.create": (*_SESSION, "INPUT_TOO_LARGE"),
    "session.attach": ("SESSION_NOT_FOUND", "SESSION_CLOSED"),
    "session.detach": ("SESSION_NOT_FOUND",),
    "session.terminate": ("SESSION_NOT_FOUND",),
    "session.clear": (*_SESSION, "TURN_IN_PROGRESS"),
    "session.snapshot": _SESSION,
    "session.transcript": _SESSION,
    "message.send": (*_SESSION, "CLIENT_MESSAGE_ID_CONFLICT", "INPUT_TOO_LARGE"),
    "message.stream": (*_SESSION, "CLIENT_MESSAGE_ID_CONFLICT", "INPUT_TOO_LARGE"),
    "tool.approve": _SESSION,
    "tool.deny": _SESSION,
    "tool.cancel": _SESSION,
    "elicitation.respond": _SESSION,
    "permission.list": _SESSION,
}
# What is −32000 and may happen to the fuzz's requests; nothing of it is about a value.
STATES = frozenset(
    (
        "CONNECTION_ALREADY_INITIALIZED",
        "PROTOCOL_VERSION_UNSUPPORTED",
        "REQUEST_CANCELLED",
        "SANDBOX_UNAVAILABLE",
        "TOO_MANY_IN_FLIGHT_REQUESTS",
        "TOO_MANY_QUEUED_MESSAGES",
    )
)


def breach(message: object, error: Json, *, accepted: bool, built: frozenset[str]) -> str:
    """Return what is wrong with an error as the answer to a message, or nothing; `accepted` is the schema's word."""
    code, data = error["code"], cast("Json", error.get("data") or {})
    said = str(data.get("code", ""))
    if DAEMON_CODES.get(said) != code:
        return f"{said or 'no code'} is not {code}"
    members = cast("Json", message) if isinstance(message, dict) else {}
    method = members.get("method")
    if code == METHOD_NOT_FOUND:
        return "" if not isinstance(method, str) or method not in built else "it is built"
    if not accepted:
        return "" if code in (INVALID_REQUEST, INVALID_PARAMS) else "the schema refuses it"
    if code == INVALID_PARAMS:
        return _no_rule(str(method), said, str(error["message"]))
    if code == SERVER_ERROR and said in STATES:
        return ""
    return "the schema accepts it"


def _no_rule(method: str, code: str, text: str) -> str:
    if code != "INVALID_ARGUMENT":
        return "" if code in CODE_RULES.get(method, ()) else "no table has this code for the method"
    rules = (*ARGUMENT_RULES[""], *ARGUMENT_RULES.get(method, ()))
    return "" if any(re.search(rule, text) for rule in rules) else "no table has this rule"
