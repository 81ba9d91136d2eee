from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
import pytest

from roost.actors.errors import DaemonError
from roost.actors.front import thread_turns
from roost.actors.front.promise import Promise, start
from roost.actors.front.thread_notes import View
from roost.actors.front.timers import Timers
from roost.schemas.base import MessageId
from roost.schemas.model import ModelInfo, Models
from roost.schemas.thread import (
    ModelListParams,
    NoParams,
    TurnInterruptParams,
    TurnStartParams,
    TurnSteerParams,
    UserInput,
)
from roost.schemas.thread_results import SchemaExportResponse
from roost.schemas.turn import (
    Accepted,
    InterruptTurn,
    StartTurn,
    SteerTurn,
    TurnCancelled,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from roost.actors.front.router import Call
    from roost.schemas.base import Message

T = TypeVar("T")
Json = dict[str, object]

HELLO = [UserInput(text="Hello")]
ONE = ModelInfo(provider="p", id="m", name="M", context_length=8, tools=False)


class Answers:
    """The other processes: each call is answered with what is set for its kind."""

    def __init__(self) -> None:
        self.asked: list[Message] = []
        self.line_bytes = 0
        self.answers: dict[str, Message | DaemonError] = {"ListModels": Models(models=(ONE,))}

    def ask(self, message: Message, _shape: object) -> Promise[Message]:
        """Answer a call, or refuse it."""
        self.asked.append(message)
        promise: Promise[Message] = Promise()
        answer = self.answers.get(type(message).__name__, DaemonError("NO_ANSWER", "none is set"))
        if isinstance(answer, DaemonError):
            promise.fail(answer)
        else:
            promise.resolve(answer)
        return promise

    ask_bulky = ask

    @property
    def call(self) -> Call:
        """A request whose handler gets to these."""
        threads = SimpleNamespace(find=nobody)
        services = SimpleNamespace(
            store=self,
            providers=self,
            threads=threads,
            timers=Timers(),
            next_stamp=lambda: 1_000,
        )
        caller = SimpleNamespace(thread=SimpleNamespace(view=View(line_bytes=self.line_bytes)))
        return cast("Call", SimpleNamespace(services=services, caller=caller))


def nobody(_thread_id: str) -> None:
    """Follow no thread."""


def outcome(work: Coroutine[Promise[object], None, T]) -> T:
    """Run a handler to its end."""
    found: list[T | DaemonError] = []
    start(work, found.append)
    (result,) = found
    if isinstance(result, DaemonError):
        raise result
    return result


def accepted(**members: object) -> Accepted:
    return msgspec.structs.replace(
        Accepted(message_id=MessageId("m"), stream_id="m", accepted_at=1), **members
    )


def refusal(work: Coroutine[Promise[object], None, object]) -> tuple[str, str, dict[str, object]]:
    with pytest.raises(DaemonError) as caught:
        outcome(work)
    return caught.value.code, caught.value.message, caught.value.data


@pytest.mark.parametrize(
    "said", [[], [UserInput(text="")], [UserInput(text=""), UserInput(text="")]]
)
async def test_nothing_said_is_refused_before_anybody_is_asked(said: list[UserInput]) -> None:
    others = Answers()
    begun = thread_turns.start_turn(others.call, TurnStartParams(thread_id="t", input=said))
    assert refusal(begun)[0] == "EMPTY_INPUT"
    steered = thread_turns.steer_turn(
        others.call, TurnSteerParams(thread_id="t", turn_id="u", input=said)
    )
    assert refusal(steered)[:2] == ("EMPTY_INPUT", "input must not be empty")
    assert others.asked == []


async def test_what_is_said_in_pieces_is_one_message_and_its_pieces_are_kept() -> None:
    others = Answers()
    others.answers["StartTurn"] = accepted(planned="turn_1")
    said = [UserInput(text="a"), UserInput(text=""), UserInput(text="b")]
    params = TurnStartParams(thread_id="t", input=said)
    turn = outcome(thread_turns.start_turn(others.call, params)).turn
    (request,) = others.asked
    assert isinstance(request, StartTurn)
    assert (request.message.text, request.input) == ("a\n\nb", ("a", "", "b"))
    assert request.turn_id.startswith("turn_")
    assert [piece.text for piece in turn.input] == ["a", "", "b"]
    assert (turn.id, turn.run_id, turn.thread_id) == ("turn_1", "turn_1", "t")
    assert (turn.status, turn.started_at_ms) == ("queued", msgspec.UNSET)


async def test_a_message_sent_again_is_answered_with_what_became_of_it() -> None:
    others = Answers()
    params = TurnStartParams(thread_id="t", input=HELLO, client_message_id="c")
    for outcome_, error, status in (
        ("completed", "", "completed"),
        ("failed", "no", "failed"),
        ("failed", "Agent turn interrupted (hung)", "interrupted"),
        ("interrupted", "", "interrupted"),
    ):
        others.answers["StartTurn"] = accepted(
            duplicate=True, state="ended", turn_id="u", outcome=outcome_, error=error
        )
        turn = outcome(thread_turns.start_turn(others.call, params)).turn
        assert (turn.id, turn.status) == ("u", status)
        assert (turn.error is msgspec.UNSET) == (status != "failed")
    first = others.asked[0]
    assert isinstance(first, StartTurn)
    assert first.message.client_message_id == first.message.message_id == "c"


async def test_only_a_model_that_no_provider_tells_of_is_unknown() -> None:
    others = Answers()
    others.answers["StartTurn"] = accepted(planned="u")
    for model in ("m", "x", "", None):
        params = TurnStartParams(thread_id="t", input=HELLO, model=model)
        outcome(thread_turns.start_turn(others.call, params))
    started = [request for request in others.asked if isinstance(request, StartTurn)]
    assert [request.model for request in started] == ["p/m", "x", "", ""]
    assert [request.model_known for request in started] == [True, False, True, True]


REFUSALS: list[tuple[tuple[str, Json], str, Json]] = [
    (("SESSION_NOT_FOUND", {}), "SESSION_NOT_FOUND", {"threadId": "t"}),
    (("SESSION_CLOSED", {}), "SESSION_CLOSED", {"threadId": "t"}),
    (
        ("TURN_IN_PROGRESS", {"activeTurnId": "v"}),
        "TURN_IN_PROGRESS",
        {"threadId": "t", "activeTurnId": "v"},
    ),
    (("TURN_IN_PROGRESS", {}), "TURN_IN_PROGRESS", {"threadId": "t"}),
    (
        ("INPUT_TOO_LARGE", {"limit": 107, "size": 109}),
        "INPUT_TOO_LARGE",
        {"max_bytes": 107, "actual_bytes": 109, "max_chars": 3, "actual_chars": 5},
    ),
    (("UNKNOWN_MODEL", {}), "UNKNOWN_MODEL", {"model": "m"}),
    (("DISK_FULL", {"x": 1}), "DISK_FULL", {"x": 1}),
]


@pytest.mark.parametrize(("refused", "code", "data"), REFUSALS)
async def test_what_the_store_refuses_is_said_in_the_words_of_this_door(
    refused: tuple[str, dict[str, object]], code: str, data: dict[str, object]
) -> None:
    others = Answers()
    others.answers["StartTurn"] = DaemonError(refused[0], "the store says no", refused[1])
    params = TurnStartParams(thread_id="t", input=HELLO, model="m")
    found = refusal(thread_turns.start_turn(others.call, params))
    assert (found[0], found[2]) == (code, data)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"outcome": "completed"}, {"turnStatus": "completed"}),
        ({"outcome": "failed", "error": "no"}, {"turnStatus": "failed"}),
        (
            {"outcome": "failed", "error": "Agent turn interrupted (hung)"},
            {"turnStatus": "interrupted"},
        ),
        ({}, {}),
    ],
)
async def test_of_a_turn_that_has_ended_it_is_told_how(
    said: dict[str, object], told: dict[str, object]
) -> None:
    others = Answers()
    refused = DaemonError("NO_ACTIVE_TURN", "none", {"turnId": "u", **said})
    others.answers["InterruptTurn"] = others.answers["SteerTurn"] = refused
    interrupt = thread_turns.interrupt_turn(
        others.call, TurnInterruptParams(thread_id="t", turn_id="u")
    )
    steer = thread_turns.steer_turn(
        others.call, TurnSteerParams(thread_id="t", turn_id="u", input=HELLO)
    )
    expected = (
        "NO_ACTIVE_TURN",
        "No matching active turn",
        {"threadId": "t", "turnId": "u", **told},
    )
    assert refusal(interrupt) == refusal(steer) == expected


