"""The front's requests about agents and sessions; each in the transaction that is open.

Whether a request is refused is decided before anything of it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import InvalidArgument, NotFound
from roost.actors.store.capacity import too_many
from roost.schemas import event
from roost.schemas.agent import AgentCreated, AgentEnding
from roost.schemas.session import SessionClosing
from roost.schemas.turn import Bell, Closing

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.messages import Messages
    from roost.actors.store.repair import Repairs
    from roost.schemas.agent import AgentRow, CreateAgent, EndAgent, FinishAgent
    from roost.schemas.session import CloseSession, CreateSession, SessionRow, SessionSpec


class Requests:
    """Requests about agents and sessions."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        messages: Messages,
        repairs: Repairs,
        check_room: Callable[[], None],
        is_running: Callable[[str], bool],
    ) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._catalogue = lifecycle.catalogue
        self._messages = messages
        self._repairs = repairs
        self._check_room = check_room
        self._is_running = is_running

    def create_agent(self, request: CreateAgent) -> AgentCreated:
        """Record an agent with its first session and message; what is there already is left as it is."""
        spec = request.spec
        self._check_owner(request.session)
        self._check_count(request.session)
        if request.message is not None:
            self._messages.check_size(request.message)
        known = self._catalogue.agent(spec.agent_id)
        if known is None:
            self._check_room()
            self._catalogue.add_agent(spec, has_env=request.has_env)
        row = self._add_session(request.session)
        accepted = None
        if request.message is not None:
            accepted = self._messages.accept(request.message)
            row = self._row(request.session)
        return AgentCreated(
            agent=self._lifecycle.need_agent(spec.agent_id), session=row, message=accepted
        )

    def create_session(self, request: CreateSession) -> SessionRow:
        """Record a session of a live agent; one that is there already is left as it is."""
        spec = request.session
        if self._catalogue.agent_state(spec.agent_id) != "live":
            raise NotFound("AGENT_NOT_FOUND", f"AgenC daemon agent not found: {spec.agent_id}")
        self._check_owner(spec)
        self._check_count(spec)
        if request.message is not None:
            self._messages.check_size(request.message)
        self._check_room()
        row = self._add_session(spec)
        if request.message is None:
            return row
        self._messages.accept(request.message)
        return self._row(spec)

    def close_session(self, request: CloseSession) -> SessionClosing:
        """Let a session take no further message, and close it when its open turn has ended."""
        session = self._journal.session(request.session_id)
        if session is None:
            text = f"AgenC daemon session not found: {request.session_id}"
            raise NotFound("SESSION_NOT_FOUND", text)
        if session.state == "open":
            self._lifecycle.start_closing(session, request.reason)
            turn = self._lifecycle.turns.open_turn(session.key)
            closing = Bell(session_id=session.session_id, items=(Closing(reason=request.reason),))
            self._journal.effects.ring(session.agent_id, closing)
            if turn is None:
                self._lifecycle.close_now(session)
            else:
                reason = request.reason or "session.terminate"
                self._lifecycle.request_cancel(session, turn, reason, wake=True)
            terminated = True
        else:
            terminated = False
        row = self._lifecycle.session_row(session)
        return SessionClosing(
            terminated=terminated,
            agent_id=session.agent_id,
            closed_at=row.closed_at,
            reason=row.close_reason,
            last=terminated and not self._has_open(session.agent_id),
        )

    def end_agent(self, request: EndAgent) -> AgentEnding:
        """Note that an agent is to end; its processes are the front's and root's to stop."""
        row = self._lifecycle.need_agent(request.agent_id)
        running = self._is_running(request.agent_id)
        if row.status in {"stopping", "stopped"}:
            if request.cancel and row.status == "stopping":
                self._catalogue.set_agent(request.agent_id, cancelled=1)
            return AgentEnding(already=True, live=running)
        self._catalogue.set_agent(request.agent_id, state="stopping", cancelled=request.cancel)
        for session_id in row.sessions:
            session = self._journal.session(session_id)
            if session is None:
                continue
            if session.state == "open":
                self._lifecycle.start_closing(session, request.reason)
            turn = self._lifecycle.turns.open_turn(session.key)
            if turn is not None:
                self._lifecycle.request_cancel(session, turn, request.reason, wake=False)
        return AgentEnding(already=False, live=running)

    def finish_agent(self, request: FinishAgent) -> AgentRow:
        """End an agent of which no process runs."""
        self._lifecycle.need_agent(request.agent_id)
        self._repairs.finish(request.agent_id)
        self._journal.flush()
        row = self._lifecycle.need_agent(request.agent_id)
        self._repairs.forget(request.agent_id)
        return row

    def _check_owner(self, spec: SessionSpec) -> None:
        session = self._journal.session(spec.session_id)
        if session is not None and session.agent_id != spec.agent_id:
            raise InvalidArgument(f"session {spec.session_id} belongs to another agent")

    def _check_count(self, spec: SessionSpec) -> None:
        limit = self._lifecycle.capacity.sessions
        if not limit or self._journal.session(spec.session_id) is not None:
            return
        if self._catalogue.session_count() >= limit:
            raise too_many(spec.session_id, limit)

    def _add_session(self, spec: SessionSpec) -> SessionRow:
        if self._journal.session(spec.session_id) is None:
            self._catalogue.add_session(spec)
            session = self._journal.session(spec.session_id)
            assert session is not None
            created = event.SessionCreated(
                id=self._journal.new_id(),
                timestamp=self._journal.clock(),
                session_id=spec.session_id,
                metadata={
                    "title": spec.title,
                    "cwd": spec.cwd,
                    "model": spec.model,
                    "agent_id": spec.agent_id,
                    "ephemeral": spec.ephemeral,
                },
            )
            self._journal.record(session, created)
        return self._row(spec)

    def _row(self, spec: SessionSpec) -> SessionRow:
        session = self._journal.session(spec.session_id)
        assert session is not None
        return self._lifecycle.session_row(session)

    def _has_open(self, agent_id: str) -> bool:
        live = map(self._journal.session, self._catalogue.live_sessions(agent_id))
        return any(session is not None and session.state == "open" for session in live)
