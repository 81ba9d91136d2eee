"""A real store process-actor with fakes around it: root, the front, and agents, each behind a real socket pair."""

from __future__ import annotations

import itertools
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from roost.actors.store.actor import StoreActor
from roost.config.load import default_settings
from roost.config.model import encode_without_keys
from roost.schemas import agent, approval, control, event, session, turn
from roost.schemas.base import AgentId, CallId, EventId, Message, MessageId, SessionId, TurnId
from roost.schemas.boot import Boot
from roost.schemas.published import Published
from roost.schemas.unions import (
    agent_from_store,
    event_decoder,
    event_encoder,
    front_from_store,
)
from roost.supervisor.actor import Process
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.poller import Poller

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from roost.actors.store.desk import Desk
    from roost.config.model import Settings
    from roost.schemas.event import AnyEvent
    from roost.schemas.published import PublishedItem

T = TypeVar("T", bound=Message)
E = TypeVar("E", bound=event.Event)
ToolE = TypeVar(
    "ToolE",
    event.ToolCallRequested,
    event.ToolCallStarted,
    event.ToolCallCompleted,
    event.ToolCallFailed,
    event.ToolApprovalRequested,
    event.ToolApprovalApproved,
    event.ToolApprovalRejected,
)
SECONDS = 20.0
_numbers = itertools.count(1)
_to_root: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToRoot)


def unique(kind: str) -> str:
    return f"{kind}_{next(_numbers):06d}"


def settings_with(**store: object) -> Settings:
    settings = default_settings()
    replaced = msgspec.structs.replace(settings.store, min_free_mib=0, **store)
    return msgspec.structs.replace(settings, store=replaced)


def boot_payload(home: Path, settings: Settings, *, cold: bool) -> bytes:
    boot = Boot(
        home=str(home),
        settings=encode_without_keys(settings),
        root_pid=0,
        started_at=0,
        version="test",
        cold=cold,
    )
    return msgspec.msgpack.encode(boot)


class Peer:
    """One end of a link, keeping all that came."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.closed = False
        self._news = trio.Event()
        self.link: Link

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        self.got.append(message)
        self.tell()

    def on_closed(self, link: Link) -> None:
        self.closed = True
        self.tell()

    def tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def until(self, done: Callable[[], bool]) -> None:
        with trio.fail_after(SECONDS):
            while not done():
                await self._news.wait()

    def of(self, kind: type[T]) -> list[T]:
        return [message for message in self.got if isinstance(message, kind)]

    async def call(self, message: Message, kind: type[T]) -> T:
        answer = await self.link.call(message, timeout=SECONDS)
        assert isinstance(answer, kind), answer
        return answer


class Front(Peer):
    """A front that keeps what is published, and checks that the sequences of each session have no gap."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[PublishedItem] = []
        self.last: dict[str, int] = {}
        self.bodies: dict[str, list[bytes]] = {}

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        if isinstance(message, Published):
            for item in message.items:
                self.items.append(item)
                if isinstance(item, session.EventBatch):
                    last = self.last.get(item.session_id)
                    assert last is None or item.first == last + 1
                    self.last[item.session_id] = item.first + len(item.bodies) - 1
                    self.bodies.setdefault(item.session_id, []).extend(item.bodies)
        super().on_message(link, ref, message)

    async def watch(self, session_id: str) -> session.Watched:
        """Watch; the position is taken over when the answer comes, as the next message may follow at once."""
        answers: list[session.Watched] = []

        def take(answer: object) -> None:
            assert isinstance(answer, session.Watched), answer
            self.last[session_id] = answer.row.last_sequence
            answers.append(answer)
            self.tell()

        self.link.call_nowait(session.Watch(session_id=SessionId(session_id)), take)
        await self.until(lambda: bool(answers))
        return answers[0]

    async def create(
        self, agent_id: str = "", session_id: str = "", text: str | None = None
    ) -> tuple[AgentId, SessionId]:
        agent_id = agent_id or unique("agent")
        session_id = session_id or unique("session")
        request = create_agent(agent_id, session_id, text)
        await self.call(request, agent.AgentCreated)
        return AgentId(agent_id), SessionId(session_id)

    async def send(self, session_id: str, text: str = "hello", **more: object) -> turn.Accepted:
        return await self.call(message(session_id, text, **more), turn.Accepted)

    def kinds(self, session_id: str) -> list[str]:
        return [event_kind(body) for body in self.bodies.get(session_id, [])]

    def story(self, session_id: str) -> list[str]:
        """What was published of a session, in order, in words."""
        words: list[str] = []
        for item in self.items:
            match item:
                case session.EventBatch() if item.session_id == session_id:
                    words += map(event_kind, item.bodies)
                case session.MessageChanged() if item.session_id == session_id:
                    words.append(f"message {item.state} {item.outcome}".strip())
                case session.PendingChanged() if item.session_id == session_id:
                    words.append(f"pending {item.row.state}")
                case session.SessionChanged() if item.row.spec.session_id == session_id:
                    words.append(f"session {item.row.state}")
                case agent.AgentChanged():
                    words.append(f"agent {item.status}")
                case _:
                    pass
        return words

    async def until_story(self, session_id: str, word: str) -> None:
        await self.until(lambda: word in self.story(session_id))