async def test_another_turn_is_named() -> None:
    others = Answers()
    others.answers["InterruptTurn"] = DaemonError(
        "TURN_ID_MISMATCH", "no", {"expected": "u", "active": "v"}
    )
    params = TurnInterruptParams(thread_id="t", turn_id="u")
    code, _, data = refusal(thread_turns.interrupt_turn(others.call, params))
    assert (code, data) == ("TURN_ID_MISMATCH", {"expected": "u", "active": "v"})


async def test_an_interrupt_names_exactly_this_turn() -> None:
    others = Answers()
    others.answers["InterruptTurn"] = TurnCancelled(cancelled=True, turn_id="u")
    params = TurnInterruptParams(thread_id="t", turn_id="u")
    assert msgspec.json.encode(outcome(thread_turns.interrupt_turn(others.call, params))) == b"{}"
    (request,) = others.asked
    assert isinstance(request, InterruptTurn)
    assert (request.session_id, request.turn_id) == ("t", "u")


async def test_the_turn_may_be_called_as_other_clients_call_it() -> None:
    others = Answers()
    others.answers["SteerTurn"] = accepted(planned="u")
    params = msgspec.convert(
        {"threadId": "t", "expectedTurnId": "u", "input": [{"type": "text", "text": "x"}]},
        TurnSteerParams,
    )
    answer = outcome(thread_turns.steer_turn(others.call, params))
    assert isinstance(others.asked[0], SteerTurn)
    assert (others.asked[0].turn_id, answer.turn_id, answer.queued) == ("u", "u", True)


