"""What a terminal asks its user, and when; without a daemon and without a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import msgspec
import trio
import trio.testing

from roost.actors.client.connection import Connection, Notification
from roost.actors.client.interactive import CHOICES, Conversation
from roost.actors.client.render import Terminal

if TYPE_CHECKING:
    from roost.actors.client.prompts import LineInput

IDLE: tuple[str, dict[str, object]] = (
    "agent_status",
    {"status": "idle", "metadata": {"derived": True}},
)


class Keyboard:
    """Lines that are typed when a test says so."""

    def __init__(self) -> None:
        self.type, self._typed = trio.open_memory_channel[str](10)

    async def read_line(self) -> str | None:
        return await self._typed.receive()


class Daemon(Connection):
    """A connection whose other side is the test: `history` is told before an attach is answered."""

    def __init__(self) -> None:
        self._notify, self.notifications = trio.open_memory_channel[Notification](100)
        self.history: list[tuple[str, dict[str, object]]] = []
        self.asked: list[tuple[str, dict[str, object]]] = []

    def tell(self, method: str, params: dict[str, object]) -> None:
        body = json.dumps({"sessionId": "s", **params}).encode()
        self._notify.send_nowait(Notification(method=f"event.{method}", params=msgspec.Raw(body)))

    def ask(self, request_id: str) -> None:
        self.tell("permission_request", {"requestId": request_id, "toolName": "shell"})

    async def call_raw(self, method: str, params: object, *, within: float = 1.0) -> bytes:
        await trio.lowlevel.checkpoint()
        self.asked.append((method, cast("dict[str, object]", params)))
        if method == "session.attach":
            for name, said in self.history:
                self.tell(name, said)
            return b'{"sessionId":"s","attachmentId":"a"}'
        if method == "message.send":
            return b'{"messageId":"m"}'
        return b'{"requestId":"c","decision":"approved"}'


def asks(request_id: str) -> tuple[str, dict[str, object]]:
    return ("permission_request", {"requestId": request_id, "toolName": "shell"})


def settles(request_id: str) -> tuple[str, dict[str, object]]:
    payload = {"requestId": request_id, "decision": "approved"}
    return ("session_event", {"event": {"type": "permission_resolved", "payload": payload}})


class House:
    """A conversation with everything around it."""

    def __init__(self) -> None:
        self.daemon = Daemon()
        self.keyboard = Keyboard()
        self.said: list[str] = []
        terminal = Terminal(out=self.said.append, err=self.said.append)
        lines = cast("LineInput", self.keyboard)
        self.talk = Conversation(self.daemon, terminal, lines=lines, stay=True)

    @property
    def prompts(self) -> int:
        return "".join(self.said).count(CHOICES)

    def decided(self) -> list[object]:
        return [p["requestId"] for method, p in self.daemon.asked if method == "tool.approve"]


async def test_what_history_has_decided_is_not_asked_again() -> None:
    house = House()
    house.daemon.history = [
        asks("settled"),
        settles("settled"),
        asks("over"),
        IDLE,
        asks("waits"),
        asks("waits"),
    ]
    with trio.fail_after(5):
        async with house.talk.open(signals=False):
            await house.talk.attach("s", "me")
            await trio.testing.wait_all_tasks_blocked()
            assert house.prompts == 1
            await house.keyboard.type.send("y")
            await trio.testing.wait_all_tasks_blocked()
            assert house.decided() == ["waits"]
            assert house.prompts == 1


async def test_two_approvals_in_a_row_are_both_asked_though_a_line_could_be_typed() -> None:
    house = House()
    with trio.fail_after(5):
        async with house.talk.open(signals=False) as nursery:
            await house.talk.attach("s", "me")
            nursery.start_soon(house.talk.chat)
            await trio.testing.wait_all_tasks_blocked()
            house.daemon.ask("one")
            house.daemon.ask("two")
            for _ in range(2):
                await trio.testing.wait_all_tasks_blocked()
                await house.keyboard.type.send("y")
            await trio.testing.wait_all_tasks_blocked()
            assert house.decided() == ["one", "two"]
            await house.keyboard.type.send("hello")
            await trio.testing.wait_all_tasks_blocked()
            assert house.daemon.asked[-1][0] == "message.send"


async def test_an_approval_that_comes_with_the_wait_for_a_line_is_asked() -> None:
    house = House()
    with trio.fail_after(5):
        async with house.talk.open(signals=False) as nursery:
            await house.talk.attach("s", "me")
            house.daemon.ask("one")
            nursery.start_soon(house.talk.chat)
            await trio.testing.wait_all_tasks_blocked()
            assert house.prompts == 1
            house.daemon.tell(*settles("one"))
            house.daemon.ask("two")
            await trio.testing.wait_all_tasks_blocked()
            assert house.prompts == 2
            await house.keyboard.type.send("y")
            await trio.testing.wait_all_tasks_blocked()
            assert house.decided() == ["two"]
