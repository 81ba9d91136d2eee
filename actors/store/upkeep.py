"""Carries out retention beside the store's work, and gives freed space back to the disk; it sleeps while nothing is due."""

from __future__ import annotations

import logging
import sqlite3
import time
from typing import TYPE_CHECKING, Final

import trio

from roost.actors.store.database import is_corrupt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roost.actors.store.desk import Desk
    from roost.actors.store.effects import Effects
    from roost.config.model import Retention

LOOK_SECONDS: Final = 3_600.0
FAULT_SECONDS: Final = 5.0
# The share of the loop that upkeep takes is 1 / (1 + PAUSE).
PAUSE: Final = 4.0
MIN_PAUSE: Final = 0.001
# Free pages that are kept for what comes next.
SPARE_PAGES: Final = 256
MIN_PAGES: Final = 8
MAX_PAGES: Final = 256
STEP_SECONDS: Final = 0.002
# A write-ahead log that is longer is cut when nothing has been written for a moment.
LOG_BYTES: Final = 1024 * 1024
QUIET_SECONDS: Final = 0.5
QUIET_TRIES: Final = 120

_log = logging.getLogger(__name__)


class Upkeep:
    """One task of the store's process."""

    def __init__(self, desk: Desk, path: Path, publish: Callable[[Effects], None]) -> None:
        self._desk = desk
        self._db = desk.journal.db
        self._log_path = path.with_name(f"{path.name}-wal")
        self._publish = publish
        self._wanted = trio.Event()
        self._scope = trio.CancelScope()
        self._pages = MIN_PAGES * 4
        self.rounds = 0

    def wake(self) -> None:
        """There is something to do."""
        self._wanted.set()

    def configure(self, limits: Retention) -> None:
        """Take new bounds; what is over them is removed from now on."""
        self._desk.retention.configure(limits)
        self.wake()

    def stop(self) -> None:
        """Do nothing more: the database is about to be closed."""
        self._scope.cancel()

    async def run(self) -> None:
        """Work whenever there is something to do, until stopped or cancelled. An error of the disk is waited out."""
        with self._scope:
            # Much may have been repaired since the bounds were first looked at.
            self._desk.retention.configure(self._desk.retention.limits)
            while not self._scope.cancel_called:
                try:
                    await self._work()
                    self.rounds += 1
                except Exception as error:  # noqa: BLE001 # what cannot be removed must not end the store
                    waits = isinstance(error, sqlite3.Error) and not is_corrupt(error)
                    _log.warning("the log cannot be cut now", exc_info=None if waits else error)
                    if waits:
                        await trio.sleep(FAULT_SECONDS)
                        continue
                    self._desk.retention.drop()
                await self._wait()

    async def _wait(self) -> None:
        seconds = LOOK_SECONDS if self._desk.retention.has_ages else float("inf")
        with trio.move_on_after(seconds) as timer:
            await self._wanted.wait()
        self._wanted = trio.Event()
        if timer.cancelled_caught:
            self._desk.retention.look()

    async def _work(self) -> None:
        while True:
            started = time.perf_counter()
            effects = self._desk.retention.step()
            if effects is None:
                break
            self._publish(effects)
            await self._pause(started)
        if await self._shrink():
            await self._cut_log()

    async def _pause(self, started: float) -> None:
        await trio.sleep(max((time.perf_counter() - started) * PAUSE, MIN_PAUSE))

    async def _shrink(self) -> bool:
        """Give free pages back, some at a time; return whether there were any."""
        shrunk = False
        while (spare := self._number("freelist_count") - SPARE_PAGES) > 0:
            started = time.perf_counter()
            pages = min(spare, self._pages)
            self._db.execute("pragma synchronous = normal")
            try:
                # A cursor would take one page and stop: this pragma has rows without columns.
                self._db.executescript(f"pragma incremental_vacuum({pages})")
            finally:
                self._db.execute("pragma synchronous = full")
            took = time.perf_counter() - started
            if took > STEP_SECONDS:
                self._pages = max(MIN_PAGES, self._pages // 2)
            elif took < STEP_SECONDS / 3:
                self._pages = min(MAX_PAGES, self._pages * 2)
            shrunk = True
            await self._pause(started)
        return shrunk

    async def _cut_log(self) -> None:
        """Fold the write-ahead log into the file, so that it gets shorter, in a moment without writes."""
        for _ in range(QUIET_TRIES):
            before = self._db.total_changes
            await trio.sleep(QUIET_SECONDS)
            if before == self._db.total_changes and self._checkpoint():
                return

    def _checkpoint(self) -> bool:
        """Return whether the write-ahead log is short now; nobody waits for a reader in its way."""
        try:
            if self._log_path.stat().st_size <= LOG_BYTES and not self._number("freelist_count"):
                return True
        except FileNotFoundError:
            return True
        timeout = self._number("busy_timeout")
        self._db.execute("pragma busy_timeout = 0")
        try:
            busy = self._db.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
        finally:
            self._db.execute(f"pragma busy_timeout = {timeout}")
        return not busy

    def _number(self, pragma: str) -> int:
        return int(self._db.execute(f"pragma {pragma}").fetchone()[0])