async def test_models_are_shown_with_what_is_known_of_them() -> None:
    others = Answers()
    found = outcome(thread_turns.list_all_models(others.call, ModelListParams())).models
    assert msgspec.json.decode(msgspec.json.encode(found)) == [
        {
            "id": "m",
            "provider": "p",
            "displayName": "M",
            "contextLength": 8,
            "supportsTools": False,
        }
    ]
    others.answers["ListModels"] = Models(models=(ModelInfo(provider="p", id="n"),))
    found = outcome(thread_turns.list_all_models(others.call, ModelListParams())).models
    assert msgspec.json.decode(msgspec.json.encode(found)) == [
        {"id": "n", "provider": "p", "supportsTools": True}
    ]


async def test_the_schemas_are_texts_in_one_line_that_is_not_too_long_for_anybody() -> None:
    others = Answers()
    told = outcome(thread_turns.export_schema(others.call, NoParams()))
    assert outcome(thread_turns.export_schema(others.call, NoParams())) is told
    assert len(told) < 60_000
    export = msgspec.json.decode(told, type=SchemaExportResponse)
    assert json.loads(export.json_schema["ClientRequest"])["title"] == "ClientRequest"
    assert {f"{name}.ts" for name in export.json_schema} - set(export.typescript) == {
        "JsonRpcMessage.ts"
    }


async def test_schemas_that_are_longer_than_a_line_are_not_cut() -> None:
    others = Answers()
    others.line_bytes = 20_000
    code, text, data = refusal(thread_turns.export_schema(others.call, NoParams()))
    assert (code, data["limit"]) == ("ANSWER_TOO_LARGE", 20_000)
    assert "20000" in text
    others.line_bytes = 60_000
    assert outcome(thread_turns.export_schema(others.call, NoParams()))
