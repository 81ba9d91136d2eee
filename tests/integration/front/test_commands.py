"""The front's part in commands of clients, with a service that says what the test wants."""

from __future__ import annotations

import base64
import socket
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio
import trio.testing

from roost.actors.errors import DaemonError, InvalidArgument
from roost.schemas.commands import (
    AbandonCommand,
    CommandEnded,
    CommandOutput,
    CommandPiece,
    CommandStarted,
    InputRoom,
    InputTaken,
    OutputTaken,
    ResizeCommand,
    StartCommand,
    WindowSize,
    WriteCommand,
)
from roost.schemas.control import StartService
from roost.schemas.unions import commands_from_front
from roost.supervisor.link import Link
from tests.support.front import open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

    from roost.schemas.base import Message
    from tests.support.front import FrontHouse, Json

START: Json = {
    "command": ["cat"],
    "processId": "p",
    "streamStdin": True,
    "streamStdoutStderr": True,
    "sandboxPolicy": {"type": "dangerFullAccess"},
}
HEAD = b'{"jsonrpc":"2.0","method":"commandExec.outputDelta","params":{"processId":"p",'
LINE = HEAD + b'"stream":"stdout","deltaBase64":"eA==","capReached":false}}\n'
NOT_ACTIVE = 'no active commandExec session for process id "p"'
RESIZE: Json = {"processId": "p", "size": {"rows": 7, "cols": 91}}
RESULT = b'{"exitCode":0,"stdout":"","stderr":""}'


class FakeCommands:
    """The service's end of its link: starts everything, and keeps what else is said to it."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.has_room = True
        self.refuses = False
        self.news = trio.Event()
        self.link: Link

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Answer a call."""
        self.heard.append(message)
        self.news.set()
        self.news = trio.Event()
        if isinstance(message, StartCommand):
            link.reply(ref, CommandStarted())
        elif isinstance(message, WriteCommand) and self.refuses:
            link.reply(ref, InvalidArgument("the command has ended").refused())
        elif isinstance(message, WriteCommand):
            link.reply(ref, InputTaken(taken=self.has_room))

    def on_closed(self, link: Link) -> None:
        """Nothing is lost with it."""

    async def hear(self, kind: type[Message], count: int = 1) -> Message:
        """Return the last message of a kind once so many have come."""
        while len(found := [one for one in self.heard if isinstance(one, kind)]) < count:
            await self.news.wait()
        return found[-1]

    def say(self, *messages: Message) -> None:
        """Send messages to the front."""
        for message in messages:
            self.link.cast(message)


def join(house: FrontHouse) -> FakeCommands:
    """Give the front a link to a service; return that."""
    service = FakeCommands()
    ours, theirs = socket.socketpair()
    service.link = Link(
        ours, house.poller, name="front", decoder=commands_from_front, handler=service
    )
    house.front.link_up("commands", 1, theirs.detach())
    return service


