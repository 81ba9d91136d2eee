"""The root of an agent's process: its links, its sessions, and when the process is of no more use.

Sessions are opened when the store says that they have something to do; one that crashes is started again by itself,
and only one that keeps crashing takes the process with it. Without work for a while the process asks the store whether
it may end.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from roost.actors.agent.maker import AgentTurns
from roost.actors.agent.models import ModelRequests
from roost.actors.agent.store_link import StoreLink
from roost.actors.logs import adjust_log
from roost.actors.session.actor import SessionActor
from roost.config.model import decode_settings
from roost.schemas.agent import Hello, Sleep, Welcome
from roost.schemas.base import AgentId, Done, Message, Refused, SessionId
from roost.schemas.boot import decode_boot
from roost.schemas.control import KillChild
from roost.schemas.model import ModelDelta
from roost.schemas.turn import Acked, Bell, Draft, DraftRefused
from roost.schemas.unions import agent_from_store, peer_from_providers
from roost.supervisor import kernel
from roost.supervisor.actor import Process, ProcessActor
from roost.supervisor.backoff import Backoff
from roost.supervisor.errors import ActorGone, LinkFull, RestartLimitReached
from roost.supervisor.intensity import Intensity, Window
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION_RESTARTS: Final = Intensity(5, 60.0)
SESSION_BACKOFF: Final = Backoff()

_log = logging.getLogger(__name__)


class AgentActor(ProcessActor):
    """One agent; also the host of its sessions."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        boot = decode_boot(process.start.payload)
        self._settings = decode_settings(boot.settings)
        self._home = boot.home
        self._backend = boot.backend
        self._agent_id = AgentId(process.start.child_id.removeprefix("agent:"))
        self._store = StoreLink(
            process.nursery, self._settings.timeouts.link_call, self._resume_outboxes
        )
        self._models = ModelRequests()
        self._turns: AgentTurns | None = None
        self._grants: set[str] = set()
        self._sessions: dict[SessionId, SessionActor] = {}
        self._stopping = False
        self._changed = trio.Event()
        self._idling = trio.CancelScope()
        self._idle_since = 0.0

    @property
    def has_store(self) -> bool:
        """Return whether there is a link to the store."""
        return self._store.is_up

    @property
    def is_stopping(self) -> bool:
        """Return whether no further turn is to begin."""
        return self._stopping

    @property
    def agent_grants(self) -> set[str]:
        """Return what has been approved for all sessions."""
        return self._grants

    async def open(self) -> None:
        """Get ready; the store may come later."""
        self.own_process()
        self.process.nursery.start_soon(self._sleep_when_idle)

    def own_process(self) -> None:
        """Make this process an agent's: it gets the orphans of its commands, and stands back behind the services."""
        kernel.become_subreaper()
        if self._settings.agents.nice:
            with suppress(OSError):
                os.nice(self._settings.agents.nice)

    def link_up(self, name: str, generation: int, handle: int) -> None:
        """Take over a new end of a link."""
        match name:
            case "store":
                decoder = agent_from_store
            case "providers":
                decoder = peer_from_providers
            case _:
                os.close(handle)
                return
        link = Link(
            socket.socket(fileno=handle),
            self.process.poller,
            name=name,
            decoder=decoder,
            handler=self,
            queue_bytes=self._settings.limits.link_bytes,
        )
        if name == "store":
            self._store.replace(link)
            self._greet()
        else:
            self._models.link_up(link)

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Handle what comes over any of the links."""
        match message:
            case ModelDelta():
                self._models.delta(message)
            case _ if not self._store.is_current(link):
                pass
            case Acked(session_id=session_id, event_id=event_id):
                session = self._sessions.get(session_id)
                if session is not None:
                    session.acked(event_id)
            case DraftRefused(session_id=session_id, event_id=event_id, code=code):
                session = self._sessions.get(session_id)
                if session is not None:
                    session.refused(event_id, code)
            case Bell():
                self._ring(message)
            case _:
                _log.error("unexpected message from %s: %s", link.name, type(message).__name__)

    def on_closed(self, link: Link) -> None:
        """Forget a link; a new one comes from root."""
        if self._store.link is link:
            self.process.miss_link("store", lambda: self._store.link is not None)
        elif self._models.link is link:
            self.process.miss_link("providers", lambda: self._models.link is not None)
        if self._store.link is link:
            self._store.lost(link)
            for session in list(self._sessions.values()):
                session.link_down()
        self._models.link_down(link)

    def close(self) -> None:
        """Close all links, where the process does not end with its actor."""
        for link in (self._store.link, self._models.link):
            if link is not None:
                link.close()

    def configure(self, payload: bytes) -> None:
        """Take over new settings: turns that begin later go by them. The niceness stays until the next start."""
        self._settings = settings = decode_settings(payload)
        log, timeouts = settings.log, settings.timeouts
        adjust_log(level=log.level, rotate_bytes=log.rotate_bytes, keep=log.keep)
        self._store.call_timeout = timeouts.link_call
        if self._turns is not None:
            self._turns.configure(settings)
        for session in self._sessions.values():
            session.unwind_timeout = timeouts.turn_unwind
        for link in (self._store.link, self._models.link):
            if link is not None:
                link.set_bound(settings.limits.link_bytes)
        self._idling.deadline = self._idle_since + (settings.agents.idle_timeout or math.inf)

    def draining(self, reason: str) -> None:
        """Begin no further turn: the daemon is about to stop."""
        self._stopping = True

    async def wind_down(self, reason: str, grace: float) -> None:
        """Let running turns end; those that wait for a person stay parked, and what is left is for recovery."""
        self._stopping = True
        while any(session.is_active for session in self._sessions.values()):
            await self._changed.wait()
        if self._store.is_up:
            for session in list(self._sessions.values()):
                await session.outbox.settled()

    def send_draft(self, draft: Draft) -> bool:
        """Queue a draft; return False if there is no link, or no room on it."""
        return self._store.send_draft(draft)

    def call_store(
        self, message: Message, on_answer: Callable[[Message | ActorGone], None]
    ) -> None:
        """Call the store."""
        self._store.call(message, on_answer)

    async def ask_store(self, message: Message) -> Message:
        """Call the store with something idempotent."""
        return await self._store.ask(message)

    def kill(self, reason: str) -> None:
        """Have root kill this process and start it again."""
        start = self.process.start
        _log.error("asking to be killed: %s", reason)
        message = KillChild(child_id=start.child_id, generation=start.generation, reason=reason)
        with suppress(LinkFull):
            self.process.root.cast(message)

    def changed(self, session_id: SessionId) -> None:
        """A session has begun or ended work."""
        self.process.set_working(any(session.is_busy for session in self._sessions.values()))
        self._changed.set()
        self._changed = trio.Event()

    def _greet(self) -> None:
        """Say who is here on a new link, and send again what the old one may not have carried."""
        hello = Hello(agent_id=self._agent_id, generation=self.process.start.generation)
        self._store.call(hello, self._welcomed)
        for session in list(self._sessions.values()):
            session.link_up()

    def _welcomed(self, answer: Message | ActorGone) -> None:
        match answer:
            case Welcome(agent=agent, sessions=sessions, grants=grants):
                self._grants.update(grants)
                if self._turns is None:
                    self._turns = AgentTurns(
                        agent.spec,
                        self._settings,
                        home=self._home,
                        env={**os.environ, **self.process.start.env},
                        models=self._models,
                        backend=self._backend,
                    )
                for session_id in sessions:
                    self._open(session_id)
            case Refused(code=code, message=text):
                _log.error("the store does not know this agent: %s: %s", code, text)
                self.process.request_stop(code)
            case _:
                pass  # the link is gone; a new one brings a new welcome

    def _ring(self, bell: Bell) -> None:
        session = self._sessions.get(bell.session_id)
        if session is None:
            self._open(bell.session_id)
        elif bell.items:
            for item in bell.items:
                session.deliver(item)
        else:
            session.pull()

    def _open(self, session_id: SessionId) -> None:
        """Start a session unless it runs; not before the store has said who this agent is."""
        if self._turns is not None and session_id not in self._sessions:
            session = self._make_session(session_id, self._turns)
            self.process.nursery.start_soon(self._keep_session, session, self._turns)
            self.changed(session_id)

    def _make_session(self, session_id: SessionId, turns: AgentTurns) -> SessionActor:
        session = SessionActor(session_id, self, turns, self._settings.timeouts.turn_unwind)
        self._sessions[session_id] = session
        return session

    async def _keep_session(self, session: SessionActor, turns: AgentTurns) -> None:
        """Run a session until it is over; one that crashes starts again, but not for ever."""
        window = Window(SESSION_RESTARTS)
        session_id = session.session_id
        while True:
            started = trio.current_time()
            try:
                await session.run()
                break
            except Exception:  # noqa: BLE001 - one session's crash is nobody else's
                _log.exception("session %s crashed", session_id)
            turns.forget(session_id)
            now = trio.current_time()
            delay = SESSION_BACKOFF.delay(window.count(now), now - started, random.random())
            if not window.add(now):
                raise RestartLimitReached(f"session {session_id} crashed too often")
            await trio.sleep(delay)
            session = self._make_session(session_id, turns)
        turns.forget(session_id)
        if self._sessions.get(session_id) is session:
            del self._sessions[session_id]
        self.changed(session_id)

    def _resume_outboxes(self) -> None:
        for session in list(self._sessions.values()):
            session.outbox.resume()

    async def _sleep_when_idle(self) -> None:
        """End the process when it has had nothing to do for a while and the store agrees."""
        while True:
            self._idle_since = trio.current_time()
            timeout = self._settings.agents.idle_timeout or math.inf
            self._idling = trio.CancelScope(deadline=self._idle_since + timeout)
            with self._idling as scope:
                await self._wait_busy()
            if not scope.cancelled_caught:
                await self._wait_idle()
                continue
            generation = self.process.start.generation
            answer = await self.ask_store(Sleep(agent_id=self._agent_id, generation=generation))
            if isinstance(answer, Done):
                self.process.request_stop("idle")
                return
            for session in list(self._sessions.values()):
                session.pull()

    async def _wait_busy(self) -> None:
        while not any(session.is_busy for session in self._sessions.values()):
            await self._changed.wait()

    async def _wait_idle(self) -> None:
        while any(session.is_busy for session in self._sessions.values()):
            await self._changed.wait()
