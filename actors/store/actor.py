"""The store's process: takes what came in one sweep as one durable group, and tells everyone only after its commit."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from roost.actors.errors import Internal
from roost.actors.logs import adjust_log
from roost.actors.store.changes import Refusal
from roost.actors.store.ephemeral import Idlers
from roost.actors.store.file import StoreFile
from roost.actors.store.intake import Intake, Waiting
from roost.actors.store.publish import Publisher
from roost.actors.store.room import disk_full
from roost.actors.store.starts import Starts
from roost.actors.store.unwinding import Unwinding
from roost.actors.store.upkeep import Upkeep
from roost.config.model import decode_settings
from roost.schemas import agent, approval, archive, session, thread_log, turn
from roost.schemas.base import Done, Message, Refused, SessionId
from roost.schemas.boot import decode_boot
from roost.schemas.control import KillChild
from roost.schemas.unions import store_from_agent, store_from_front
from roost.supervisor.actor import Process, ProcessActor
from roost.supervisor.errors import LinkFull
from roost.supervisor.kernel import hide_memory
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from roost.actors.store.desk import Desk, Result
    from roost.schemas.control import ChildReport, StartChild

AGENT: Final = "agent:"
FRONT: Final = "front"
WATCHES: Final = (session.Watch, session.Unwatch, session.WatchAll)
READS: Final = (
    *WATCHES,
    session.ReadPage,
    session.GetSession,
    session.ListSessions,
    session.ListThreads,
    session.FindEvent,
    thread_log.ReadItems,
    thread_log.FindPending,
    thread_log.FindTurn,
    session.GetSnapshot,
    session.ReadTexts,
    session.Count,
    turn.PullInbox,
    turn.RecallCall,
    agent.GetAgent,
    agent.ListAgents,
    approval.ListPermissions,
)

_log = logging.getLogger(__name__)


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
        self._asleep: set[str] = set()
        self._reads: list[Waiting] = []
        self._timer_at = float("inf")
        self._timer_set = trio.Event()
        self._upkeep: Upkeep | None = None
        self._idlers: Idlers | None = None
        self._file = StoreFile(
            Path(self._boot.home) / "store.db", self._settings, is_running=self._is_running
        )
        self._unwinding = Unwinding(
            process.nursery, self._file, self._settings.timeouts.turn_unwind, self._kill
        )

    async def open(self) -> None:
        """Open the database, see to what a crash has left if this is a cold start, and serve."""
        hide_memory()
        desk = await self._file.open(cold=self._boot.cold)
        # They may have changed while the file was being opened.
        desk.configure(self._settings)
        desk.retention.limits = self._settings.retention
        path = self._file.path
        self._upkeep = Upkeep(desk, path, self._publisher.publish)
        self._idlers = idlers = Idlers(
            desk,
            self._settings.store.ephemeral_idle,
            is_followed=self._publisher.is_watched,
            close=self._close_session,
        )
        check = self._file.check.run
        tasks = (self._serve_timer, self._file.serve, check, self._upkeep.run, idlers.run)
        for task in tasks:
            self.process.nursery.start_soon(task)
        # What is here now stays; messages are many and die young.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
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
            self._generations[agent_id] = generation
            self._asleep.discard(agent_id)
            self._starts.linked(agent_id)
        else:
            self._publisher.add(link)
            self._file.abandon_imports()
            # The front is started last: what an agent needs is there.
            self._starts.queue(self._file.take_agents_to_start())

    def configure(self, payload: bytes) -> None:
        """Take over new settings; what retention removes by them is removed from now on."""
        settings, before = decode_settings(payload), self._settings
        if self._upkeep is not None and settings.retention != before.retention:
            self._upkeep.configure(settings.retention)
        self._settings = settings
        log, store = settings.log, settings.store
        if self._idlers is not None:
            self._idlers.configure(store.ephemeral_idle)
        adjust_log(level=log.level, rotate_bytes=log.rotate_bytes, keep=log.keep)
        self._intake.configure(store.group_drafts, store.delta_window_ms / 1000)
        self._starts.at_once = settings.agents.start_at_once
        self._unwinding.seconds = settings.timeouts.turn_unwind
        self._file.configure(settings)
        for link in self._peers:
            link.set_bound(settings.limits.link_bytes)

    def child_report(self, report: ChildReport) -> None:
        """Hear what happened to an agent's process."""
        self._starts.report(report)
        if report.event == "crashed" and self._file.desk is not None:
            self._file.desk.note_crash(report.child_id, report.reason)
        if report.event in {"gave_up", "ended"}:
            self._intake.add(Waiting("", report, None, 0))
            self.process.poller.run_hooks_soon()

    async def wind_down(self, reason: str, grace: float) -> None:
        """Write what has come, fold the write-ahead log into the file, and close it."""
        if self._file.desk is None:
            return
        self._intake.hurry()
        self._on_sweep()
        for link in list(self._peers):
            link.flush()
            link.close()
        if self._upkeep is not None:
            self._upkeep.stop()
        self._file.close()

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Keep what came until the sweep is over."""
        agent_id = self._peers[link]
        waiting = Waiting(agent_id, message, link, ref)
        if isinstance(message, turn.Draft):
            self._keep(link, waiting)
        elif isinstance(message, WATCHES) and self._file.desk is not None:
            # Takes effect between what this link asked for before it and after it.
            if self._intake.has_request_of(link):
                self._write_due(self._file.desk)
            self._answer_read(self._file.desk, waiting)
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
        desk = self._file.desk
        if desk is None:
            return
        with self._file.suspected():
            self._write_due(desk)
            reads, self._reads = self._reads, []
            for waiting in reads:
                self._answer_read(desk, waiting)

    def _write_due(self, desk: Desk) -> None:
        while (due := self._intake.due(now := trio.current_time())) <= now:
            self._commit(desk, self._intake.take(now))
        self._set_timer(due)

    def _commit(self, desk: Desk, group: list[Waiting]) -> None:
        result = self._file.write(desk, group)
        now = trio.current_time()
        if result.error is not None:
            self._refuse(result.error, self._intake.stall(group[len(result.answers) :], now))
        elif self._intake.written(now):
            _log.warning("the disk takes writes again")
        if self._upkeep is not None and desk.retention.after_commit():
            self._upkeep.wake()
        self._publisher.publish(result.effects)
        self._answer(desk, group, result)
        for agent_id, bell in result.effects.bells:
            link = self._agents.get(agent_id)
            if link is not None and agent_id not in self._asleep:
                self._cast(link, bell)
                self._unwinding.watch(agent_id, self._generations[agent_id], bell)
        for agent_id, fresh in result.effects.starts.items():
            if not self._is_running(agent_id):
                self._starts.start(agent_id, fresh=fresh)

    def _answer(self, desk: Desk, group: list[Waiting], result: Result) -> None:
        last: dict[tuple[Link, str], tuple[turn.Draft, Message | int | Refusal]] = {}
        for waiting, answer in zip(group, result.answers, strict=False):
            link, message = waiting.link, waiting.message
            if link is None:
                continue
            if isinstance(message, turn.Draft):
                if isinstance(answer, Refusal):
                    self._cast(link, _refusal(message, answer))
                last[link, message.session_id] = message, answer
                continue
            assert isinstance(answer, Message)
            if isinstance(message, archive.AbortImport):
                self._file.tidy()
            if isinstance(message, agent.Sleep) and isinstance(answer, Done):
                self._asleep.add(waiting.agent_id)
            self._say(link, waiting.ref, answer)
        for (link, session_id), (draft, answer) in last.items():
            if isinstance(answer, int):
                sequence = answer
            else:
                known = desk.journal.session(session_id)
                sequence = known.last_sequence if known is not None else 0
            ack = turn.Acked(
                session_id=draft.session_id, event_id=draft.event_id, sequence=sequence
            )
            self._cast(link, ack)

    def _answer_read(self, desk: Desk, waiting: Waiting) -> None:
        link, message = waiting.link, waiting.message
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
                answer = desk.read(waiting.agent_id, message)
                if isinstance(answer, session.Counts):
                    waits = len(self._intake) + len(self._reads)
                    answer = msgspec.structs.replace(answer, mailbox=waits)
                if watcher is not None and isinstance(answer, session.Watched):
                    watcher.sessions.add(answer.row.spec.session_id)
                self._say(link, waiting.ref, answer)

    def _say(self, link: Link, ref: int, message: Message) -> None:
        """Answer a call, or cast for ref 0; a peer that does not read is cut off."""
        if not ref:
            if not isinstance(message, (Done, Refused)):
                self._cast(link, message)
            return
        try:
            link.reply(ref, message)
        except LinkFull:
            _cut_off(link)

    def _cast(self, link: Link, message: Message) -> None:
        try:
            link.cast(message)
        except LinkFull:
            _cut_off(link)

    def _refuse(self, error: sqlite3.Error, requests: list[Waiting]) -> None:
        _log.error("the store cannot write: %s", error)
        full = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
        refused = (disk_full() if full else Internal("the store cannot write")).refused()
        for waiting in requests:
            if waiting.link is not None:
                self._say(waiting.link, waiting.ref, refused)

    def _kill(self, agent_id: str, generation: int, reason: str) -> None:
        if self._generations.get(agent_id) == generation:
            kill = KillChild(child_id=agent_id, generation=generation, reason=reason)
            self.process.root.cast(kill)

    def _ask_root(self, request: StartChild) -> None:
        self.process.root.cast(request)

    def _is_running(self, agent_id: str) -> bool:
        return agent_id in self._agents and agent_id not in self._asleep

    def _close_session(self, session_id: str, reason: str) -> None:
        """Close a session as if a client had asked for it."""
        request = session.CloseSession(session_id=SessionId(session_id), reason=reason)
        self._intake.add(Waiting("", request, None, 0))
        self.process.poller.run_hooks_soon()

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


def _cut_off(link: Link) -> None:
    _log.error("%s does not read: cut off", link.name)
    link.close()


def _refusal(draft: turn.Draft, answer: Refusal) -> turn.DraftRefused:
    return turn.DraftRefused(
        session_id=draft.session_id,
        event_id=draft.event_id,
        code=answer.code,
        message=answer.message,
    )
