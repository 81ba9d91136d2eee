"""What most commands do first: see that a daemon runs, and start one if none does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from roost.actors.client.connection import open_connection
from roost.actors.client.errors import ClientError, NotRunning, RpcError
from roost.actors.client.replies import Readiness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.config.paths import Home

PROBE_TIMEOUT: Final = 2.0
REFUSED: Final = "CONNECTION_AUTHENTICATION_FAILED"
NOT_LET_IN: Final = (
    "the daemon of {} lets only its own user in, and no process that runs under it: not agents,"
    " not their commands, not those of `roost exec`"
)


def autostart_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether commands may start a daemon: unless ROOST_AUTOSTART says no."""
    value = environ.get("ROOST_AUTOSTART", environ.get("ROOST_DAEMON_AUTOSTART", "1"))
    return value.strip().lower() not in {"0", "false", "off", "no"}


async def ask_readiness(home: Home) -> bool | None:
    """Return whether the daemon of a home is ready, or None if it does not answer or there is none.

    Raises:
        ClientError: it lets nobody in from here.
    """
    try:
        async with open_connection(home, within=PROBE_TIMEOUT) as connection:
            answer = await connection.call("health.ready", {}, Readiness, within=PROBE_TIMEOUT)
    except ClientError as error:
        if isinstance(error, RpcError) and error.code == REFUSED:
            raise ClientError(NOT_LET_IN.format(home.path)) from None
        return None
    return answer.ready


async def ensure_daemon(home: Home) -> bool:
    """Make sure that a daemon runs; return whether one had to be started.

    Raises:
        NotRunning: none runs, and commands may not start one.
        ConfigError, ClientError: as `start_daemon`.
    """
    if await ask_readiness(home):
        return False
    if not autostart_enabled(os.environ):
        raise NotRunning(f"no daemon runs in {home.path}; start one with `roost up`")
    # What a start needs takes longer to import than to ask a daemon that runs.
    from roost.actors.client.launch import start_daemon

    await start_daemon(home, {})
    return True
