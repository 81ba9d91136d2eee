"""A store's desk over a real file, without loop, links or process: requests and drafts in, answers and effects out."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import DaemonError
from roost.actors.store.changes import Refusal
from roost.actors.store.database import open_database
from roost.actors.store.desk import Desk, Item
from roost.schemas import agent, event, session, turn
from roost.schemas.base import CallId, EventId, Message, Refused, SessionId, TurnId
from roost.schemas.session import EventBatch
from roost.schemas.unions import event_decoder, event_encoder
from tests.support.store import (
    create_agent,
    event_kind,
    final,
    message,
    pending_row,
    settings_with,
    tool_event,
    unique,
    user_message,
)

if TYPE_CHECKING:
    from roost.actors.store.effects import Effects

COUNTED = """select coalesce(sum(state <> 'closed'), 0), coalesce(sum(state = 'closed'), 0),
    coalesce(sum(last_sequence - first_sequence + 1), 0),
    (select count(*) from agents where state = 'live'),
    (select count(*) from turns where state = 'open'),
    (select count(*) from pending where state = 'open'),
    (select count(*) from messages where state = 'queued'),
    (select count(*) from tool_ledger where state = 'running') from sessions join counters on session = key
    where state not in ('importing', 'purging')"""


class Book:
    """One desk, and one agent with one session whose actor is up."""

    def __init__(self, path: Path, **limits: int) -> None:
        settings = settings_with()
        replaced = msgspec.structs.replace(settings.limits, **limits)
        settings = msgspec.structs.replace(settings, limits=replaced)
        self.path = path / "store.db"
        self.settings = settings
        self.time = 1000.0
        self.full = False
        self.effects: list[Effects] = []
        self.open()

    def open(self) -> None:
        self.connection = open_database(self.path, wal_autocheckpoint=4000)
        self.desk = Desk(
            self.connection,
            self.settings,
            clock=lambda: self.time,
            check_room=self._check_room,
            is_running=lambda _: False,
        )

    def figures(self) -> tuple[int, ...]:
        """Return the figures that the store keeps."""
        if self.connection.in_transaction:
            self.connection.rollback()
        found = self.read(session.Count())
        assert isinstance(found, session.Counts), found
        names = ("active", "closed", "events", "agents", "turns_open", "pending", "queued")
        return (*(getattr(found, name) for name in names), found.calls_open)

    def hurt(self, *statements: str) -> None:
        """Change rows behind the store's back; its figures are as if it had been opened after that."""
        for sql in statements:
            self.connection.execute(sql)
        self.desk.recount()

    def counted(self) -> tuple[int, ...]:
        """Return the same figures, counted in the tables."""
        return tuple(self.connection.execute(COUNTED).fetchone())

    def _check_room(self) -> None:
        if self.full:
            raise DaemonError("DISK_FULL", "full")

    def close(self) -> None:
        self.connection.close()

    def write(self, *items: tuple[str, Message]) -> list[object]:
        result = self.desk.write([Item(*item) for item in items])
        assert result.error is None
        self.effects.append(result.effects)
        return list(result.answers)

    def ask(self, request: Message, agent_id: str = "") -> object:
        return self.write((agent_id, request))[0]

    def refused(self, request: Message, agent_id: str = "") -> str:
        answer = self.ask(request, agent_id)
        assert isinstance(answer, Refused), answer
        return answer.code

    def read(self, request: Message, agent_id: str = "") -> Message:
        return self.desk.read(agent_id, request)

    def row(self, session_id: str) -> session.SessionRow:
        row = self.read(session.GetSession(session_id=SessionId(session_id)))
        assert isinstance(row, session.SessionRow), row
        return row

    def log(self, session_id: str) -> list[str]:
        page = self.read(session.ReadPage(session_id=SessionId(session_id), after=0))
        assert isinstance(page, session.Page), page
        return [event_kind(body) for body in page.bodies]

    def story(self) -> list[str]:
        """What the last group published, in words."""
        words: list[str] = []
        for item in self.effects[-1].items:
            match item:
                case EventBatch(bodies=bodies):
                    words += map(event_kind, bodies)
                case session.MessageChanged(state=state, outcome=outcome):
                    words.append(f"message {state} {outcome}".strip())
                case session.PendingChanged(row=row):
                    words.append(f"pending {row.state}")
                case session.SessionChanged(row=row):
                    words.append(f"session {row.state}")
                case agent.AgentChanged(status=status):
                    words.append(f"agent {status}")
                case _:
                    words.append(type(item).__name__)
        return words


