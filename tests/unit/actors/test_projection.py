from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.projection import (
    ContextError,
    Conversation,
    Transcript,
)
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from roost.schemas.event import AnyEvent


def make(kind: str, number: int, turn: str = "t1", **more: object) -> AnyEvent:
    body = {
        "id": f"e{number}",
        "type": kind,
        "timestamp": float(number),
        "session_id": "s",
        "turn_id": turn,
        "version": "1.0",
        **more,
    }
    return event_decoder.decode(msgspec.json.encode(body))


def story(*steps: tuple[str, dict[str, object]]) -> list[AnyEvent]:
    numbers = count(1)
    return [make(kind, next(numbers), **more) for kind, more in steps]  # type: ignore[arg-type]


def fold_conversation(events: list[AnyEvent]) -> Conversation:
    conversation = Conversation()
    for found in events:
        conversation.fold(found)
    return conversation


def call(kind: str, call_id: str, **more: object) -> tuple[str, dict[str, object]]:
    return f"tool.call.{kind}", {"tool_name": "shell", "tool_call_id": call_id, **more}


def user(text: str, turn: str = "t1") -> tuple[str, dict[str, object]]:
    return "user.message", {"content": text, "turn": turn}


def said(text: str, **more: object) -> tuple[str, dict[str, object]]:
    return "agent.message.completed", {"content": text, **more}


TOOLS = story(
    user("do it"),
    ("agent.reasoning.started", {}),
    ("agent.message.delta", {"delta": "on it"}),
    said("on it", tokens={"input": 3, "output": 2}, cost_usd=0.5),
    call("requested", "a", tool_args={"b": 1, "a": 2}),
    call("requested", "b", tool_args={}),
    call("started", "a"),
    call("completed", "a", result={"z": 1, "y": 2}),
    call("failed", "b", error="no"),
    ("agent.reasoning.started", {}),
    said("done", tokens={"input": 10, "output": 1}),
)


def test_calls_and_their_results_stand_where_a_model_expects_them() -> None:
    conversation = fold_conversation(TOOLS)
    messages = conversation.messages()
    assert [(m.role, m.content) for m in messages] == [
        ("user", "do it"),
        ("assistant", "on it"),
        ("tool", '{"y":2,"z":1}'),
        ("tool", "Error: no"),
        ("assistant", "done"),
    ]
    assert [(c.id, c.arguments) for c in messages[1].tool_calls] == [
        ("a", '{"a":2,"b":1}'),
        ("b", "{}"),
    ]
    assert [m.tool_call_id for m in messages[2:4]] == ["a", "b"]
    totals = conversation.input_tokens, conversation.output_tokens, conversation.cost_usd
    assert totals == (13, 3, 0.5)


def test_a_call_without_a_text_before_it_gets_an_empty_one() -> None:
    messages = fold_conversation(
        story(user("go"), call("requested", "a", tool_args={}), call("completed", "a", result=1))
    ).messages()
    assert [(m.role, m.content, len(m.tool_calls)) for m in messages] == [
        ("user", "go", 0),
        ("assistant", "", 1),
        ("tool", "1", 0),
    ]


@pytest.mark.parametrize("cut", range(len(TOOLS) + 1))
def test_a_fold_that_goes_on_gives_the_same_as_one_from_the_start(cut: int) -> None:
    warm = fold_conversation(TOOLS[:cut])
    for found in TOOLS[cut:]:
        warm.fold(found)
    assert warm.messages() == fold_conversation(TOOLS).messages()


def test_the_context_is_made_of_whole_turns_from_the_newest_back() -> None:
    events = [
        found
        for number in range(5)
        for found in story(user(f"q{number}", f"t{number}"), said("x" * 10, turn=f"t{number}"))
    ]
    conversation = fold_conversation(events)
    assert [m.content for m in conversation.messages(max_turns=2)][::2] == ["q3", "q4"]
    assert [m.content for m in conversation.messages(max_characters=30)][::2] == ["q3", "q4"]
    with pytest.raises(ContextError, match="too long"):
        conversation.messages(max_characters=5)


