"""The store's process: takes what came in one sweep as one durable group, and tells everyone only after its commit."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from roost.actors.errors import Internal
from roost.actors.store.changes import Refusal
from roost.actors.store.database import lock_database, open_database, read_meta, write_meta
from roost.actors.store.desk import Desk, Item
from roost.actors.store.publish import Publisher
from roost.actors.store.room import Room, disk_full
from roost.actors.store.starts import Starts
from roost.config.model import decode_settings
from roost.schemas import agent, approval, session, turn
from roost.schemas.base import Done, Message, Refused
from roost.schemas.boot import decode_boot
from roost.schemas.unions import store_from_agent, store_from_front
from roost.supervisor.actor import Process, ProcessActor
from roost.supervisor.errors import LinkFull
from roost.supervisor.kernel import hide_memory
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from roost.actors.store.desk import Result
    from roost.schemas.base import AgentId
    from roost.schemas.control import ChildReport, StartChild

AGENT: Final = "agent:"
FRONT: Final = "front"
GROUP_BYTES: Final = 8 * 1024 * 1024
KEPT_BYTES: Final = 256 * 1024 * 1024
STALL_SECONDS: Final = 0.5
RECOVERING: Final = "recovering"
WATCHES: Final = (session.Watch, session.Unwatch, session.WatchAll)
READS: Final = (
    session.ReadPage,
    session.GetSession,
    session.ListSessions,
    session.Count,
    turn.PullInbox,
    agent.GetAgent,
    agent.ListAgents,
    approval.ListPermissions,
)

_log = logging.getLogger(__name__)


class Waiting(NamedTuple):
    """Something to write, and who gets the answer; root's reports have no link."""

    link: Link | None
    ref: int
    item: Item

    @property
    def size(self) -> int:
        """The bytes that count for the size of a group."""
        message = self.item.message
        return len(message.body) if isinstance(message, turn.Draft) else 0

    @property
    def is_request(self) -> bool:
        """Whether a client waits for it, and is better told than left waiting."""
        return bool(self.ref) and not self.item.agent_id


