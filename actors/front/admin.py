"""daemon.reload and auth.*: carried out by root and on the home's files, never in the front's loop."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from roost.actors.errors import DaemonError, WrongState
from roost.actors.front.clock import now_ms, stamp
from roost.config.errors import HomeError
from roost.config.login import log_in, log_out, read_login
from roost.config.paths import Home
from roost.schemas import control
from roost.schemas.admin import LoginResult, ReloadResult
from roost.schemas.model import DropKeys

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.front.auth import PeerIdentity
    from roost.actors.front.promise import Promise
    from roost.actors.front.router import Call
    from roost.config.login import Login
    from roost.schemas.daemon import Nothing

SOCKETS = frozenset({"unix", "websocket"})
FILE_SECONDS = 10.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def reload_daemon(call: Call, _params: Nothing) -> ReloadResult:
    """Have root read the configuration again, and every process take it over.

    Raises:
        DaemonError: the configuration is wrong (`CONFIG_INVALID`), and nothing has changed; or it cannot be read now,
            or not every process took it over.
        WrongState: who asks has not been authenticated, or the daemon stops.
    """
    if call.caller.peer.transport not in SOCKETS:
        raise WrongState(
            "DAEMON_RELOAD_AUTHENTICATION_REQUIRED",
            "daemon reload requires authenticated daemon transport",
        )
    told = await call.services.root.ask(control.Reload(), control.Reloaded)
    return ReloadResult(
        reloaded=True,
        config_reloaded_at=stamp(told.at),
        mcp_server={"status": "disabled"},
        changed=told.changed,
        need_restart=told.need_restart,
        late=told.late,
    )


async def login(call: Call, _params: Nothing) -> LoginResult:
    """Log in here; a login that there is is kept."""
    now = stamp(now_ms())
    found = await _on_disk(call, lambda home: log_in(home, now))
    _log.info("logged in")
    return _result(found)


async def whoami(call: Call, _params: Nothing) -> LoginResult:
    """Say who is logged in, and on a socket what is known of its other end."""
    found = await _on_disk(call, read_login)
    result = _result(found)
    caller = call.caller
    if caller.peer.transport not in SOCKETS:
        return result
    identity = {**result.identity, "daemon": daemon_identity(caller.identity)}
    return msgspec.structs.replace(result, identity=identity)


async def logout(call: Call, _params: Nothing) -> LoginResult:
    """Log out here; running agents go on."""
    await _on_disk(call, log_out)
    call.services.providers.cast(DropKeys())
    _log.info("logged out")
    return LoginResult(authenticated=False)


def daemon_identity(peer: PeerIdentity | None) -> dict[str, object]:
    """Return how the other end of a socket was let in (P 3.3)."""
    if peer is None:
        return {
            "transport": "daemon",
            "verifiedBy": "cookie",
            "cookie": "verified",
            "peerUid": None,
        }
    return {"transport": "daemon", "verifiedBy": "peerUid", "peerUid": peer.uid}


def _result(found: Login | None) -> LoginResult:
    """Return what may be told of a login; no member that it does not name, so no token."""
    if found is None:
        return LoginResult(authenticated=False)
    identity = msgspec.to_builtins(found.identity)
    return LoginResult(authenticated=True, provider=found.provider, identity=identity)


def _on_disk(call: Call, action: Callable[[Home], T]) -> Promise[T]:
    home = Home(Path(call.services.boot.home), explicit=True)
    return call.services.in_thread(partial(_checked, action, home), FILE_SECONDS)


def _checked(action: Callable[[Home], T], home: Home) -> T:
    try:
        return action(home)
    except HomeError as error:
        raise DaemonError("AUTH_STORAGE_FAILED", str(error)) from None
