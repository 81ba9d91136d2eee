"""Steps that walks through the thread door have in common: each says something and hears its answer, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import scripted_model as script
from tests.support.thread_examples import accepted, thread
from tests.support.turn_client import gated

if TYPE_CHECKING:
    import threading

    from tests.support.thread_walk import Json, Walk


def starts(walk: Walk, name: str = "th_a", /, **params: object) -> None:
    """Make a thread, and hear of it and of nothing else."""
    walk.says({"id": "start", "method": "thread/start", "params": params})
    shown = thread(name, **params)
    walk.expect({"id": "start", "result": {"thread": shown}})
    walk.expect({"method": "thread/started", "params": {"thread": shown, "sequence": 1}})


def says(walk: Walk, number: object, *texts: str, **further: object) -> None:
    """Ask for a turn of `th_a`."""
    pieces = [{"text": text} for text in texts]
    params: Json = {"threadId": "th_a", "input": pieces, **further}
    walk.says({"id": number, "method": "turn/start", "params": params})


def begin(walk: Walk, said: str, name: str = "tn_a") -> None:
    """Ask for a turn of `th_a` and hear that it was accepted."""
    says(walk, "turn", said)
    walk.expect({"id": "turn", "result": accepted(name, said)})


def interrupts(walk: Walk, number: object, which: str = "tn_a", of: str = "th_a") -> None:
    """Ask for the end of a turn."""
    params: Json = {"threadId": of, "turnId": which}
    walk.says({"id": number, "method": "turn/interrupt", "params": params})


def interrupt(walk: Walk) -> None:
    """Ask for the end of the turn and hear that this was accepted."""
    interrupts(walk, "interrupt")
    walk.expect({"id": "interrupt", "result": {}})


def steers(walk: Walk, number: object, text: str, which: str = "tn_a") -> None:
    """Add to a turn."""
    params: Json = {"threadId": "th_a", "turnId": which, "input": [{"text": text}]}
    walk.says({"id": number, "method": "turn/steer", "params": params})


def in_two(first: str, second: str, gate: threading.Event) -> script.Answer:
    """Answer with two pieces, the second when the gate is open."""

    async def rest(stage: script.Stage) -> None:
        ends: tuple[Json | str, ...] = (script.finish(), script.usage(7, 1), "[DONE]")
        for event in (script.delta(content=second), *ends):
            await stage.event(event)
        await stage.chunk(b"")

    later = gated(gate, rest)

    async def play(stage: script.Stage) -> None:
        await stage.send(script.SSE_HEAD)
        await stage.event(script.delta(content=first))
        await later(stage)

    return play
