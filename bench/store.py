"""A real store in a process of its own, with root, a front and agents played over blocking sockets."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import uuid_utils

from roost.config.load import default_settings
from roost.config.model import encode_without_keys
from roost.schemas import agent, control, session, turn
from roost.schemas.base import AgentId, EventId, Message, MessageId, SessionId, TurnId
from roost.schemas.boot import Boot
from roost.schemas.frame import HEADER, REPLY, FrameReader
from roost.schemas.unions import agent_from_store, front_from_store

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

READ_BYTES = 64 * 1024
TIMEOUT = 60.0
PROGRAM = """
import sys, trio
from roost.actors.store.actor import StoreActor
from roost.supervisor.actor import serve_process
trio.run(serve_process, int(sys.argv[1]), {"store": StoreActor})
"""

T = TypeVar("T", bound=Message)
_encoder = msgspec.msgpack.Encoder()
_from_child: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToRoot)


def frame(message: Message, ref: int = 0) -> bytes:
    """Return a message as its sender's link writes it."""
    body = _encoder.encode(message)
    return HEADER.pack(len(body), ref) + body


class Wire:
    """One end of a link, read and written by hand."""

    def __init__(self, sock: socket.socket, decoder: msgspec.msgpack.Decoder[Message]) -> None:
        sock.settimeout(TIMEOUT)
        self.sock = sock
        self.got: deque[Message] = deque()
        self._decoder = decoder
        self._reader = FrameReader()
        self._last_ref = 0

    def cast(self, message: Message) -> None:
        self.sock.sendall(frame(message))

    def call(self, message: Message, kind: type[T]) -> T:
        """Return the answer; what comes before it is kept in `got`."""
        self._last_ref = ref = self._last_ref + 1
        self.sock.sendall(frame(message, ref))
        answer: list[T] = []
        while not answer:
            for answered, found in self.read():
                if answered == ref | REPLY:
                    assert isinstance(found, kind), found
                    answer.append(found)
                else:
                    self.got.append(found)
        return answer[0]

    def calls(self, messages: Sequence[Message], kind: type[T]) -> list[T]:
        """Return the answers to calls that are under way together."""
        first = self._last_ref + 1
        self._last_ref += len(messages)
        frames = [frame(message, first + number) for number, message in enumerate(messages)]
        self.sock.sendall(b"".join(frames))
        answers: dict[int, T] = {}
        while len(answers) < len(messages):
            for ref, found in self.read():
                if ref & REPLY:
                    assert isinstance(found, kind), found
                    answers[ref & ~REPLY] = found
        return [answers[first + number] for number in range(len(messages))]

    def until(self, kind: type[T]) -> T:
        """Return the next message of a kind that is cast; others are dropped."""
        while True:
            while self.got:
                found = self.got.popleft()
                if isinstance(found, kind):
                    return found
            self.got += [found for _, found in self.read()]

    def read(self) -> list[tuple[int, Message]]:
        """Read once and return what is complete."""
        data = self.sock.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the store closed the link")
        return self.take(data)

    def take(self, data: bytes) -> list[tuple[int, Message]]:
        return [(ref, self._decoder.decode(body)) for ref, body in self._reader.feed(data)]


class Writer(Wire):
    """An agent's link, with one session and its turn."""

    agent_id: AgentId
    session_id: SessionId
    generation: int
    turn_id: TurnId
    message_id: MessageId

    def draft(
        self, kind: str, *changes: turn.Change, durable: bool = True, **fields: object
    ) -> turn.Draft:
        """Return a new event of the turn."""
        event_id = EventId(str(uuid_utils.uuid7()))
        body: dict[str, object] = {
            "type": kind,
            "id": event_id,
            "timestamp": time.time(),
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            **fields,
        }
        body["metadata"] = {}
        return turn.Draft(
            session_id=self.session_id,
            generation=self.generation,
            event_id=event_id,
            type=kind,
            turn_id=self.turn_id,
            body=msgspec.json.encode(body),
            durable=durable,
            changes=changes,
        )

    def begin(self) -> turn.Draft:
        """Return the draft that begins the turn."""
        change = turn.BeginTurn(turn_id=self.turn_id, message_id=self.message_id)
        return self.draft("user.message", change, content="hello")

    def finish(self, text: str) -> turn.Draft:
        """Return the draft that ends the turn."""
        change = turn.EndTurn(turn_id=self.turn_id, outcome="completed")
        return self.draft("agent.message.completed", change, content=text)