async def test_the_answer_follows_the_output_and_is_the_services_own(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            service = join(house)
            number = await client.send("commandExec.start", START)
            await service.hear(StartCommand)
            service.say(
                CommandOutput(number=1, connection=1, line=LINE),
                CommandPiece(number=1, data=b'{"exitCode":0,'),
                CommandEnded(number=1, result=b'"stdout":"","stderr":""}'),
            )
            answer = await client.answer(number)
            assert answer["result"] == {"exitCode": 0, "stdout": "", "stderr": ""}
            assert len(client.events) == 1
            taken = await service.hear(OutputTaken)
            assert taken == OutputTaken(connection=1, size=len(LINE))


async def test_the_service_is_started_and_what_was_cancelled_meanwhile_is_not_asked_of_it(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            first = await client.send("commandExec.start", START)
            second = await client.send("commandExec.start", {**START, "processId": "q"})
            assert (await client.call("request.cancel", {"requestId": first}))["cancelled"]
            assert "error" in await client.answer(first)
            while StartService(name="commands") not in house.root.heard:
                await trio.testing.wait_all_tasks_blocked()
            service = join(house)
            started = await service.hear(StartCommand)
            assert isinstance(started, StartCommand)
            assert started.process_id == "q"
            service.say(CommandEnded(number=started.number, result=RESULT))
            await client.answer(second)
            assert sum(isinstance(one, StartCommand) for one in service.heard) == 1


async def test_when_the_service_is_lost_every_command_is_answered(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            service = join(house)
            numbers = [
                await client.send("commandExec.start", {**START, "processId": name})
                for name in ("p", "q")
            ]
            await service.hear(StartCommand, 2)
            service.link.close()
            for number in numbers:
                error: Json = (await client.answer(number))["error"]  # type: ignore[assignment]
                assert error["code"] == -32603
            again = join(house)
            number = await client.send("commandExec.start", START)
            started = await again.hear(StartCommand)
            assert isinstance(started, StartCommand)
            again.say(CommandEnded(number=started.number, result=RESULT))
            assert (await client.answer(number))["result"] == msgspec.json.decode(RESULT)


async def test_a_long_write_waits_piece_by_piece_for_room(tmp_path: Path) -> None:
    data = bytes(range(256)) * 2_000
    delta = base64.b64encode(data).decode()
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            service = join(house)
            await client.send("commandExec.start", START)
            await service.hear(StartCommand)
            service.has_room = False
            write: Json = {"processId": "p", "deltaBase64": delta, "closeStdin": True}
            number = await client.send("commandExec.write", write)
            refused = await service.hear(WriteCommand)
            service.has_room = True
            service.say(InputRoom(number=1))
            assert (await client.answer(number))["result"] == {}
            pieces = [one for one in service.heard if isinstance(one, WriteCommand)]
            assert pieces[0] == pieces[1] == refused
            assert b"".join(piece.data for piece in pieces[1:]) == data
            assert [piece.close for piece in pieces[1:]] == [False, True]


async def test_a_write_that_waits_is_answered_when_its_command_ends(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            service = join(house)
            started = await client.send("commandExec.start", START)
            await service.hear(StartCommand)
            service.has_room = False
            number = await client.send(
                "commandExec.write", {"processId": "p", "deltaBase64": "eA=="}
            )
            await service.hear(WriteCommand)
            service.say(CommandEnded(number=1, result=RESULT))
            await client.answer(started)
            error: Json = (await client.answer(number))["error"]  # type: ignore[assignment]
            assert error["message"] == NOT_ACTIVE


@pytest.mark.parametrize("how", ["cancelled", "lost", "refused"])
async def test_a_write_whose_command_goes_away_is_told_that_there_is_none(
    tmp_path: Path, how: str
) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            service = join(house)
            started = await client.send("commandExec.start", START)
            await service.hear(StartCommand)
            service.has_room = False
            service.refuses = how == "refused"
            number = await client.send(
                "commandExec.write", {"processId": "p", "deltaBase64": "eA=="}
            )
            await service.hear(WriteCommand)
            if how == "cancelled":
                await client.send("request.cancel", {"requestId": started})
            elif how == "lost":
                service.link.close()
            error: Json = (await client.answer(number))["error"]  # type: ignore[assignment]
            assert (error["code"], error["message"]) == (-32602, NOT_ACTIVE)
            assert len([one for one in service.heard if isinstance(one, WriteCommand)]) == 1


async def test_a_new_size_does_not_wait_for_what_is_typed(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            service = join(house)
            await client.send("commandExec.start", {**START, "tty": True})
            await service.hear(StartCommand)
            service.has_room = False
            write: Json = {"processId": "p", "deltaBase64": "eA=="}
            writes = [await client.send("commandExec.write", write) for _ in range(3)]
            await service.hear(WriteCommand)
            resized = await client.send("commandExec.resize", RESIZE)
            assert (await client.answer(resized))["result"] == {}
            said = await service.hear(ResizeCommand)
            assert said == ResizeCommand(number=1, size=WindowSize(rows=7, cols=91))
            service.say(CommandEnded(number=1, result=RESULT))
            for number in writes:
                error: Json = (await client.answer(number))["error"]  # type: ignore[assignment]
                assert error["message"] == NOT_ACTIVE


async def test_a_new_size_right_behind_a_start_comes_after_it(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            service = join(house)
            await client.send("commandExec.start", {**START, "tty": True})
            resized = await client.send("commandExec.resize", RESIZE)
            assert (await client.answer(resized))["result"] == {}
            await service.hear(ResizeCommand)
            kinds = [type(message) for message in service.heard]
            assert kinds == [StartCommand, ResizeCommand]


async def test_output_that_a_client_does_not_take_is_not_told_until_it_leaves(
    tmp_path: Path,
) -> None:
    line = LINE[:-4] + b" " * 100_000 + LINE[-4:]
    with trio.fail_after(10):
        async with open_front(tmp_path) as house:
            service = join(house)
            async with open_client(house) as client:
                await client.send("commandExec.start", START)
                await service.hear(StartCommand)
                service.say(*[CommandOutput(number=1, connection=1, line=line)] * 20)
                await trio.testing.wait_all_tasks_blocked()
                assert _told(service) < 20 * len(line)
            await service.hear(AbandonCommand)
            while _told(service) < 20 * len(line):
                await service.news.wait()
            assert _told(service) == 20 * len(line)
            service.say(CommandOutput(number=1, connection=1, line=line))
            while _told(service) < 21 * len(line):
                await service.news.wait()


async def test_who_takes_no_notifications_cannot_stream(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house:
            service = join(house)
            handle = await house.front.inprocess.open()
            with pytest.raises(DaemonError) as caught:
                await handle.request("commandExec.start", START)
            text = "commandExec.start streaming requires daemon connection notifications"
            assert caught.value.message == text
            assert service.heard == []
            handle.close()


def _told(service: FakeCommands) -> int:
    return sum(one.size for one in service.heard if isinstance(one, OutputTaken))
