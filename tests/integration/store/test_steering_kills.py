"""Messages that steer a turn are there once and in order, whatever process is killed at whatever moment."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.config.load import default_settings
from roost.schemas import event, session, turn
from roost.schemas.base import Message, Refused, SessionId, TurnId
from roost.schemas.unions import event_decoder
from roost.supervisor.errors import ActorGone, CallTimeout
from tests.support.engine import Engine, running_engine
from tests.support.store import message, settings_with

if TYPE_CHECKING:
    from pathlib import Path

    from roost.config.model import Settings

pytestmark = pytest.mark.slow

SESSION = SessionId("session")
KILLS = 3
SCRIPT: list[object] = [
    {"say": "a"},
    {"sleep_ms": 15},
    {"tool": "list_files", "args": {}},
    {"say": "b"},
    {"sleep_ms": 15},
]
STEER = [{"say": "s"}, {"sleep_ms": 5}]


def settings() -> Settings:
    made = settings_with()
    agents = msgspec.structs.replace(default_settings().agents, nice=0, sandbox="dangerFullAccess")
    approvals = msgspec.structs.replace(made.approvals, ask="never")
    return msgspec.structs.replace(made, agents=agents, approvals=approvals)


class Client:
    """Starts turns and steers them, each request again until it is answered; remembers what was accepted, in order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.said: list[str] = []
        self.refused = 0
        self.turns = 0
        self.done = False

    async def run(self) -> None:
        while not self.done:
            self.turns += 1
            turn_id = TurnId(f"turn_{self.turns}")
            script = msgspec.json.encode({"script": SCRIPT})
            first = message(SESSION, f"start {self.turns}", metadata=script)
            if not await self.ask(turn.StartTurn(message=first, turn_id=turn_id), first.text):
                await trio.sleep(0.01)
                continue
            number = 0
            while number < 4 and not self.done:
                number += 1
                script = msgspec.json.encode({"script": STEER})
                more = message(SESSION, f"steer {self.turns}.{number}", metadata=script)
                if not await self.ask(turn.SteerTurn(message=more, turn_id=turn_id), more.text):
                    break
                await trio.sleep(0.004)

    async def ask(self, request: Message, text: str) -> bool:
        while True:
            try:
                answer = await self.engine.front.link.call(request, timeout=10)
            except (ActorGone, CallTimeout):
                await trio.sleep(0.002)
                continue
            if isinstance(answer, Refused):
                self.refused += 1
                assert answer.code in {"TURN_IN_PROGRESS", "NO_ACTIVE_TURN", "TURN_ID_MISMATCH"}
                return False
            assert isinstance(answer, turn.Accepted), answer
            self.said.append(text)
            return True


async def events(engine: Engine) -> list[event.AnyEvent]:
    found: list[event.AnyEvent] = []
    while True:
        page = await engine.front.call(
            session.ReadPage(session_id=SESSION, after=len(found)), session.Page
        )
        if not page.bodies:
            return found
        found += map(event_decoder.decode, page.bodies)


async def until_idle(engine: Engine) -> None:
    with trio.fail_after(15):
        while True:
            row = await engine.front.call(
                session.GetSession(session_id=SESSION), session.SessionRow
            )
            if row.status == "idle":
                return
            await trio.sleep(0.01)


@pytest.mark.parametrize("what", ["agent", "store", "both"])
async def test_every_accepted_message_is_in_the_log_once_and_in_order(
    tmp_path: Path, what: str
) -> None:
    chance = random.Random(what)
    async with running_engine(tmp_path, settings(), SESSION) as engine:
        client = Client(engine)
        kill = {"agent": engine.kill_agent, "store": engine.kill_store, "both": engine.kill_both}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            for _ in range(KILLS):
                await trio.sleep(chance.uniform(0.01, 0.15))
                await kill[what]()
            client.done = True
        await until_idle(engine)
        log = await events(engine)
    users = [found for found in log if isinstance(found, event.UserMessage)]
    assert [found.content for found in users] == client.said
    assert len(client.said) > KILLS
    check_turns(log)


def check_turns(log: list[event.AnyEvent]) -> None:
    """See that each turn has one end, behind all that was said in it, and no message before an open call's end."""
    ended: set[str] = set()
    open_calls: set[str] = set()
    for found in log:
        turn_id = found.turn_id or ""
        assert turn_id not in ended, "something came behind the end of its turn"
        match found:
            case event.ToolCallRequested(tool_call_id=call_id):
                open_calls.add(call_id)
            case event.ToolCallCompleted(tool_call_id=call_id):
                open_calls.discard(call_id)
            case event.ToolCallFailed(tool_call_id=call_id):
                open_calls.discard(call_id)
            case event.UserMessage():
                assert not open_calls
            case _ if event.is_final(found):
                ended.add(turn_id)
            case _:
                pass
    turns = {found.turn_id for found in log if isinstance(found, event.UserMessage)}
    assert turns == ended