class Agent(Peer):
    """An agent with one session actor for each session that it opens; sends drafts and keeps those unanswered."""

    def __init__(self, agent_id: str) -> None:
        super().__init__()
        self.agent_id = AgentId(agent_id)
        self.generation: dict[str, int] = {}
        self.unanswered: dict[str, turn.Draft] = {}
        # The sequences that came; one answer covers the drafts before it.
        self.acked: dict[str, int] = {}
        self.refused: dict[str, str] = {}

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        match message:
            case turn.Acked(session_id=session_id, event_id=event_id, sequence=sequence):
                for draft in list(self.unanswered.values()):
                    if draft.session_id == session_id:
                        del self.unanswered[draft.event_id]
                        if draft.event_id == event_id:
                            self.acked[event_id] = sequence
                            break
            case turn.DraftRefused(event_id=event_id, code=code):
                self.refused[event_id] = code
            case _:
                pass
        super().on_message(link, ref, message)

    async def hello(self) -> agent.Welcome:
        request = agent.Hello(agent_id=self.agent_id, generation=1)
        return await self.call(request, agent.Welcome)

    async def open(self, session_id: str) -> turn.SessionOpened:
        request = turn.OpenSession(session_id=SessionId(session_id))
        opened = await self.call(request, turn.SessionOpened)
        self.generation[session_id] = opened.generation
        return opened

    def draft(
        self,
        found: AnyEvent | None,
        *changes: turn.Change,
        session_id: str = "",
        durable: bool = True,
        tied_to: str = "",
        event_id: str = "",
    ) -> turn.Draft:
        session_id = found.session_id if found is not None else session_id
        made = turn.Draft(
            session_id=SessionId(session_id),
            generation=self.generation.get(session_id, 0),
            event_id=EventId(found.id if found is not None else event_id or unique("evt")),
            type=str(found.__struct_config__.tag) if found is not None else "",
            turn_id=(found.turn_id or "") if found is not None else "",
            body=event_encoder.encode(found) if found is not None else b"",
            durable=durable,
            changes=changes,
            tied_to=tied_to,
        )
        self.cast(made)
        return made

    def cast(self, draft: turn.Draft) -> None:
        self.unanswered[draft.event_id] = draft
        self.link.cast(draft)

    async def answered(self) -> None:
        await self.until(lambda: not self.unanswered)

    async def begin(self, session_id: str, message_id: str, turn_id: str = "") -> TurnId:
        turn_id = turn_id or unique("turn")
        self.draft(
            user_message(session_id, turn_id),
            turn.BeginTurn(turn_id=TurnId(turn_id), message_id=MessageId(message_id)),
        )
        await self.answered()
        return TurnId(turn_id)

    async def ask(self, session_id: str, turn_id: str, call_id: str) -> turn.Draft:
        self.draft(tool_event(event.ToolCallRequested, session_id, turn_id, call_id, tool_args={}))
        asked = tool_event(
            event.ToolApprovalRequested, session_id, turn_id, call_id, tool_args={}, risk="write"
        )
        made = self.draft(asked, turn.OpenPending(row=pending_row(turn_id, call_id)))
        await self.answered()
        return made

    async def finish(self, session_id: str, turn_id: str) -> None:
        done = final(session_id, turn_id)
        self.draft(done, turn.EndTurn(turn_id=TurnId(turn_id), outcome="completed"))
        await self.answered()


class Root(Peer):
    """Root's end of the control link."""

    @property
    def started(self) -> list[str]:
        return [message.child_id for message in self.of(control.StartChild)]


