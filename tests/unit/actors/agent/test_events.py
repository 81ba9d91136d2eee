from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.actors.agent.calls import Call, Failed
from roost.actors.agent.events import EventMaker, shown
from roost.actors.agent.runner import RunnerFailed
from roost.schemas.base import CallId, EventId, SessionId, TurnId
from roost.schemas.unions import event_encoder
from roost.schemas.validation import judge

if TYPE_CHECKING:
    from roost.schemas.event import JsonObject


class FixedStamps:
    def event(self) -> EventId:
        return EventId("e")

    def call(self) -> CallId:
        return CallId("c")

    def turn(self) -> TurnId:
        return TurnId("t")

    def now(self) -> float:
        return 1.0


@pytest.mark.parametrize("text", ["", "x" * 999, "😀" * 999, "no file \udcff", "\udcff" * 999])
def test_the_text_of_an_error_always_fits(text: str) -> None:
    events = EventMaker(SessionId("s"), TurnId("t"), FixedStamps())
    call = Call(CallId("c"), "shell", {}, parallel=False)
    for made in (
        events.call_failed(call, Failed(text, "TOOL_EXECUTION_FAILED", path=text[:5])),
        events.failed(RunnerFailed(text, code="X")),
    ):
        assert made.error
        assert judge(event_encoder.encode(made), stored=False).ok


def test_what_is_no_text_in_an_error_is_replaced() -> None:
    assert shown("a\udcffb") == "a?b"


@pytest.mark.parametrize(("size", "kept"), [(1_000, True), (60_000, False)])
def test_the_calls_of_an_exhausted_turn_fit_one_event(size: int, kept: bool) -> None:
    events = EventMaker(SessionId("s"), TurnId("t"), FixedStamps())
    calls: list[JsonObject] = [
        {"id": "c", "name": "shell", "arguments": {"v": "x" * size}} for _ in range(64)
    ]
    made = events.exhausted(calls, 3)
    assert judge(event_encoder.encode(made), stored=False).ok
    assert (made.pending_tool_calls == calls) is kept
    assert [call["name"] for call in made.pending_tool_calls] == ["shell"] * 64
