"""Runs a whole agent once, without a daemon, so that its forks find everything ready.

What the first turn of a process makes and changes (caches, decoders, specialised code) is made before the fork and
shared by all; and new objects of a child get pages of their own instead of gaps in shared ones.
"""

from __future__ import annotations

import gc
import os
import re
import socket
import sys
import tempfile
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from roost.actors.agent.actor import AgentActor
from roost.config.load import default_settings
from roost.config.model import encode_without_keys
from roost.schemas import control
from roost.schemas.agent import AgentRow, AgentSpec, Hello, Welcome
from roost.schemas.base import AgentId, Message, MessageId, SessionId
from roost.schemas.boot import Boot
from roost.schemas.turn import (
    Acked,
    Bell,
    Draft,
    EndTurn,
    OpenSession,
    QueuedMessage,
    SessionOpened,
)
from roost.schemas.unions import store_from_agent
from roost.supervisor.actor import serve_process
from roost.supervisor.link import Link
from roost.supervisor.poller import Poller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TURNS: Final = 10
TIMEOUT: Final = 10.0
AGENT: Final = AgentId("rehearsal")
SESSION: Final = SessionId("rehearsal")
SMALLEST_BYTES_OBJECT: Final = 33

_from_agent: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToRoot)
_size_class = re.compile(r"^\s*\d+\s+(\d+)\s+\d+\s+\d+\s+(\d+)\s*$", re.MULTILINE)
_fillers: list[list[object]] = []


def rehearse() -> None:
    """Run an agent through some turns; nothing of it is left but what its forks share."""
    _pack_code(_code_of(_rehearse))
    trio.run(_rehearse)
    gc.collect()
    _fill_gaps()


def _code_of(main: Callable[[], Awaitable[None]]) -> dict[int, CodeType]:
    """Run something in an event loop and return the code that ran, by identity."""
    ran: dict[int, CodeType] = {}

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            ran[id(frame.f_code)] = frame.f_code

    sys.setprofile(note)
    try:
        trio.run(main)
    finally:
        sys.setprofile(None)
    return ran


def _pack_code(ran: dict[int, CodeType]) -> None:
    """Move the code that agents run onto pages of its own.

    Every call counts references in its code object, so a page with one that runs is copied in each child; between the
    rest of their modules they lie on three times as many pages (0.4 MiB of private memory a process). Code that trio
    shields from KeyboardInterrupt loses the shield by this; children have a session and handlers of their own.
    """
    functions = [found for found in gc.get_objects() if isinstance(found, FunctionType)]
    for function in functions:
        if id(function.__code__) in ran:
            function.__code__ = function.__code__.replace()


async def _rehearse() -> None:
    poller = Poller()
    near, far = socket.socketpair()
    near_store, far_store = socket.socketpair()
    root = Link(far, poller, name="agent", decoder=_from_agent, handler=_Root())
    store_handler = _Store(root)
    store = Link(far_store, poller, name="agent", decoder=store_from_agent, handler=store_handler)
    settings = default_settings()
    agents = msgspec.structs.replace(settings.agents, nice=0)
    boot = Boot(
        home=tempfile.gettempdir(),
        settings=encode_without_keys(msgspec.structs.replace(settings, agents=agents)),
        root_pid=os.getppid(),
        started_at=0,
        version="",
    )
    start = control.Start(
        child_id=AGENT, kind="agent", generation=1, payload=msgspec.msgpack.encode(boot)
    )
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            root.cast(start)
            root.pass_handle(control.Handle(name="store", generation=1), near_store)
            await serve_process(near.detach(), {"agent": _RehearsingAgent})
            nursery.cancel_scope.cancel()
    store.close()
    root.close()
    poller.close()


class _RehearsingAgent(AgentActor):
    """An agent that leaves the process as it is: it belongs to the zygote."""

    def own_process(self) -> None:
        pass

    async def wind_down(self, reason: str, grace: float) -> None:
        await super().wind_down(reason, grace)
        self.close()


class _Root:
    def on_message(self, link: Link, ref: int, message: Message) -> None:
        pass

    def on_closed(self, link: Link) -> None:
        pass


class _Store:
    """Gives one message after the other and writes nothing down."""

    def __init__(self, root: Link) -> None:
        self._root = root
        self._left = TURNS

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        match message:
            case Hello():
                spec = AgentSpec(agent_id=AGENT, created_at=0, cwd="/", provider="script")
                row = AgentRow(spec=spec, status="idle")
                link.reply(ref, Welcome(agent=row, sessions=(SESSION,)))
            case OpenSession():
                link.reply(ref, self._opened())
            case Draft(event_id=event_id, changes=changes):
                link.cast(Acked(session_id=SESSION, event_id=event_id, sequence=1))
                if any(isinstance(change, EndTurn) for change in changes):
                    self._turn_ended(link)
            case _:
                pass

    def on_closed(self, link: Link) -> None:
        pass

    def _opened(self) -> SessionOpened:
        return SessionOpened(
            session_id=SESSION,
            agent_id=AGENT,
            generation=1,
            last_sequence=1,
            cleared_after=0,
            cwd="/",
            metadata=b"{}",
            turn=None,
            inbox=(self._message(),),
        )

    def _turn_ended(self, link: Link) -> None:
        self._left -= 1
        if self._left:
            link.cast(Bell(session_id=SESSION, items=(self._message(),)))
        else:
            self._root.cast(control.Stop(reason="rehearsed"))

    def _message(self) -> QueuedMessage:
        message_id = MessageId(f"rehearsal-{self._left}")
        return QueuedMessage(message_id=message_id, stream_id="", accepted_at=0, text="hello")


def _fill_gaps() -> None:
    """Use up the free blocks of the allocator's pages; a child would write into them and so copy each page."""
    _fillers.clear()
    for size, count in _free_blocks():
        length = size - SMALLEST_BYTES_OBJECT
        if length > 1:
            _fillers.append([bytes(length) for _ in range(count)])


def _free_blocks() -> list[tuple[int, int]]:
    """Return the sizes of the allocator's blocks, and how many of each are free."""
    if not hasattr(sys, "_debugmallocstats"):
        return []
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()  # pyright: ignore[reportPrivateUsage] # CPython says it nowhere else
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        file.seek(0)
        text = file.read().decode()
    return [(int(size), int(free)) for size, free in _size_class.findall(text)]