class StoreActor(ProcessActor):
    """Links to the front and the agents over one desk."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._boot = decode_boot(process.start.payload)
        self._settings = decode_settings(self._boot.settings)
        self._window = self._settings.store.delta_window_ms / 1000
        self._publisher = Publisher()
        self._starts = Starts(self._ask_root, self._settings.agents.start_at_once)
        self._peers: dict[Link, str] = {}
        self._agents: dict[str, Link] = {}
        self._asleep: set[str] = set()
        self._writes: list[Waiting] = []
        self._reads: list[Waiting] = []
        self._urgent = False
        self._due = 0.0
        self._stalled_until = 0.0
        self._kept_bytes = 0
        self._timer_at = float("inf")
        self._timer_set = trio.Event()
        self._desk: Desk | None = None
        self._connection: sqlite3.Connection | None = None
        self._lock = -1
        self._to_start: list[AgentId] = []

    async def open(self) -> None:
        """Open the database, see to what a crash has left if this is a cold start, and serve."""
        hide_memory()
        path = Path(self._boot.home) / "store.db"
        self._lock = await lock_database(path)
        store = self._settings.store
        connection = open_database(path, wal_autocheckpoint=store.wal_autocheckpoint)
        room = Room(path.parent, store.min_free_mib, time.monotonic)
        desk = Desk(
            connection,
            self._settings,
            clock=time.time,
            check_room=room.check,
            is_running=self._is_running,
        )
        clean = read_meta(connection, "clean") == "1"
        write_meta(connection, "clean", "0")
        self._connection = connection
        # A cold start that was cut short is gone on with: no agent can have been started since.
        if self._boot.cold or read_meta(connection, RECOVERING):
            _log.info("cold start after a %s", "clean stop" if clean else "crash")
            await self._recover(desk, connection)
        self._desk = desk
        self.process.nursery.start_soon(self._serve_timer)
        self.process.poller.after_sweep(self._on_sweep)
        self.process.poller.run_hooks_soon()

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
            self._asleep.discard(agent_id)
            self._starts.linked(agent_id)
        else:
            self._publisher.add(link)
            # The front is started last: what an agent needs is there.
            self._starts.queue(self._to_start)
            self._to_start = []

    def child_report(self, report: ChildReport) -> None:
        """Hear what happened to an agent's process."""
        self._starts.report(report)
        if report.event in {"gave_up", "ended"}:
            self._writes.append(Waiting(None, 0, Item("", report)))
            self._urgent = True
            self.process.poller.run_hooks_soon()

    async def wind_down(self, reason: str, grace: float) -> None:
        """Write what has come, fold the write-ahead log into the file, and close it."""
        if self._desk is None or self._connection is None:
            return
        self._urgent = True
        self._on_sweep()
        for link in list(self._peers):
            link.flush()
            link.close()
        self._desk = None
        try:
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
        if isinstance(message, WATCHES) and self._desk is not None:
            # Takes effect between what this link asked for before it and after it.
            if any(other.link is link and other.is_request for other in self._writes):
                self._write_all(self._desk)
            self._answer_read(self._desk, waiting)
            return
        if isinstance(message, READS + WATCHES):
            self._reads.append(waiting)
            return
        self._writes.append(waiting)
        if isinstance(message, turn.Draft):
            self._urgent = self._urgent or message.durable
            if self._stalled_until:
                self._bound_kept(waiting)
        elif isinstance(message, agent.Hello) and message.agent_id != agent_id:
            _log.error("%s says that it is %s", link.name, message.agent_id)
            self._writes.pop()
            link.close()
        elif not isinstance(message, session.Delivered):
            self._urgent = True

    def on_closed(self, link: Link) -> None:
        """Forget a link; what came on it is still written."""
        agent_id = self._peers.pop(link, "")
        if agent_id and self._agents.get(agent_id) is link:
            del self._agents[agent_id]
        self._publisher.remove(link)

    def _on_sweep(self) -> None:
        if self._desk is None:
            return
        if self._writes and self._is_due():
            self._write_all(self._desk)
        if self._reads:
            reads, self._reads = self._reads, []
            for waiting in reads:
                self._answer_read(self._desk, waiting)

    def _write_all(self, desk: Desk) -> None:
        while self._writes:
            group = self._take_group()
            if not group:
                return
            self._commit(desk, group)
        self._urgent = False

    def _is_due(self) -> bool:
        """Return whether a group is to be written now; text deltas alone wait until a little after the last one."""
        if self._urgent or len(self._writes) >= self._settings.store.group_drafts:
            return True
        if trio.current_time() >= self._due:
            return True
        self._set_timer(self._due)
        return False

    def _take_group(self) -> list[Waiting]:
        if trio.current_time() < self._stalled_until:
            self._set_timer(self._stalled_until)
            group = [waiting for waiting in self._writes if waiting.is_request]
            self._writes = [waiting for waiting in self._writes if not waiting.is_request]
            return group
        size = count = 0
        for waiting in self._writes[: self._settings.store.group_drafts]:
            size += waiting.size
            if count and size > GROUP_BYTES:
                break
            count += 1
        group = self._writes[:count]
        del self._writes[:count]
        return group

    def _commit(self, desk: Desk, group: list[Waiting]) -> None:
        result = desk.write([waiting.item for waiting in group])
        self._due = trio.current_time() + self._window
        if result.error is not None:
            self._stall(result.error, group[len(result.answers) :])
        elif self._stalled_until:
            self._stalled_until = 0.0
            _log.warning("the disk takes writes again")
        self._publisher.publish(result.effects.items)
        self._answer(desk, group, result)
        for agent_id, bell in result.effects.bells:
            link = self._agents.get(agent_id)
            if link is not None and agent_id not in self._asleep:
                self._say(link, 0, bell)
        for agent_id, fresh in result.effects.starts.items():
            if not self._is_running(agent_id):
                self._starts.start(agent_id, fresh=fresh)

    def _answer(self, desk: Desk, group: list[Waiting], result: Result) -> None:
        acks: dict[tuple[Link, str], turn.Acked] = {}
        for waiting, answer in zip(group, result.answers, strict=False):
            link, message = waiting.link, waiting.item.message
            if link is None:
                continue
            if isinstance(message, turn.Draft):
                assert not isinstance(answer, Message)
                acks[link, message.session_id] = self._acked(desk, link, message, answer)
                continue
            assert isinstance(answer, Message)
            if isinstance(message, agent.Sleep) and isinstance(answer, Done):
                self._asleep.add(waiting.item.agent_id)
            self._say(link, waiting.ref, answer)
        for (link, _), ack in acks.items():
            self._say(link, 0, ack)

    def _acked(
        self, desk: Desk, link: Link, draft: turn.Draft, answer: int | Refusal
    ) -> turn.Acked:
        if isinstance(answer, Refusal):
            refused = turn.DraftRefused(
                session_id=draft.session_id,
                event_id=draft.event_id,
                code=answer.code,
                message=answer.message,
            )
            self._say(link, 0, refused)
            known = desk.journal.session(draft.session_id)
            answer = known.last_sequence if known is not None else 0
        return turn.Acked(session_id=draft.session_id, event_id=draft.event_id, sequence=answer)

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

    def _stall(self, error: sqlite3.Error, left: list[Waiting]) -> None:
        """Refuse what clients ask for; keep what agents have sent, in order, for when there is room again."""
        _log.error("the store cannot write: %s", error)
        full = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
        refused = (disk_full() if full else Internal("the store cannot write")).refused()
        kept: list[Waiting] = []
        for waiting in left:
            if waiting.is_request and waiting.link is not None:
                self._say(waiting.link, waiting.ref, refused)
            else:
                kept.append(waiting)
        self._writes[:0] = kept
        self._kept_bytes = sum(waiting.size for waiting in self._writes)
        self._stalled_until = trio.current_time() + STALL_SECONDS
        self._set_timer(self._stalled_until)

    def _bound_kept(self, waiting: Waiting) -> None:
        """Cut off who sends more than can be kept: it sends all of it again, in order, on its next link."""
        self._kept_bytes += waiting.size
        if self._kept_bytes > KEPT_BYTES and waiting.link is not None:
            link = waiting.link
            self._writes = [other for other in self._writes if other.link is not link]
            self._kept_bytes = sum(other.size for other in self._writes)
            link.close()

    async def _recover(self, desk: Desk, connection: sqlite3.Connection) -> None:
        """Repair what no process can be working on any more; one session that fails does not keep back the rest."""
        repairs = desk.repairs
        write_meta(connection, RECOVERING, "1")
        desk.transact(repairs.mark_recovered)
        for session_id in repairs.sessions_to_repair():
            try:
                desk.transact(lambda session_id=session_id: repairs.repair_cold(session_id))  # type: ignore[misc]
            except sqlite3.Error:
                raise
            except Exception:  # noqa: BLE001 # a bug there must not keep the daemon from starting
                _log.exception("session %s cannot be repaired", session_id)
            await trio.lowlevel.checkpoint()
        desk.transact(repairs.finish_rest)
        self._to_start = repairs.agents_to_start()
        write_meta(connection, RECOVERING, "")

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