class StoreUnderTest:
    """The store's process and root's end of its control link."""

    def __init__(self, home: Path, process: subprocess.Popen[bytes], root: Wire) -> None:
        self.home = home
        self.process = process
        self.root = root
        self.wires: list[Wire] = [root]
        self.front = Wire(self._join("front"), front_from_store)
        self.wires.append(self.front)

    def _join(self, name: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        handle = frame(control.Handle(name=name, generation=1))
        socket.send_fds(self.root.sock, [handle], [theirs.fileno()])
        theirs.close()
        return ours

    def writer(self, number: int) -> Writer:
        """Create an agent with a session, and join it."""
        agent_id, session_id = AgentId(f"agent_{number:04d}"), SessionId(f"session_{number:04d}")
        self.front.call(_creation(agent_id, session_id), agent.AgentCreated)
        writer = Writer(self._join(f"agent:{agent_id}"), agent_from_store)
        self.wires.append(writer)
        writer.call(agent.Hello(agent_id=agent_id, generation=1), agent.Welcome)
        opened = writer.call(turn.OpenSession(session_id=session_id), turn.SessionOpened)
        writer.agent_id, writer.session_id = agent_id, session_id
        writer.generation = opened.generation
        return writer

    def accept(self, writers: list[Writer]) -> None:
        """Have a message accepted for each of the sessions; it is what their next turn begins with."""
        messages: list[Message] = [accept_message(writer.session_id) for writer in writers]
        for writer, accepted in zip(
            writers, self.front.calls(messages, turn.Accepted), strict=True
        ):
            writer.message_id = accepted.message_id
            writer.turn_id = TurnId(f"turn_{uuid_utils.uuid7()}")

    def leave(self, writers: list[Writer]) -> None:
        """Close the links of agents that have nothing more to write."""
        for writer in writers:
            writer.sock.close()
            self.wires.remove(writer)


def _creation(agent_id: AgentId, session_id: SessionId) -> agent.CreateAgent:
    return agent.CreateAgent(
        spec=agent.AgentSpec(agent_id=agent_id, created_at=1, cwd="/"),
        session=session.SessionSpec(
            session_id=session_id, agent_id=agent_id, created_at=1, cwd="/"
        ),
    )


def accept_message(session_id: SessionId) -> turn.AcceptMessage:
    return turn.AcceptMessage(
        session_id=session_id,
        message_id=MessageId(f"msg_{uuid_utils.uuid7()}"),
        stream_id="stream",
        accepted_at=1,
        content=b'"hello"',
        text="hello",
        sha256=b"hello",
    )


@contextlib.contextmanager
def running_store(at: Path | None = None) -> Generator[StoreUnderTest]:
    """Start a store with the settings as shipped, in a home or a temporary one, and end it as root does."""
    home = at or Path(tempfile.mkdtemp(prefix="roost-store-"))
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    theirs.close()
    root = Wire(ours, _from_child)
    boot = Boot(
        home=str(home),
        settings=encode_without_keys(default_settings()),
        root_pid=0,
        started_at=0,
        version="bench",
        cold=True,
    )
    payload = msgspec.msgpack.encode(boot)
    root.cast(control.Start(child_id="store", kind="store", generation=1, payload=payload))
    try:
        root.until(control.Ready)
        store = StoreUnderTest(home, process, root)
        yield store
        root.cast(control.Stop(reason="measured"))
        process.wait(TIMEOUT)
        for wire in store.wires:
            wire.sock.close()
    finally:
        process.kill()
        process.wait()
        if at is None:
            shutil.rmtree(home, ignore_errors=True)
