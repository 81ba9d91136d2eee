"""A store behind the same messages as the real one, in memory: what it holds is what a test put there."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from roost.schemas import agent, approval, session, turn
from roost.schemas.base import (
    CallId,
    Done,
    Message,
    MessageId,
    Refused,
    TurnId,
)
from roost.schemas.event import (
    AnyEvent,
    CancellationCompleted,
    CancellationRequested,
    SessionClosed,
    SessionCreated,
    ToolApprovalApproved,
    ToolApprovalRejected,
    ToolApprovalRequested,
)
from roost.schemas.published import Published, PublishedItem
from roost.schemas.unions import event_encoder
from tests.support.front_rows import (
    NOW,
    FakeMessage,
    FakeSession,
    completed,
    delta,
    new_id,
    user_message,
)

if TYPE_CHECKING:
    from roost.supervisor.link import Link

EPOCH = "epoch-1"


class FakeStore:
    """Answers the front, and publishes what a test makes happen. Keeps its state when its link is replaced."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.epoch = EPOCH
        self.agents: dict[str, agent.AgentRow] = {}
        self.sessions: dict[str, FakeSession] = {}
        self.watched: set[str] = set()
        self.watch_all = False
        self.heard: list[Message] = []
        self.silent: set[type[Message]] = set()
        self.pages = 0
        self.ends_known_message = False

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Answer a call."""
        self.heard.append(message)
        if type(message) in self.silent:
            return
        link.reply(ref, self._answer(message))

    def on_closed(self, link: Link) -> None:
        """Forget who watched."""
        self.watched.clear()
        self.watch_all = False

    def add_agent(self, agent_id: str = "agent_1", session_id: str = "session_1") -> FakeSession:
        """Record an agent with one session."""
        spec = agent.AgentSpec(agent_id=agent_id, created_at=NOW, cwd="/tmp")  # type: ignore[arg-type]
        made = session.SessionSpec(session_id=session_id, agent_id=agent_id, created_at=NOW)  # type: ignore[arg-type]
        self._create(spec, made)
        return self.sessions[session_id]

    def publish(self, *items: PublishedItem) -> None:
        """Tell the front, as one commit."""
        assert self.link is not None
        wanted = tuple(i for i in items if self.watch_all or self._is_watched(i))
        if wanted:
            self.link.cast(Published(items=wanted))

    def append(self, session_id: str, *events: AnyEvent) -> int:
        """Commit events and publish them; return the last sequence."""
        batch = self.write(session_id, *events)
        self.publish(batch)
        return len(self.sessions[session_id].bodies)

    def write(self, session_id: str, *events: AnyEvent) -> session.EventBatch:
        """Commit events and return what is to be published."""
        found = self.sessions[session_id]
        first = len(found.bodies) + 1
        bodies = tuple(event_encoder.encode(event) for event in events)
        found.bodies.extend(bodies)
        return session.EventBatch(
            session_id=found.spec.session_id,
            agent_id=found.spec.agent_id,
            first=first,
            bodies=list(bodies),
        )

    def begin(self, session_id: str, message_id: str, turn_id: str = "turn_1") -> None:
        """Begin a message's turn."""
        found = self.sessions[session_id]
        message = found.messages[message_id]
        message.state, message.turn_id = "begun", turn_id
        request = message.request
        found.turn = found.turns[turn_id] = session.TurnRef(
            turn_id=TurnId(turn_id),
            message_id=request.message_id,
            stream_id=request.stream_id,
            accepted_at=request.accepted_at,
        )
        metadata = msgspec.json.decode(request.metadata, type=dict[str, object])
        batch = self.write(session_id, user_message(session_id, turn_id, request.text, metadata))
        self.publish(self._changed(found, message, "begun"), batch)

    def delta(self, session_id: str, *texts: str, turn_id: str = "turn_1") -> int:
        """Stream text."""
        return self.append(session_id, *(delta(session_id, turn_id, text) for text in texts))

    def complete(self, session_id: str, text: str = "done", turn_id: str = "turn_1") -> None:
        """End the turn as completed."""
        self._end(session_id, completed(session_id, turn_id, text), "completed")

    def interrupt(self, session_id: str, turn_id: str = "turn_1") -> None:
        """End the turn as interrupted."""
        event = CancellationCompleted(
            id=new_id(), timestamp=NOW / 1000, session_id=session_id, turn_id=turn_id
        )
        self._end(session_id, event, "interrupted")

    def ask_approval(self, session_id: str, call_id: str, turn_id: str = "turn_1") -> None:
        """Let a call wait for a decision."""
        found = self.sessions[session_id]
        event = ToolApprovalRequested(
            id=new_id(),
            timestamp=NOW / 1000,
            session_id=session_id,
            turn_id=turn_id,
            tool_name="shell",
            tool_call_id=call_id,
            tool_args={"command": "ls"},
            risk="external_effect",
        )
        row = approval.PendingRow(
            request_id=call_id,  # type: ignore[arg-type]
            kind="approval",
            turn_id=TurnId(turn_id),
            tool_name="shell",
            body=b'{"input":{"command":"ls"},"reason":"because","sandbox":"dangerFullAccess"}',
            opened_at=NOW,
            event_id=event.id,
            sequence=len(found.bodies) + 1,
            risk="external_effect",
        )
        found.pending[call_id] = row
        self.publish(self._pending(found, row), self.write(session_id, event))

    def ask_question(self, session_id: str, call_id: str, turn_id: str = "turn_1") -> None:
        """Ask the user."""
        found = self.sessions[session_id]
        row = approval.PendingRow(
            request_id=call_id,  # type: ignore[arg-type]
            kind="question",
            turn_id=TurnId(turn_id),
            tool_name="ask_user",
            body=b'{"questions":[{"id":"q","header":"H","question":"Which?"}]}',
            opened_at=NOW,
        )
        found.pending[call_id] = row
        self.publish(self._pending(found, row))

    def _end(self, session_id: str, event: AnyEvent, outcome: str) -> None:
        found = self.sessions[session_id]
        batch = self.write(session_id, event)
        ended: list[PublishedItem] = []
        for message in found.messages.values():
            if message.state == "begun" and message.turn_id == event.turn_id:
                message.state, message.outcome = "ended", outcome
                ended.append(self._changed(found, message, "ended"))
        found.turn = None
        self.publish(batch, *ended)

    def _is_watched(self, item: PublishedItem) -> bool:
        if isinstance(item, agent.AgentChanged):
            return True
        if isinstance(item, session.SessionChanged):
            return item.row.spec.session_id in self.watched
        return item.session_id in self.watched

    def _changed(
        self, found: FakeSession, message: FakeMessage, state: str
    ) -> session.MessageChanged:
        request = message.request
        return session.MessageChanged(
            session_id=found.spec.session_id,
            agent_id=found.spec.agent_id,
            message_id=request.message_id,
            stream_id=request.stream_id,
            state=state,  # type: ignore[arg-type]
            accepted_at=request.accepted_at,
            turn_id=message.turn_id,
            outcome=message.outcome,
            text=request.text,
            display=request.display,
            hidden=request.hidden,
        )

    def _pending(self, found: FakeSession, row: approval.PendingRow) -> session.PendingChanged:
        return session.PendingChanged(
            session_id=found.spec.session_id, agent_id=found.spec.agent_id, row=row
        )

    def _answer(self, message: Message) -> Message:
        match message:
            case agent.CreateAgent():
                return self._create_agent(message)
            case agent.GetAgent(agent_id=agent_id):
                return self.agents.get(agent_id) or no_agent(agent_id)
            case agent.ListAgents():
                return self._list_agents(message)
            case agent.EndAgent(agent_id=agent_id):
                return self._end_agent(agent_id)
            case agent.FinishAgent(agent_id=agent_id):
                return self._finish(agent_id)
            case session.CreateSession(session=spec):
                if spec.agent_id not in self.agents:
                    return no_agent(spec.agent_id)
                self._add_session(spec)
                return self.sessions[spec.session_id].row()
            case session.ListSessions():
                return self._list_sessions(message)
            case session.Count():
                return session.Counts(
                    active=len(self.sessions),
                    closed=0,
                    agents=len(self.agents),
                    turns_open=0,
                    calls_open=0,
                    pending=0,
                    events=sum(len(s.bodies) for s in self.sessions.values()),
                )
            case approval.ListPermissions():
                return approval.Permissions(permissions=(RULE,))
            case session.Unwatch(session_id=session_id):
                self.watched.discard(session_id)
                return Done()
            case session.WatchAll(wanted=wanted):
                self.watch_all = wanted
                return Done()
            case session.Delivered(sequences=sequences):
                for key, sequence in sequences.items():
                    self.sessions[key].delivered = sequence
                return Done()
            case _:
                return self._answer_session(message)

    def _answer_session(self, message: Message) -> Message:
        session_id = cast("session.GetSession", message).session_id
        found = self.sessions.get(session_id)
        if found is None:
            if isinstance(message, turn.CancelTurn | turn.CancelMessage):
                return turn.TurnCancelled(cancelled=False)
            if isinstance(message, turn.AcceptMessage | approval.Settle):
                text = f"AgenC daemon session not found or closed: {session_id}"
                return Refused(code="AGENT_NOT_FOUND", message=text)
            return Refused(code="SESSION_NOT_FOUND", message=f"session not found: {session_id}")
        match message:
            case session.GetSession():
                return found.row()
            case session.CloseSession(reason=reason):
                return self._close(found, reason)
            case session.Watch():
                self.watched.add(session_id)
                return session.Watched(
                    row=found.row(),
                    agent_status=self.agents[found.spec.agent_id].status,
                    epoch=self.epoch,
                    turn=found.turn,
                    pending=tuple(found.pending.values()),
                )
            case session.ReadPage():
                return self._page(found, message)
            case turn.AcceptMessage():
                return self._accept(found, message)
            case session.ClearSession():
                return self._clear(found, message)
            case session.ReadTexts():
                return self._texts(found, message)
            case turn.CancelCall(request_id=request_id, reason=reason):
                return turn.CallCancelled(call_id=CallId(request_id), reason=reason)
            case turn.CancelTurn(reason=reason):
                return self._cancel(found, reason)
            case turn.CancelMessage(message_id=message_id, reason=reason):
                return self._cancel_message(found, message_id, reason)
            case approval.Settle():
                return self._settle(found, message)
            case _:
                raise AssertionError(message)

    def _create(self, spec: agent.AgentSpec, made: session.SessionSpec) -> None:
        if spec.agent_id not in self.agents:
            self.agents[spec.agent_id] = agent.AgentRow(spec=spec, status="idle")
        self._add_session(made)

    def _add_session(self, made: session.SessionSpec) -> None:
        if made.session_id in self.sessions:
            return
        self.sessions[made.session_id] = FakeSession(made)
        created = SessionCreated(id=new_id(), timestamp=NOW / 1000, session_id=made.session_id)
        self.write(made.session_id, created)
        row = self.agents[made.agent_id]
        self.agents[made.agent_id] = msgspec.structs.replace(
            row, sessions=(*row.sessions, made.session_id)
        )

    def _create_agent(self, message: agent.CreateAgent) -> Message:
        self._create(message.spec, message.session)
        found = self.sessions[message.session.session_id]
        accepted = None
        if message.message is not None:
            answer = self._accept(found, message.message)
            if not isinstance(answer, turn.Accepted):
                return answer
            accepted = answer
        return agent.AgentCreated(
            agent=self.agents[message.spec.agent_id], session=found.row(), message=accepted
        )

    def _list_agents(self, message: agent.ListAgents) -> agent.Agents:
        made, last = message.after
        rows = sorted(self.agents.values(), key=lambda r: (r.spec.created_at, r.spec.agent_id))
        key = int(made) if made else NOW
        if last:
            rows = [r for r in rows if (r.spec.created_at, r.spec.agent_id) > (key, last)]
        return agent.Agents(agents=tuple(rows[: message.limit]), more=len(rows) > message.limit)

    def _list_sessions(self, message: session.ListSessions) -> session.Sessions:
        rows = sorted(
            (s.row() for s in self.sessions.values()),
            key=lambda r: (r.spec.created_at, r.spec.session_id),
        )
        rows = [
            r
            for r in rows
            if message.agent_id in ("", r.spec.agent_id)
            and _is_asked_for((r.spec.created_at, r.spec.session_id), message)
        ]
        if message.newest:
            rows.reverse()
        return session.Sessions(
            sessions=tuple(rows[: message.limit]), more=len(rows) > message.limit
        )

    def _end_agent(self, agent_id: str) -> Message:
        row = self.agents.get(agent_id)
        if row is None:
            return no_agent(agent_id)
        if row.status in ("stopping", "stopped"):
            return agent.AgentEnding(already=True)
        self.agents[agent_id] = msgspec.structs.replace(row, status="stopping")
        return agent.AgentEnding(already=False, live=True)

    def _finish(self, agent_id: str) -> Message:
        row = self.agents[agent_id]
        items: list[PublishedItem] = []
        for key in row.sessions:
            found = self.sessions[key]
            for message in found.messages.values():
                if message.state != "ended":
                    message.state, message.outcome = "ended", "interrupted"
                    items.append(self._changed(found, message, "ended"))
        items.append(
            agent.AgentChanged(
                agent_id=row.spec.agent_id,
                status="stopped",
                message="shutdown",
                sessions=row.sessions,
            )
        )
        for key in row.sessions:
            found = self.sessions[key]
            if found.state != "closed":
                items.extend(self._closed(found))
        self.publish(*items)
        self.agents[agent_id] = done = msgspec.structs.replace(row, status="stopped", sessions=())
        return done

    def _closed(self, found: FakeSession) -> list[PublishedItem]:
        found.state, found.closed_at = "closed", NOW + 1
        event = SessionClosed(
            id=new_id(), timestamp=NOW / 1000, session_id=found.spec.session_id, reason="over"
        )
        batch = self.write(found.spec.session_id, event)
        return [batch, session.SessionChanged(row=found.row())]

    def _close(self, found: FakeSession, reason: str) -> Message:
        terminated = found.state == "open"
        if terminated:
            found.reason = reason
            self.publish(*self._closed(found))
        row = self.agents[found.spec.agent_id]
        left = tuple(key for key in row.sessions if self.sessions[key].state == "open")
        self.agents[found.spec.agent_id] = msgspec.structs.replace(row, sessions=left)
        return session.SessionClosing(
            terminated=terminated,
            agent_id=found.spec.agent_id,
            closed_at=found.closed_at,
            reason=found.reason,
            last=terminated and not left,
        )

    def _page(self, found: FakeSession, message: session.ReadPage) -> session.Page:
        self.pages += 1
        lost = found.first_sequence - 1
        after = max(message.after, lost)
        upto = message.upto or len(found.bodies)
        bodies = tuple(found.bodies[after:upto][: message.max_events])
        while len(bodies) > 1 and sum(len(body) for body in bodies) > message.max_bytes:
            bodies = bodies[:-1]
        return session.Page(
            session_id=found.spec.session_id,
            first=after + 1,
            bodies=bodies,
            last_sequence=len(found.bodies),
            turns=tuple(found.turns.values()),
            lost_upto=lost if message.after < lost else 0,
        )

    def _accept(self, found: FakeSession, request: turn.AcceptMessage) -> Message:
        known = found.messages.get(request.message_id)
        if known is not None:
            state = known.state
            if self.ends_known_message:
                # As when one commit holds both the repeated message and the end of its turn.
                self.complete(found.spec.session_id)
            if known.request.sha256 != request.sha256:
                return Refused(code="CLIENT_MESSAGE_ID_CONFLICT", message="other content")
            again = known.request.accepted_at == request.accepted_at
            return turn.Accepted(
                message_id=request.message_id,
                stream_id=known.request.stream_id,
                accepted_at=known.request.accepted_at,
                duplicate=not again,
                state=state,  # type: ignore[arg-type]
                turn_id=known.turn_id,
                outcome="" if state != "ended" else known.outcome,
            )
        if found.state != "open":
            text = f"AgenC daemon session not found or closed: {found.spec.session_id}"
            return Refused(code="AGENT_NOT_FOUND", message=text)
        message = found.messages[request.message_id] = FakeMessage(request)
        self.publish(self._changed(found, message, "accepted"))
        return turn.Accepted(
            message_id=request.message_id,
            stream_id=request.stream_id,
            accepted_at=request.accepted_at,
        )

    def _texts(self, found: FakeSession, request: session.ReadTexts) -> Message:
        """Everything at once, deltas too: who reads leaves out what is no text."""
        floor = found.cleared[0] if request.floor < 0 else request.floor
        lowest = max(floor, found.first_sequence - 1)
        numbered = list(enumerate(found.bodies, 1))[lowest:]
        return session.Texts(
            session_id=found.spec.session_id,
            epoch=self.epoch,
            floor=floor,
            last_sequence=len(found.bodies),
            events=tuple(reversed(numbered)),
            removed=found.first_sequence - 1 > floor,
        )

    def _clear(self, found: FakeSession, request: session.ClearSession) -> Message:
        found.cleared = len(found.bodies), request.at
        cleared = session.SessionCleared(
            session_id=found.spec.session_id,
            agent_id=found.spec.agent_id,
            cleared_after=found.cleared[0],
            cleared_at=request.at,
        )
        self.publish(cleared)
        return cleared

    def _cancel(self, found: FakeSession, reason: str) -> Message:
        if found.turn is None:
            return turn.TurnCancelled(cancelled=False)
        turn_id = found.turn.turn_id
        event = CancellationRequested(
            id=new_id(),
            timestamp=NOW / 1000,
            session_id=found.spec.session_id,
            turn_id=turn_id,
            reason=reason,
        )
        self.append(found.spec.session_id, event)
        return turn.TurnCancelled(cancelled=True, turn_id=turn_id)

    def _cancel_message(self, found: FakeSession, message_id: MessageId, reason: str) -> Message:
        message = found.messages.get(message_id)
        if message is None or message.state == "ended":
            return turn.TurnCancelled(cancelled=False)
        if message.state == "begun":
            return self._cancel(found, reason)
        message.state, message.outcome = "ended", "interrupted"
        self.publish(self._changed(found, message, "ended"))
        return turn.TurnCancelled(cancelled=True)

    def _settle(self, found: FakeSession, request: approval.Settle) -> Message:
        row = found.pending.get(request.request_id)
        if row is None or row.kind != request.kind:
            return Refused(code="INVALID_ARGUMENT", message="not pending")
        del found.pending[request.request_id]
        settled = msgspec.structs.replace(
            row, state=request.state, scope=request.scope, by=request.by, answer=request.answer
        )
        items: list[PublishedItem] = [self._pending(found, settled)]
        if row.kind == "approval":
            items.append(self.write(found.spec.session_id, _decision(found, settled, request)))
        self.publish(*items)
        return settled


RULE = approval.Permission(
    permission_id="mode:default", subject="permission-mode", action="default", scope="session"
)


def _decision(
    found: FakeSession, row: approval.PendingRow, request: approval.Settle
) -> ToolApprovalApproved | ToolApprovalRejected:
    if request.state == "approved":
        return ToolApprovalApproved(
            id=new_id(),
            timestamp=NOW / 1000,
            session_id=found.spec.session_id,
            turn_id=row.turn_id,
            tool_name=row.tool_name,
            tool_call_id=row.request_id,
        )
    return ToolApprovalRejected(
        id=new_id(),
        timestamp=NOW / 1000,
        session_id=found.spec.session_id,
        turn_id=row.turn_id,
        tool_name=row.tool_name,
        tool_call_id=row.request_id,
        error_code="APPROVAL_REJECTED",
        reason=request.reason or "no",
    )


def _is_asked_for(key: tuple[int, str], message: session.ListSessions) -> bool:
    if message.newest:
        return not message.after[1] or key < message.after
    return key > message.after


def no_agent(agent_id: str) -> Refused:
    """Return the refusal for an unknown agent."""
    return Refused(code="AGENT_NOT_FOUND", message=f"AgenC daemon agent not found: {agent_id}")