class Actor:
    """A session actor at a desk; what it drafts is written at once."""

    def __init__(self, book: Book, agent_id: str, session_id: str) -> None:
        self.book = book
        self.agent_id = agent_id
        self.session_id = SessionId(session_id)
        self.opened = self.open()

    def open(self) -> turn.SessionOpened:
        opened = self.book.ask(turn.OpenSession(session_id=self.session_id), self.agent_id)
        assert isinstance(opened, turn.SessionOpened), opened
        self.opened = opened
        return opened

    def draft(
        self,
        found: event.AnyEvent | None,
        *changes: turn.Change,
        tied_to: str = "",
        event_id: str = "",
    ) -> turn.Draft:
        """Return a draft; the start of a call claims it."""
        if isinstance(found, event.ToolCallStarted) and not changes:
            call_id = CallId(found.tool_call_id)
            changes = (turn.ClaimCall(call_id=call_id, fingerprint=found.tool_name.encode()),)
        return turn.Draft(
            session_id=self.session_id,
            generation=self.opened.generation,
            event_id=EventId(found.id if found is not None else event_id or unique("evt")),
            type=str(found.__struct_config__.tag) if found is not None else "",
            turn_id=(found.turn_id or "") if found is not None else "",
            body=event_encoder.encode(found) if found is not None else b"",
            changes=changes,
            tied_to=tied_to,
        )

    def send(self, *drafts: turn.Draft) -> list[int | str]:
        """Return for each draft its sequence, or why it was refused."""
        answers = self.book.write(*((self.agent_id, draft) for draft in drafts))
        return [
            answer.code if isinstance(answer, Refusal) else _number(answer) for answer in answers
        ]

    def accept(self, text: str = "hello", **more: object) -> turn.Accepted:
        accepted = self.book.ask(message(self.session_id, text, **more))
        assert isinstance(accepted, turn.Accepted), accepted
        return accepted

    def begin(self, accepted: turn.Accepted | None = None, turn_id: str = "") -> TurnId:
        accepted = accepted or self.accept()
        name = TurnId(turn_id or unique("turn"))
        begin = turn.BeginTurn(turn_id=name, message_id=accepted.message_id)
        (answer,) = self.send(self.draft(user_message(self.session_id, name), begin))
        assert isinstance(answer, int), answer
        return name

    def ask_approval(self, turn_id: TurnId, call_id: str) -> turn.Draft:
        asked = tool_event(event.ToolCallRequested, self.session_id, turn_id, call_id, tool_args={})
        wants = tool_event(
            event.ToolApprovalRequested,
            self.session_id,
            turn_id,
            call_id,
            tool_args={},
            risk="write",
        )
        made = self.draft(wants, turn.OpenPending(row=pending_row(turn_id, call_id)))
        assert all(isinstance(answer, int) for answer in self.send(self.draft(asked), made))
        return made

    def end(self, turn_id: TurnId, outcome: turn.TurnOutcome = "completed") -> list[int | str]:
        done = final(self.session_id, turn_id)
        return self.send(self.draft(done, turn.EndTurn(turn_id=turn_id, outcome=outcome)))


def _number(answer: object) -> int:
    assert isinstance(answer, int), answer
    return answer


def with_actor(book: Book) -> Actor:
    agent_id, session_id = unique("agent"), unique("session")
    assert isinstance(book.ask(create_agent(agent_id, session_id)), agent.AgentCreated)
    return Actor(book, agent_id, session_id)


def decoded(book: Book, session_id: str) -> list[event.AnyEvent]:
    page = book.read(session.ReadPage(session_id=SessionId(session_id), after=0))
    assert isinstance(page, session.Page)
    return [event_decoder.decode(body) for body in page.bodies]