def test_a_steering_message_belongs_to_its_turn() -> None:
    conversation = fold_conversation(story(user("a"), said("b"), user("no, c")))
    assert len(conversation.messages(max_turns=1)) == 3


@pytest.mark.parametrize(
    "events",
    [
        story(user("a"), call("requested", "x", tool_args={}), user("b", "t2")),
        story(user("a"), call("completed", "x", result=1)),
        story(
            user("a"),
            call("requested", "x", tool_args={}),
            call("requested", "x", tool_args={}),
            call("completed", "x", result=1),
        ),
    ],
)
def test_a_log_in_disorder_gives_no_context(events: list[AnyEvent]) -> None:
    with pytest.raises(ContextError):
        fold_conversation(events).messages()


def test_an_open_call_gives_no_context_until_it_has_ended() -> None:
    conversation = fold_conversation(story(user("a"), call("requested", "x", tool_args={})))
    with pytest.raises(ContextError, match="no end"):
        conversation.messages()
    conversation.fold(make("tool.call.failed", 9, tool_name="shell", tool_call_id="x", error="e"))
    assert conversation.messages()[-1].content == "Error: e"


def test_nothing_said_is_an_empty_conversation() -> None:
    assert Conversation().messages() == []


def transcript(events: list[AnyEvent], max_bytes: int = 1000) -> Transcript:
    made = Transcript(max_bytes)
    for sequence, found in reversed(list(enumerate(events, 1))):
        if not made.fold_back(found, sequence):
            break
    return made


def test_a_transcript_has_the_texts_of_both_and_what_tools_gave() -> None:
    made = transcript([*TOOLS, make("agent.message.completed", 12, content="")])
    assert [(e.role, e.text, e.sequence) for e in made.entries] == [
        ("user", "do it", 1),
        ("assistant", "on it", 4),
        ("assistant", "done", 11),
    ]
    assert [(o.call_id, o.status, o.output) for o in made.outputs] == [
        ("a", "completed", '{"y":2,"z":1}'),
        ("b", "failed", "Error: no"),
    ]
    assert not made.truncated


def test_a_transcript_keeps_the_newest_texts_within_its_bound() -> None:
    events = story(*(said("x" * 40) for _ in range(10)))
    made = transcript(events, 100)
    assert [entry.sequence for entry in made.entries] == [9, 10]
    assert made.truncated


def test_the_bound_of_a_transcript_is_that_of_its_texts_as_json() -> None:
    events = story(*(said("\x01" * 10) for _ in range(10)))
    assert [entry.sequence for entry in transcript(events, 130).entries] == [9, 10]
    whole = transcript(events, 1)
    assert [entry.sequence for entry in whole.entries] == [10], "the newest is always there"


def test_outputs_over_the_bound_do_not_end_the_reading_of_texts() -> None:
    steps = [call("requested", "a", tool_args={}), call("completed", "a", result="x" * 50)] * 3
    made = transcript(story(user("hi"), *steps), 100)
    assert [entry.text for entry in made.entries] == ["hi"]
    assert len(made.outputs) == 1
    assert made.truncated


def test_a_gap_and_a_note_stand_where_they_belong() -> None:
    made = Transcript()
    made.fold_back(make("agent.message.completed", 9, content="b"), 9)
    made.gap_back(5, 8)
    made.note_back("cleared", 4)
    made.gap_back(3, 3)
    made.fold_back(make("user.message", 2, content="a"), 2)
    assert [entry.text for entry in made.entries] == [
        "a",
        "event 3 damaged, left out",
        "cleared",
        "events 5 to 8 damaged, left out",
        "b",
    ]


def test_a_long_output_is_cut_and_its_size_is_told() -> None:
    made = transcript(
        story(call("requested", "a", tool_args={}), call("completed", "a", result="é" * 20_000)),
        100_000,
    )
    assert made.outputs[0].size == 40_000
    assert made.outputs[0].output == "é" * 16_384


def test_the_message_of_a_text_is_told_where_the_log_has_it() -> None:
    found = make("user.message", 1, content="a", metadata={"message_id": "m1"})
    assert transcript([found]).entries[0].message_id == "m1"
