"""A session's stored events as they come: read from the store, woken by the daemon.

What is written comes from the store alone, page behind page, so that nothing is missed or told twice, however the daemon's
notifications come; they only say that there is more.
"""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import sys
from typing import TYPE_CHECKING, Final

import click
import trio

from roost.actors.client.connection import open_connection
from roost.actors.client.context import INTERRUPTED
from roost.actors.client.errors import ClientError, Disconnected, NotRunning, RpcError
from roost.actors.client.events import clean
from roost.actors.client.export import find_logged, open_snapshot
from roost.actors.client.outfile import TERMINATED
from roost.actors.client.replies import Attached
from roost.actors.client.standard_files import output_bytes
from roost.actors.client.talk_commands import client_name
from roost.actors.store.snapshot import Broken, Gone, stored_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roost.actors.client.connection import Connection
    from roost.actors.client.context import Context
    from roost.actors.store.snapshot import LoggedSession, Snapshot
    from roost.config.paths import Home

DAEMON_GONE: Final = NotRunning.exit_status


class Tail:
    """What has been written of one session; `cursor` is the last event of it."""

    def __init__(self, snapshot: Snapshot, session: LoggedSession, cursor: int) -> None:
        self.snapshot = snapshot
        self.session = session
        self.cursor = cursor

    @property
    def closed(self) -> bool:
        """Whether nothing more can come."""
        row = self.snapshot.session(self.session.session_id)
        return row is None or (row.state == "closed" and row.last_sequence <= self.cursor)

    def write(self) -> None:
        """Write all that is there.

        Raises:
            ClientError: an event is damaged.
        """
        while True:
            try:
                rows = self.snapshot.page(self.session, self.cursor)
            except Gone as gone:
                if self._skip(gone.upto):
                    continue
                break
            except (Broken, sqlite3.Error) as error:
                sys.stdout.flush()
                raise ClientError(str(error)) from None
            if not rows:
                row = self.snapshot.session(self.session.session_id)
                if row is not None and self._skip(row.first_sequence - 1):
                    continue
                break
            output_bytes().write(b"".join(stored_line(*row) for row in rows))
            self.cursor = rows[-1][0]
        sys.stdout.flush()

    def _skip(self, upto: int) -> bool:
        """Go on behind what is removed, and say so; return whether anything of it was still to be written."""
        first = self.cursor + 1
        if upto < first:
            return False
        what = f"events {first} to {upto} are gone" if upto > first else f"event {first} is gone"
        sys.stdout.flush()
        text = f"session {self.session.session_id}: {what}, removed by retention"
        click.echo(f"roost: {clean(text)}", err=True)
        self.cursor = upto
        return True


class _Ending:
    """SIGTERM ends a write at once, as SIGINT does, also where that is ignored: by a job in the background."""

    def __init__(self) -> None:
        self.terminated = False
        self._cancel: Callable[[], None] | None = None

    def take(self, *_: object) -> None:
        """Handle the signal."""
        self.terminated = True
        if self._cancel is not None and trio.lowlevel.currently_ki_protected():
            self._cancel()
        else:
            raise KeyboardInterrupt

    async def watch(self, main: Callable[[], Awaitable[int]]) -> int:
        """Return what `main` returns, or the status of a SIGTERM that came where nothing may be raised."""
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            self._cancel = lambda: token.run_sync_soon(scope.cancel)
            return await main()
        return TERMINATED


def tail_session(
    context: Context, name: str, *, lines: int, after: int | None, follow: bool
) -> int:
    """Write events and return the exit status."""
    home = context.home
    ending = _Ending()
    before = signal.signal(signal.SIGTERM, ending.take)
    try:
        with open_snapshot(home) as snapshot:
            session = find_logged(snapshot, name)
            oldest = session.first_sequence - 1
            start = max(oldest, session.last_sequence - lines) if after is None else after
            tail = Tail(snapshot, session, start)
            if not follow:
                tail.write()
                return 0
            return context.run(lambda: ending.watch(lambda: _follow(home, tail)))
    except KeyboardInterrupt:
        return TERMINATED if ending.terminated else INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


async def _follow(home: Home, tail: Tail) -> int:
    """Write what is there and what comes. The cursor of the attachment is the last event written."""
    tail.write()
    if tail.closed:
        return 0
    try:
        if await _follow_live(home, tail):
            return 0
    except Disconnected:
        pass
    except RpcError as error:
        # It may have been closed before the attachment.
        tail.write()
        if tail.closed:
            return 0
        if error.code != "SHUTTING_DOWN":
            raise
    tail.write()
    click.echo("roost: the daemon has ended the connection", err=True)
    return DAEMON_GONE


async def _follow_live(home: Home, tail: Tail) -> bool:
    """Write what comes; return whether the session has ended, and not only the connection."""
    session_id = tail.session.session_id
    cursors = {"roost.cursors": {session_id: tail.cursor}}
    async with open_connection(home, notifications=True, capabilities=cursors) as connection:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_attach, connection, session_id)
            async for _ in connection.notifications:
                with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
                    while True:
                        connection.notifications.receive_nowait()
                tail.write()
                if tail.closed:
                    nursery.cancel_scope.cancel()
                    return True
            nursery.cancel_scope.cancel()
    return False


async def _attach(connection: Connection, session_id: str) -> None:
    params = {"sessionId": session_id, "clientId": client_name()}
    await connection.call("session.attach", params, Attached)
