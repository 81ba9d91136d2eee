"""The store's process: takes what came in one sweep as one durable group, and tells everyone only after its commit."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from roost.actors.errors import Internal
from roost.actors.store.changes import Refusal
from roost.actors.store.checks import FullCheck, log_notes
from roost.actors.store.database import (
    cannot_open,
    is_corrupt,
    is_disk_error,
    lock_database,
    open_database,
    read_meta,
    write_meta,
)
from roost.actors.store.desk import Desk, Item, Result
from roost.actors.store.intake import Intake, Waiting
from roost.actors.store.mend import mend_counters
from roost.actors.store.opening import make_sound
from roost.actors.store.paging import Damaged
from roost.actors.store.publish import Publisher
from roost.actors.store.rescue import rescued_lately, suspect
from roost.actors.store.room import Room, disk_full
from roost.actors.store.stamp import stamp
from roost.actors.store.starts import Starts
from roost.actors.store.upkeep import Upkeep
from roost.config.model import decode_settings
from roost.schemas import agent, approval, archive, session, turn
from roost.schemas.base import Done, Message, Refused
from roost.schemas.boot import decode_boot
from roost.schemas.control import KillChild
from roost.schemas.unions import store_from_agent, store_from_front
from roost.supervisor.actor import Process, ProcessActor
from roost.supervisor.errors import LinkFull, StartError, StartRefused
from roost.supervisor.kernel import hide_memory
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from roost.schemas.base import AgentId
    from roost.schemas.control import ChildReport, StartChild

AGENT: Final = "agent:"
FRONT: Final = "front"
UNWIND_MARGIN: Final = 1.0
IMPORT_PAUSE: Final = 0.005
RECOVERING: Final = "recovering"
WATCHES: Final = (session.Watch, session.Unwatch, session.WatchAll)
READS: Final = (
    *WATCHES,
    session.ReadPage,
    session.GetSession,
    session.ListSessions,
    session.Count,
    turn.PullInbox,
    turn.RecallCall,
    agent.GetAgent,
    agent.ListAgents,
    approval.ListPermissions,
)

_log = logging.getLogger(__name__)


class StoreDamaged(Exception):
    """The file cannot be written on: the process ends, and the next one builds it anew."""


class StoreActor(ProcessActor):
    """Links to the front and the agents over one desk."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._boot = decode_boot(process.start.payload)
        self._settings = decode_settings(self._boot.settings)
        store = self._settings.store
        self._intake = Intake(store.group_drafts, store.delta_window_ms / 1000)
        self._publisher = Publisher()
        self._starts = Starts(self._ask_root, self._settings.agents.start_at_once)
        self._peers: dict[Link, str] = {}
        self._agents: dict[str, Link] = {}
        self._generations: dict[str, int] = {}
        self._unwinding: set[str] = set()
        self._asleep: set[str] = set()
        self._reads: list[Waiting] = []
        self._timer_at = float("inf")
        self._timer_set = trio.Event()
        self._desk: Desk | None = None
        self._connection: sqlite3.Connection | None = None
        self._lock = -1
        self._to_start: list[AgentId] = []
        self._check: FullCheck
        self._tidy = trio.Event()
        self._upkeep: Upkeep | None = None
        self._room: Room

    async def open(self) -> None:
        """Open the database, see to what a crash has left if this is a cold start, and serve."""
        hide_memory()
        path = Path(self._boot.home) / "store.db"
        self._lock = await lock_database(path)
        desk = await self._open_desk(path)
        self._desk = desk
        self.process.nursery.start_soon(self._serve_timer)
        self._tidy.set()
        self.process.nursery.start_soon(self._remove_imports)
        self._upkeep = Upkeep(desk, path, lambda effects: self._publisher.publish(effects.items))
        self.process.nursery.start_soon(self._upkeep.run)
        self.process.nursery.start_soon(self._check.run)
        # What is here now stays; messages are many and die young.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self.process.poller.after_sweep(self._on_sweep)
        self.process.poller.run_hooks_soon()

    async def _open_desk(self, path: Path) -> Desk:
        """Return the desk over the database, which is built anew if damage shows as it is opened."""
        pages = self._settings.store.wal_autocheckpoint
        while True:
            look = partial(make_sound, path, wal_autocheckpoint=pages, cold=self._boot.cold)
            marked = suspect(path).exists()
            try:
                await trio.to_thread.run_sync(look)
                connection = open_database(path, wal_autocheckpoint=pages)
            except (OSError, sqlite3.Error) as error:
                raise StartError(f"{path} cannot be opened: {error}") from error
            except StartRefused as error:
                if marked or not is_corrupt(error.__cause__):
                    raise
                suspect(path).touch()
                continue
            try:
                return await self._desk_over(connection, path)
            except sqlite3.Error as error:
                connection.close()
                if marked or not is_corrupt(error):
                    raise StartError(cannot_open(path, error)) from error
                _log.error("the store is damaged: %s", error)
                suspect(path).touch()
            except BaseException:
                connection.close()
                raise

    async def _desk_over(self, connection: sqlite3.Connection, path: Path) -> Desk:
        stamp(connection, path)
        store = self._settings.store
        room = self._room = Room(
            path.parent, store.min_free_mib, time.monotonic, reserve_mib=store.reserve_mib
        )
        room.hold()
        desk = Desk(
            connection,
            self._settings,
            clock=time.time,
            check_room=room.check,
            is_running=self._is_running,
        )
        desk.heed(self._met_damage)
        clean = read_meta(connection, "clean") == "1"
        write_meta(connection, "clean", "0")
        self._connection = connection
        if not clean:
            desk.transact(lambda: log_notes(mend_counters(connection, {})))
        # A cold start that was cut short is gone on with: no agent can have been started since.
        if self._boot.cold or read_meta(connection, RECOVERING):
            _log.info("cold start after a %s", "clean stop" if clean else "crash")
            await self._recover(desk, connection)
        self._check = FullCheck(
            connection, self._met_damage, after_crash=not clean, clock=time.time
        )
        return desk

    def _met_damage(self, error: BaseException, writing: bool) -> None:
        """Have the next start build the file anew; a write that meets damage is a reason to start at once, but not twice in a row."""
        if isinstance(error, Damaged):
            self._check.tell(error.session_id, error.sequence)
            if not error.by_sqlite:
                return
        _log.error("the store's file is damaged: %s", error)
        path = Path(self._boot.home) / "store.db"
        suspect(path).touch()
        if writing and not rescued_lately(path, time.time()):
            raise StoreDamaged("a write met a damaged page; the file is built anew") from error

    def link_up(self, name: str, generation: int, handle: int) -> None:
        """Serve a new link of the front or of an agent; it replaces an older one."""
        agent_id = name.removeprefix(AGENT) if name.startswith(AGENT) else ""
        if not agent_id and name != FRONT:
            os.close(handle)
            return
        link = Link(
            socket.socket(fileno=handle),
            self.process.poller,
            name=name,
            decoder=store_from_agent if agent_id else store_from_front,
            handler=self,
            queue_bytes=self._settings.limits.link_bytes,
        )
        for old in [other for other, peer in self._peers.items() if peer == agent_id]:
            old.close()
        self._peers[link] = agent_id
        if agent_id:
            self._agents[agent_id] = link
            self._generations[agent_id] = generation
            self._asleep.discard(agent_id)
            self._starts.linked(agent_id)
        else:
            self._publisher.add(link)
            if self._desk is not None:
                self._desk.imports.abandon()
                self._tidy.set()
            # The front is started last: what an agent needs is there.
            self._starts.queue(self._to_start)
            self._to_start = []

    def child_report(self, report: ChildReport) -> None:
        """Hear what happened to an agent's process."""
        self._starts.report(report)
        if report.event == "crashed" and self._desk is not None:
            self._desk.note_crash(report.child_id, report.reason)
        if report.event in {"gave_up", "ended"}:
            self._intake.add(Waiting(None, 0, Item("", report)))
            self.process.poller.run_hooks_soon()

    async def wind_down(self, reason: str, grace: float) -> None:
        """Write what has come, fold the write-ahead log into the file, and close it."""
        if self._desk is None or self._connection is None:
            return
        self._intake.hurry()
        self._on_sweep()
        for link in list(self._peers):
            link.flush()
            link.close()
        self._desk = None
        if self._upkeep is not None:
            self._upkeep.stop()
        self._check.stop()
        try:
            stamp(self._connection, Path(self._boot.home) / "store.db")
            write_meta(self._connection, "clean", "1")
            self._connection.execute("pragma wal_checkpoint(truncate)")
        except sqlite3.Error as error:
            _log.error("the store could not be closed cleanly: %s", error)
        self._connection.close()
        os.close(self._lock)

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Keep what came until the sweep is over."""
        agent_id = self._peers[link]
        waiting = Waiting(link, ref, Item(agent_id, message))
        if isinstance(message, turn.Draft):
            self._keep(link, waiting)
        elif isinstance(message, WATCHES) and self._desk is not None:
            # Takes effect between what this link asked for before it and after it.
            if self._intake.has_request_of(link):
                self._write_due(self._desk)
            self._answer_read(self._desk, waiting)
        elif isinstance(message, READS):
            self._reads.append(waiting)
        elif isinstance(message, agent.Hello) and message.agent_id != agent_id:
            _log.error("%s says that it is %s", link.name, message.agent_id)
            link.close()
        else:
            self._keep(link, waiting)

    def _keep(self, link: Link, waiting: Waiting) -> None:
        if not self._intake.add(waiting):
            # It sends all of it again, in order, on its next link.
            _log.error("%s sends more than can be kept: cut off", link.name)
            link.close()

    def on_closed(self, link: Link) -> None:
        """Forget a link; what came on it is still written."""
        agent_id = self._peers.pop(link, "")
        if agent_id and self._agents.get(agent_id) is link:
            del self._agents[agent_id]
            del self._generations[agent_id]
        self._publisher.remove(link)
        self._intake.closed(link)

    def _on_sweep(self) -> None:
        try:
            self._sweep()
        except sqlite3.Error as error:
            if is_corrupt(error):
                suspect(Path(self._boot.home) / "store.db").touch()
            raise

    def _sweep(self) -> None:
        if self._desk is None:
            return
        self._write_due(self._desk)
        if self._reads:
            reads, self._reads = self._reads, []
            for waiting in reads:
                self._answer_read(self._desk, waiting)

    def _write_due(self, desk: Desk) -> None:
        while (due := self._intake.due(now := trio.current_time())) <= now:
            self._commit(desk, self._intake.take(now))
        self._set_timer(due)

    def _write(self, desk: Desk, items: list[Item]) -> Result:
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

    def _commit(self, desk: Desk, group: list[Waiting]) -> None:
        result = self._write(desk, [waiting.item for waiting in group])
        now = trio.current_time()
        if result.error is not None:
            self._refuse(result.error, self._intake.stall(group[len(result.answers) :], now))
        elif self._intake.written(now):
            _log.warning("the disk takes writes again")
        if self._upkeep is not None and desk.retention.after_commit():
            self._upkeep.wake()
        self._publisher.publish(result.effects.items)
        self._answer(desk, group, result)
        for agent_id, bell in result.effects.bells:
            link = self._agents.get(agent_id)
            if link is not None and agent_id not in self._asleep:
                self._say(link, 0, bell)
                self._watch_cancels(agent_id, link, bell)
        for agent_id, fresh in result.effects.starts.items():
            if not self._is_running(agent_id):
                self._starts.start(agent_id, fresh=fresh)

    def _watch_cancels(self, agent_id: str, link: Link, bell: turn.Bell) -> None:
        for item in bell.items:
            if isinstance(item, turn.Cancelled) and item.turn_id not in self._unwinding:
                self._unwinding.add(item.turn_id)
                self.process.nursery.start_soon(
                    self._kill_unless_unwound, agent_id, link, bell.session_id, item.turn_id
                )

    async def _kill_unless_unwound(
        self, agent_id: str, link: Link, session_id: str, turn_id: str
    ) -> None:
        """Have a process killed that does not end a cancelled turn; one whose loop is blocked cannot ask for it itself."""
        await trio.sleep(self._settings.timeouts.turn_unwind + UNWIND_MARGIN)
        self._unwinding.discard(turn_id)
        session = self._desk.journal.session(session_id) if self._desk is not None else None
        if session is None or session.turn_id != turn_id or self._agents.get(agent_id) is not link:
            return
        self.process.root.cast(
            KillChild(
                child_id=agent_id,
                generation=self._generations[agent_id],
                reason="a cancelled turn did not unwind",
            )
        )

    def _answer(self, desk: Desk, group: list[Waiting], result: Result) -> None:
        last: dict[tuple[Link, str], tuple[turn.Draft, int | Refusal]] = {}
        for waiting, answer in zip(group, result.answers, strict=False):
            link, message = waiting.link, waiting.item.message
            if link is None:
                continue
            if isinstance(message, turn.Draft):
                assert not isinstance(answer, Message)
                if isinstance(answer, Refusal):
                    self._say(link, 0, _refusal(message, answer))
                last[link, message.session_id] = message, answer
                continue
            assert isinstance(answer, Message)
            if isinstance(message, archive.AbortImport):
                self._tidy.set()
            if isinstance(message, agent.Sleep) and isinstance(answer, Done):
                self._asleep.add(waiting.item.agent_id)
            self._say(link, waiting.ref, answer)
        for (link, session_id), (draft, answer) in last.items():
            if isinstance(answer, Refusal):
                known = desk.journal.session(session_id)
                answer = known.last_sequence if known is not None else 0
            ack = turn.Acked(session_id=draft.session_id, event_id=draft.event_id, sequence=answer)
            self._say(link, 0, ack)

    def _answer_read(self, desk: Desk, waiting: Waiting) -> None:
        link, message = waiting.link, waiting.item.message
        watcher = self._publisher.watcher(link) if link is not None else None
        if link is None:
            return
        match message:
            case session.Unwatch(session_id=session_id):
                if watcher is not None:
                    watcher.sessions.discard(session_id)
            case session.WatchAll(wanted=wanted):
                if watcher is not None:
                    watcher.all = wanted
            case _:
                answer = desk.read(waiting.item.agent_id, message)
                if watcher is not None and isinstance(answer, session.Watched):
                    watcher.sessions.add(answer.row.spec.session_id)
                self._say(link, waiting.ref, answer)

    def _say(self, link: Link, ref: int, message: Message) -> None:
        """Answer a call, or cast for ref 0; a peer that does not read is cut off."""
        try:
            if ref:
                link.reply(ref, message)
            elif not isinstance(message, (Done, Refused)):
                link.cast(message)
        except LinkFull:
            _log.error("%s does not read: cut off", link.name)
            link.close()

    def _refuse(self, error: sqlite3.Error, requests: list[Waiting]) -> None:
        _log.error("the store cannot write: %s", error)
        full = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
        refused = (disk_full() if full else Internal("the store cannot write")).refused()
        for waiting in requests:
            if waiting.link is not None:
                self._say(waiting.link, waiting.ref, refused)

    async def _recover(self, desk: Desk, connection: sqlite3.Connection) -> None:
        """Repair what no process can be working on any more; one session that fails does not keep back the rest."""
        repairs = desk.repairs
        write_meta(connection, RECOVERING, "1")
        desk.transact(repairs.mark_recovered)
        for session_id in repairs.sessions_to_repair():
            try:
                desk.transact(lambda session_id=session_id: repairs.repair_cold(session_id))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 # one session must not keep the daemon from starting
                self._not_repaired(error, f"session {session_id} cannot be repaired")
            await trio.lowlevel.checkpoint()
        rest = [(partial(repairs.finish, each), each) for each in repairs.agents_to_finish()]
        rest += [(partial(repairs.close, each), each) for each in repairs.sessions_to_close()]
        for action, name in rest:
            try:
                desk.transact(action)
            except Exception as error:  # noqa: BLE001 # likewise
                self._not_repaired(error, f"the end of {name} cannot be completed")
        self._to_start = repairs.agents_to_start()
        write_meta(connection, RECOVERING, "")

    def _not_repaired(self, error: Exception, text: str) -> None:
        if isinstance(error, sqlite3.Error) and (is_corrupt(error) or is_disk_error(error)):
            raise error
        _log.error("%s", text, exc_info=error)

    async def _remove_imports(self) -> None:
        """Remove in small pieces what is left of imports that were broken off."""
        while True:
            await self._tidy.wait()
            self._tidy = trio.Event()
            try:
                while self._desk is not None and self._desk.remove_import_slice():  # noqa: ASYNC110 # a pause, not a wait
                    await trio.sleep(IMPORT_PAUSE)
            except sqlite3.Error as error:
                _log.error("what is left of an import cannot be removed now: %s", error)

    def _ask_root(self, request: StartChild) -> None:
        self.process.root.cast(request)

    def _is_running(self, agent_id: str) -> bool:
        return agent_id in self._agents and agent_id not in self._asleep

    def _set_timer(self, at: float) -> None:
        if at < self._timer_at:
            self._timer_at = at
            self._timer_set.set()

    async def _serve_timer(self) -> None:
        """Run the hooks when something that waits is due; no timer runs while nothing waits."""
        while True:
            await self._timer_set.wait()
            self._timer_set = trio.Event()
            await trio.sleep_until(self._timer_at)
            self._timer_at = float("inf")
            self.process.poller.run_hooks_soon()


def _refusal(draft: turn.Draft, answer: Refusal) -> turn.DraftRefused:
    return turn.DraftRefused(
        session_id=draft.session_id,
        event_id=draft.event_id,
        code=answer.code,
        message=answer.message,
    )
