"""The store's file in use: opened whatever state it is in, recovered, written with a reserve, watched for damage, closed."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from roost.actors.store.audit import Audit
from roost.actors.store.checks import FullCheck, log_notes
from roost.actors.store.database import (
    cannot_open,
    is_corrupt,
    is_disk_error,
    is_full,
    lock_database,
    open_database,
    read_meta,
    write_meta,
)
from roost.actors.store.desk import Desk, Result
from roost.actors.store.mend import mend_counters
from roost.actors.store.opening import make_sound
from roost.actors.store.paging import Damaged
from roost.actors.store.replacing import suspect
from roost.actors.store.rescue import rescued_lately
from roost.actors.store.room import Room
from roost.actors.store.stamp import stamp
from roost.supervisor.errors import StartError, StartRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from roost.actors.store.desk import Item
    from roost.config.model import Settings
    from roost.schemas.base import AgentId

IMPORT_PAUSE: Final = 0.005
FULL_PAUSE: Final = 0.5
RECOVERING: Final = "recovering"

_log = logging.getLogger(__name__)


class StoreDamaged(Exception):
    """The file cannot be written on: the process ends, and the next one builds it anew."""


class StoreFile:
    """The database at `path`; `desk` is there from `open` to `close`."""

    desk: Desk | None = None
    check: FullCheck

    def __init__(
        self, path: Path, settings: Settings, *, is_running: Callable[[str], bool]
    ) -> None:
        self.path = path
        self._settings = settings
        self._is_running = is_running
        store = settings.store
        self._room = Room(
            path.parent, store.min_free_mib, time.monotonic, reserve_mib=store.reserve_mib
        )
        log = settings.log
        self._audit = Audit(path.parent, rotate_bytes=log.rotate_bytes, keep=log.keep)
        self._connection: sqlite3.Connection
        self._lock = -1
        self._to_start: list[AgentId] = []
        self._tidy = trio.Event()

    async def open(self, *, cold: bool) -> Desk:
        """Return the desk over the database, which is built anew if damage shows as it is opened.

        On a full disk a store that comes back beside a running daemon waits for space; a cold start fails.

        Raises:
            StartError: another store holds the file, or the disk does not let it be opened now.
            StartRefused: it is no store of this daemon, or a newer one's.
        """
        self._lock = await lock_database(self.path)
        waiting = False
        try:
            while True:
                try:
                    return await self._open(cold=cold)
                except StartError as error:
                    if cold or not is_full(self.path, error):
                        raise
                    if not waiting:
                        _log.error("the store waits for space on the disk: %s", error)
                    waiting = True
                await trio.sleep(FULL_PAUSE)
        except BaseException:
            os.close(self._lock)
            raise

    async def _open(self, *, cold: bool) -> Desk:
        pages = self._settings.store.wal_autocheckpoint
        look = partial(make_sound, self.path, wal_autocheckpoint=pages, cold=cold)
        while True:
            marked = suspect(self.path).exists()
            try:
                await trio.to_thread.run_sync(look)
                connection = open_database(self.path, wal_autocheckpoint=pages)
            except (OSError, sqlite3.Error) as error:
                raise StartError(f"{self.path} cannot be opened: {error}") from error
            except StartRefused as error:
                if marked or not is_corrupt(error.__cause__):
                    raise
                suspect(self.path).touch()
                continue
            try:
                self.desk = await self._desk_over(connection, cold=cold)
            except (OSError, sqlite3.Error) as error:
                connection.close()
                if marked or not is_corrupt(error):
                    raise StartError(cannot_open(self.path, error)) from error
                _log.error("the store is damaged: %s", error)
                suspect(self.path).touch()
            except BaseException:
                connection.close()
                raise
            else:
                self._tidy.set()
                return self.desk

    def configure(self, settings: Settings) -> None:
        """Take over new settings; a desk that is still being opened does so when it is there."""
        self._settings = settings
        self._room.set_mark(settings.store.min_free_mib)
        self._audit.set_bounds(rotate_bytes=settings.log.rotate_bytes, keep=settings.log.keep)
        if self.desk is not None:
            self.desk.configure(settings)

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        self.desk = None
        self._audit.close()
        self.check.stop()
        try:
            stamp(self._connection, self.path)
            write_meta(self._connection, "clean", "1")
            self._connection.execute("pragma wal_checkpoint(truncate)")
        except sqlite3.Error as error:
            _log.error("the store could not be closed cleanly: %s", error)
        self._connection.close()
        os.close(self._lock)

    async def serve(self) -> None:
        """Remove, in small pieces, what is left of imports that were broken off."""
        while True:
            await self._tidy.wait()
            self._tidy = trio.Event()
            try:
                while self.desk is not None and self.desk.remove_import_slice():  # noqa: ASYNC110 # a pause, not a wait
                    await trio.sleep(IMPORT_PAUSE)
            except sqlite3.Error as error:
                _log.error("what is left of an import cannot be removed now: %s", error)

    def tidy(self) -> None:
        """Have `serve` look: an import was broken off."""
        self._tidy.set()

    def abandon_imports(self) -> None:
        """Break off the imports under way: who sent them is gone."""
        if self.desk is not None:
            self.desk.imports.abandon()
            self._tidy.set()

    def take_agents_to_start(self) -> list[AgentId]:
        """Return, once, the agents that had something to do when the daemon was started."""
        agents, self._to_start = self._to_start, []
        return agents

    def write(self, desk: Desk, items: Sequence[Item]) -> Result:
        """Write a group; if the disk is full, once more with the space that is held back for this."""
        result = desk.write(items)
        error = result.error
        full = error is not None and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
        if not full or not self._room.release():
            return result
        _log.error("the disk is full: the space held back for the end of turns is given up")
        again = desk.write(items[len(result.answers) :])
        result.effects.extend(again.effects)
        return Result([*result.answers, *again.answers], result.effects, again.error)

    @contextmanager
    def suspected(self) -> Generator[None]:
        """Have the next start build the file anew if damage that nobody has caught ends this process."""
        try:
            yield
        except sqlite3.Error as error:
            if is_corrupt(error):
                suspect(self.path).touch()
            raise

    async def _desk_over(self, connection: sqlite3.Connection, *, cold: bool) -> Desk:
        stamp(connection, self.path)
        self._room.hold()
        desk = Desk(
            connection,
            self._settings,
            clock=time.time,
            check_room=self._room.check,
            is_running=self._is_running,
        )
        desk.heed(self._met_damage)
        desk.journal.on_decided = self._audit.write
        clean = read_meta(connection, "clean") == "1"
        write_meta(connection, "clean", "0")
        self._connection = connection
        self.check = FullCheck(connection, self._met_damage, after_crash=not clean, clock=time.time)
        if not clean:
            desk.transact(partial(_mend, desk, connection))
        # A cold start that was cut short is gone on with: no agent can have been started since.
        if cold or read_meta(connection, RECOVERING):
            _log.info("cold start after a %s", "clean stop" if clean else "crash")
            await self._recover(desk, connection)
        return desk

    def _met_damage(self, error: BaseException, writing: bool) -> None:
        """Have the next start build the file anew.

        What cannot wait for that is a reason to start at once, but not twice in a row: a write, or a read of more than one
        session's events.
        """
        if isinstance(error, Damaged):
            self.check.tell(error.session_id, error.sequence)
            if not error.by_sqlite:
                return
        _log.error("the store's file is damaged: %s", error)
        suspect(self.path).touch()
        urgent = writing or not isinstance(error, Damaged)
        if urgent and not rescued_lately(self.path, time.time()):
            raise StoreDamaged("a damaged page is in the way; the file is built anew") from error

    async def _recover(self, desk: Desk, connection: sqlite3.Connection) -> None:
        """Repair what no process can be working on any more; one session that fails does not keep back the rest."""
        repairs = desk.repairs
        write_meta(connection, RECOVERING, "1")
        desk.transact(repairs.wipe_ephemeral)
        desk.transact(repairs.mark_recovered)
        for each in repairs.sessions_to_repair():
            _try(desk, partial(repairs.repair_cold, each), f"session {each} cannot be repaired")
            await trio.lowlevel.checkpoint()
        for each in repairs.agents_to_finish():
            _try(desk, partial(repairs.finish, each), f"agent {each} cannot be finished")
            _try(desk, partial(repairs.forget, each), f"agent {each} cannot be removed")
        for each in repairs.sessions_to_close():
            _try(desk, partial(repairs.close, each), f"session {each} cannot be closed")
        self._to_start = repairs.agents_to_start()
        write_meta(connection, RECOVERING, "")


def _try(desk: Desk, action: Callable[[], None], text: str) -> None:
    try:
        desk.transact(action)
    except Exception as error:  # one session must not keep the daemon from starting
        if isinstance(error, sqlite3.Error) and (is_corrupt(error) or is_disk_error(error)):
            raise
        _log.exception("%s", text)


def _mend(desk: Desk, connection: sqlite3.Connection) -> None:
    log_notes(mend_counters(connection, {}))
    desk.recount()