class Store:
    """A store in this process, and ways to make peers of it."""

    def __init__(self, home: Path, poller: Poller, nursery: trio.Nursery) -> None:
        self.home = home
        self.poller = poller
        self.nursery = nursery
        self.actor: StoreActor
        self.root = Root()
        self.links: list[Link] = []

    async def start(self, settings: Settings | None = None, *, cold: bool = False) -> None:
        left, right = socket.socketpair()
        self.root.link = ControlLink(
            left, self.poller, name="store", decoder=_to_root, handler=self.root
        )
        start = control.Start(
            child_id="store",
            kind="store",
            generation=1,
            payload=boot_payload(self.home, settings or settings_with(), cold=cold),
        )
        quiet = Peer()
        child = ControlLink(right, self.poller, name="root", decoder=_to_root, handler=quiet)
        self.links += [self.root.link, child]
        process = Process(self.poller, child, start, self.nursery)
        self.actor = StoreActor(process)
        await self.actor.open()

    def _join(self, name: str, peer: Peer, decoder: msgspec.msgpack.Decoder[Message]) -> None:
        ours, theirs = socket.socketpair()
        peer.link = Link(ours, self.poller, name="store", decoder=decoder, handler=peer)
        self.links.append(peer.link)
        self.actor.link_up(name, 1, theirs.detach())

    def front(self) -> Front:
        front = Front()
        self._join("front", front, front_from_store)
        return front

    async def agent(self, agent_id: str, *sessions: str) -> Agent:
        peer = Agent(agent_id)
        self._join(f"agent:{agent_id}", peer, agent_from_store)
        await peer.hello()
        for session_id in sessions:
            await peer.open(session_id)
        return peer

    @property
    def connection(self) -> sqlite3.Connection:
        return self.desk.journal.db

    @property
    def desk(self) -> Desk:
        desk = self.actor._file.desk  # pyright: ignore[reportPrivateUsage] # to have it fail
        assert desk is not None
        return desk

    def report(self, agent_id: str, what: str, reason: str = "") -> None:
        report = control.ChildReport(child_id=agent_id, generation=1, event=what, reason=reason)  # type: ignore[arg-type] # one of its words
        self.actor.child_report(report)

    async def stop(self) -> None:
        await self.actor.wind_down("the test has ended", 1.0)
        for link in self.links:
            link.close()


@asynccontextmanager
async def running_store(
    home: Path, settings: Settings | None = None, *, cold: bool = False
) -> AsyncGenerator[Store, None]:
    poller = Poller()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            store = Store(home, poller, nursery)
            nursery.start_soon(poller.run)
            await store.start(settings, cold=cold)
            try:
                yield store
            finally:
                with trio.CancelScope(shield=True):
                    await store.stop()
            nursery.cancel_scope.cancel()
    poller.close()


def create_agent(agent_id: str, session_id: str, text: str | None = None) -> agent.CreateAgent:
    return agent.CreateAgent(
        spec=agent.AgentSpec(agent_id=AgentId(agent_id), created_at=1, cwd="/w"),
        session=session.SessionSpec(
            session_id=SessionId(session_id), agent_id=AgentId(agent_id), created_at=1, cwd="/w"
        ),
        message=None if text is None else message(session_id, text),
    )


def message(session_id: str, text: str = "hello", **more: object) -> turn.AcceptMessage:
    values: dict[str, object] = {
        "session_id": session_id,
        "message_id": unique("msg"),
        "stream_id": "stream",
        "accepted_at": next(_numbers),
        "content": msgspec.json.encode(text),
        "text": text,
        "sha256": text.encode(),
        **more,
    }
    return turn.AcceptMessage(**values)  # type: ignore[arg-type] # checked when it is encoded


def make(kind: type[E], session_id: str, turn_id: str = "", **fields: object) -> E:
    values: dict[str, object] = {"id": unique("evt"), "timestamp": 1.0, "session_id": session_id}
    if turn_id:
        values["turn_id"] = turn_id
    return msgspec.convert({**values, **fields}, kind)


def user_message(session_id: str, turn_id: str) -> event.UserMessage:
    return make(event.UserMessage, session_id, turn_id, content="hello")


def delta(session_id: str, turn_id: str, text: str) -> event.AgentMessageDelta:
    return make(event.AgentMessageDelta, session_id, turn_id, delta=text)


def final(session_id: str, turn_id: str) -> event.AgentMessageCompleted:
    metadata = {"final": True}
    return make(event.AgentMessageCompleted, session_id, turn_id, content="done", metadata=metadata)


def tool_event(
    kind: type[ToolE], session_id: str, turn_id: str, call_id: str, **fields: object
) -> ToolE:
    call = {"tool_name": "shell", "tool_call_id": call_id}
    return make(kind, session_id, turn_id, **call, **fields)


def pending_row(
    turn_id: str, call_id: str, kind: approval.PendingKind = "approval"
) -> approval.PendingRow:
    return approval.PendingRow(
        request_id=CallId(call_id),
        kind=kind,
        turn_id=TurnId(turn_id),
        tool_name="shell",
        body=b"{}",
        opened_at=1,
        risk="write",
        grant_keys=("shell:ls",),
    )


def event_kind(body: bytes) -> str:
    found = event_decoder.decode(body)
    return str(found.__struct_config__.tag)
