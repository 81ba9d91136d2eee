"""initialize, request.cancel, health.ping and health.ready: answered by the front itself, whatever else is stuck."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, cast

import msgspec

from roost.actors.errors import InvalidArgument, WrongState
from roost.actors.front.clock import now_ms, stamp
from roost.schemas.base import iso_time
from roost.schemas.daemon import PROTOCOL_VERSION, Initialize, Nothing, RequestCancel
from roost.schemas.results import CancelResult, Initialized

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.actors.front.method import Method
    from roost.actors.front.router import Caller

STATUS_PUSH = ("daemon.statusPush.v1", "portal.mobile.status.push.v1")
CURSORS, EPOCH = "roost.cursors", "roost.epoch"
MAX_CURSORS = 4096

_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?:\.[0-9]{1,9})?", re.ASCII)
_encode = msgspec.json.Encoder().encode


def initialize(caller: Caller, params: Initialize, methods: Mapping[str, Method]) -> bytes:
    """Open the connection; its capabilities may hold cursors, and ask for every agent's status."""
    version = _version_of(params)
    if caller.connection.initialized:
        raise WrongState("CONNECTION_ALREADY_INITIALIZED", "Already initialized")
    if not is_supported(version):
        data = {"clientVersion": version[:64], "serverVersion": PROTOCOL_VERSION}
        raise WrongState("PROTOCOL_VERSION_UNSUPPORTED", "Unsupported protocol version", data)
    caller.connection.initialized = True
    _take_capabilities(caller, params.capabilities)
    limits = caller.services.settings.limits
    boot = caller.services.boot
    result = Initialized(
        type="initialized",
        protocol_version=PROTOCOL_VERSION,
        protocol={"version": PROTOCOL_VERSION},
        capabilities={
            "daemon.methods": {
                name: method.implemented for name, method in methods.items() if method.advertised
            },
            "daemon.limits": {
                "maxMessageBytes": limits.line_bytes,
                "maxQueuedRequests": limits.queued_requests,
                "maxInFlightRequests": limits.in_flight_requests,
                "maxQueuedMessages": limits.queued_messages,
            },
            "roost.cursors": True,
        },
        daemon_identity={
            "pid": boot.root_pid,
            "processStart": iso_time(boot.started_at),
            "runtimeVersion": boot.version,
        },
    )
    return _encode(result)


def is_supported(version: str) -> bool:
    """Return whether a client of this protocol version is served: same major, minor not above ours."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return False
    major, minor = (int(part) for part in PROTOCOL_VERSION.split(".")[:2])
    return int(match[1]) == major and int(match[2]) <= minor


def cancel_request(caller: Caller, params: RequestCancel) -> bytes:
    """Cancel an open request of the same connection; its own answer comes first."""
    reason = params.reason if isinstance(params.reason, str) else "request.cancel"
    cancelled = caller.cancel(params.request_id, reason)
    result = CancelResult(request_id=params.request_id, cancelled=cancelled, reason=params.reason)
    return _encode(result)


class _Pong:
    """The answer to `health.ping`, made once a millisecond."""

    at = -1
    body = b""


def ping(_caller: Caller, _params: Nothing) -> bytes:
    """Answer."""
    now = time.time_ns() // 1_000_000
    if now != _Pong.at:
        _Pong.at = now
        _Pong.body = b'{"ok":true,"now":"%b"}' % stamp(now).encode()
    return _Pong.body


def ready(caller: Caller, _params: Nothing) -> bytes:
    """Say whether requests can be served."""
    services = caller.services
    return _encode(
        {"ready": services.ready, "uptimeMs": services.uptime_ms, "now": stamp(now_ms())}
    )


def _version_of(params: Initialize) -> str:
    in_object = params.protocol.version if params.protocol else ""
    if not in_object and not params.protocol_version:
        raise InvalidArgument("initialize requires protocol.version or protocolVersion")
    if in_object and params.protocol_version and in_object != params.protocol_version:
        raise InvalidArgument("initialize protocolVersion must match protocol.version")
    return in_object or params.protocol_version


def _take_capabilities(caller: Caller, capabilities: Mapping[str, object]) -> None:
    cursors = capabilities.get(CURSORS)
    if isinstance(cursors, dict):
        given = cast("dict[str, object]", cursors)
        for session_id, after in list(given.items())[:MAX_CURSORS]:
            if type(after) is int and after >= 0:
                caller.visitor.cursors[session_id] = after
    epoch = capabilities.get(EPOCH)
    if isinstance(epoch, str):
        caller.visitor.epoch = epoch
    if any(capabilities.get(name) is True for name in STATUS_PUSH):
        caller.services.fanout.observe(caller.peer)
