"""Logs of sessions as they could be, for tests of the thread door's fold."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from roost.schemas import event as e
from roost.schemas.unions import event_encoder

if TYPE_CHECKING:
    from collections.abc import Callable

Log = list[e.AnyEvent]


class LogMaker:
    """Makes events of one session, one second after the other."""

    def __init__(self, session_id: str = "session_1") -> None:
        self.session_id = session_id
        self.log: Log = []
        self.turn_id = ""
        self._numbers = itertools.count(1)

    def base(self) -> dict[str, object]:
        number = next(self._numbers)
        found: dict[str, object] = {
            "id": f"e{number}",
            "timestamp": 1000.0 + number,
            "session_id": self.session_id,
        }
        if self.turn_id:
            found["turn_id"] = self.turn_id
        return found

    def add(self, kind: Callable[..., e.AnyEvent], **fields: object) -> e.AnyEvent:
        self.log.append(kind(**{**self.base(), **fields}))
        return self.log[-1]

    def created(self) -> None:
        self.add(e.SessionCreated)

    def begin(self, turn_id: str, text: str = "go", **metadata: object) -> None:
        self.turn_id = turn_id
        self.add(e.UserMessage, content=text, metadata=metadata)

    def steer(self, text: str) -> None:
        self.add(e.UserMessage, content=text, metadata={"source": "steer"})

    def say(self, *pieces: str) -> None:
        self.add(e.AgentReasoningStarted)
        for piece in pieces:
            self.add(e.AgentMessageDelta, delta=piece)

    def said(self, content: str, *, final: bool = False) -> None:
        tokens = e.TokenUsage(input=3, output=2)
        metadata = {"final": True} if final else {}
        self.add(e.AgentMessageCompleted, content=content, tokens=tokens, metadata=metadata)

    def call(self, kind: Callable[..., e.AnyEvent], call_id: str, **fields: object) -> None:
        self.add(kind, tool_call_id=call_id, tool_name="write_file", **fields)


def random_log(seed: int, turns: int = 4) -> Log:
    """Return a log as an agent writes one; the last turn may be open."""
    rng = random.Random(seed)
    maker = LogMaker()
    maker.created()
    for number in range(turns):
        _turn(rng, maker, f"turn_{number}", last=number == turns - 1)
    return maker.log


def bodies(log: Log) -> list[bytes]:
    """Return events as they are stored."""
    return [event_encoder.encode(one) for one in log]


def _turn(rng: random.Random, maker: LogMaker, turn_id: str, *, last: bool) -> None:
    maker.begin(turn_id, f"do {turn_id}")
    for step in range(rng.randrange(3)):
        pieces = [f"p{n} " for n in range(rng.randrange(5))]
        maker.say(*pieces)
        if pieces:
            maker.said("".join(pieces))
        if rng.random() < 0.2:
            maker.steer("and that")
        _calls(rng, maker, step)
        if last and rng.random() < 0.2:
            return
    if last and rng.random() < 0.3:
        maker.say("open ", "end")
        return
    _end(rng, maker)


def _calls(rng: random.Random, maker: LogMaker, step: int) -> None:
    calls = [f"{maker.turn_id}-{step}-{n}" for n in range(rng.randrange(3))]
    for call in calls:
        maker.call(e.ToolCallRequested, call, tool_args={"path": call})
    refused: set[str] = set()
    for call in calls:
        if rng.random() < 0.4:
            maker.call(
                e.ToolApprovalRequested, call, tool_args={"path": call}, risk="external_effect"
            )
            if rng.random() < 0.5:
                maker.call(e.ToolApprovalApproved, call)
            else:
                refused.add(call)
                code = rng.choice(["APPROVAL_REJECTED", "APPROVAL_TIMEOUT"])
                maker.call(e.ToolApprovalRejected, call, error_code=code, reason="no")
        if call not in refused:
            maker.call(e.ToolCallStarted, call)
    for call in calls:
        if call in refused:
            maker.call(e.ToolCallFailed, call, error="denied", outcome="not_started")
        elif rng.random() < 0.8:
            maker.call(e.ToolCallCompleted, call, result={"bytes": 12})
        else:
            maker.call(e.ToolCallFailed, call, error="broken", error_code="TOOL_CANCELLED")


def _end(rng: random.Random, maker: LogMaker) -> None:
    match rng.randrange(5):
        case 0 | 1:
            maker.say("the ", "end")
            maker.said("the end", final=True)
        case 2:
            maker.say("cut ")
            maker.add(e.CancellationRequested, reason="interrupted")
            maker.add(e.CancellationCompleted)
        case 3:
            maker.say("half ")
            maker.add(e.AgentTurnFailed, error="the model is gone", error_code="MODEL_FAILED")
        case _:
            maker.add(e.AgentTurnExhausted, max_iterations=3, pending_tool_calls=[])
