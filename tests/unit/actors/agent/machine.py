"""A turn machine with counted ids, a policy given as a table, and a record of what it wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.agent.calls import Completed, End
from roost.actors.agent.effects import (
    Allow,
    AskApproval,
    AskQuestion,
    Effect,
    Emit,
    Plan,
    Recall,
    Release,
    RunTool,
    StopTool,
    TakePermit,
    Think,
    Verdict,
)
from roost.actors.agent.events import EventMaker
from roost.actors.agent.runner import CallRequest, Thought
from roost.actors.agent.turn import TurnMachine
from roost.schemas.base import CallId, MessageId, SessionId, TurnId
from roost.schemas.turn import EndTurn, OpenPending, QueuedMessage

if TYPE_CHECKING:
    from roost.schemas.approval import PendingRow, PendingState
    from roost.schemas.event import AnyEvent, JsonObject

SESSION = SessionId("s")
TURN = TurnId("t")

ASK = AskApproval("write", b"{}", ("key",))
QUESTION = AskQuestion(b'{"questions":[]}')


class CountedStamps:
    def __init__(self) -> None:
        self.number = 0
        self.calls = 0

    def event(self) -> str:
        self.number += 1
        return f"e{self.number}"

    def call(self) -> CallId:
        self.calls += 1
        return CallId(f"c{self.calls}")

    def now(self) -> float:
        return float(self.number)


class TablePolicy:
    """Tools named `p…` run side by side; verdicts stand in a table, everything else is allowed."""

    def __init__(self, verdicts: dict[str, Verdict]) -> None:
        self.verdicts = verdicts

    def plan(self, request: CallRequest) -> Plan:
        return Plan(request.name, request.name.startswith("p"))

    def judge(self, tool: str, args: JsonObject, fault: str) -> Verdict:
        return self.verdicts.get(tool, Allow())


class Driven:
    """A machine in the hands of a test: drafts are answered by `recorded` unless `slow`."""

    def __init__(
        self,
        verdicts: dict[str, Verdict] | None = None,
        *,
        max_iterations: int = 64,
        slow: bool = False,
        permits: bool = True,
    ) -> None:
        self.stamps = CountedStamps()
        self.policy = TablePolicy(verdicts or {})
        self.slow = slow
        self.permits = permits
        self.events: list[AnyEvent] = []
        self.effects: list[Effect] = []
        self.emitted: list[Emit] = []
        self.unanswered: list[Emit] = []
        self.thinks = 0
        self.results: tuple[object, ...] = ()
        self.running: list[str] = []
        self.stopped: list[str] = []
        self.queued: list[str] = []
        self.released: list[str] = []
        self.recalls: list[str] = []
        self.machine = TurnMachine(
            EventMaker(SESSION, TURN, self.stamps),
            self.stamps,
            self.policy,
            max_iterations=max_iterations,
        )

    def begin(self) -> Driven:
        message = QueuedMessage(
            message_id=MessageId("m"), stream_id="st", accepted_at=1, text="hello"
        )
        self.take(self.machine.begin(message, {}))
        return self

    def take(self, effects: list[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            match effect:
                case Emit():
                    self.emitted.append(effect)
                    if effect.event is not None:
                        self.events.append(effect.event)
                    self.unanswered.append(effect)
                case Think(results=results):
                    self.thinks += 1
                    self.results = results
                case RunTool(call_id=call_id):
                    self.running.append(call_id)
                case StopTool(call_id=call_id):
                    self.stopped.append(call_id)
                case TakePermit(call_id=call_id):
                    self.queued.append(call_id)
                case Release(call_id=call_id):
                    self.released.append(call_id)
                case Recall(call_id=call_id):
                    self.recalls.append(call_id)
                case _:
                    pass
        if self.permits:
            self.permit()
        if not self.slow:
            self.record()

    def permit(self) -> None:
        """Give out permits to all who wait for one."""
        waiting, self.queued = self.queued, []
        for call_id in waiting:
            self.take(self.machine.permitted(call_id))

    def record(self) -> None:
        """Answer all drafts."""
        waiting, self.unanswered = self.unanswered, []
        for emit in waiting:
            if emit.mark == "started":
                self.take(self.machine.started(emit.call_id))
            elif emit.mark == "settled":
                self.take(self.machine.settled(emit.call_id))

    def think(self, *tools: str, text: str = "") -> None:
        """Let the runner finish a step."""
        requests = tuple(CallRequest(tool, {"n": tool}) for tool in tools)
        self.take(self.machine.thought(Thought(text, requests, b"state")))

    def end(self, call_id: str, end: End | None = None) -> None:
        """Let a handler return."""
        self.running.remove(call_id)
        self.take(self.machine.tool_ended(call_id, end or Completed("ok")))

    def decide(
        self, call_id: str, state: PendingState, *, reason: str = "", answer: object = None
    ) -> None:
        """Let a client decide."""
        row = msgspec.structs.replace(
            self.row(call_id),
            state=state,
            reason=reason,
            answer=b"" if answer is None else msgspec.json.encode(answer),
        )
        self.take(self.machine.decided(row))

    def row(self, call_id: str) -> PendingRow:
        for emit in self.emitted:
            for change in emit.changes:
                if isinstance(change, OpenPending) and change.row.request_id == call_id:
                    return change.row
        raise AssertionError(f"nobody was asked about {call_id}")

    def cancel(self) -> None:
        self.take(self.machine.cancel())

    def limit(self) -> None:
        """Let the turn's time limit pass."""
        self.take(self.machine.limit_passed())

    def stop(self, call_id: str) -> None:
        """Let a stopped handler unwind."""
        self.running.remove(call_id)
        self.take(self.machine.tool_stopped(call_id))

    @property
    def trace(self) -> str:
        """Return the short names of the events, with the number of the call."""
        return " ".join(map(_short, self.events))

    @property
    def ends(self) -> list[EndTurn]:
        return [c for emit in self.emitted for c in emit.changes if isinstance(c, EndTurn)]


SHORT = {
    "user.message": "user",
    "agent.reasoning.started": "reasoning",
    "agent.message.completed": "completed",
    "agent.turn.failed": "turn-failed",
    "agent.turn.exhausted": "exhausted",
    "tool.call.requested": "requested",
    "tool.call.started": "started",
    "tool.call.completed": "done",
    "tool.call.failed": "failed",
    "tool.approval.requested": "ask",
    "tool.approval.rejected": "rejected",
    "cancellation.completed": "cancelled",
}


def _short(event: AnyEvent) -> str:
    name = SHORT[str(event.__struct_config__.tag)]
    call_id = getattr(event, "tool_call_id", "")
    return f"{name}-{call_id}" if call_id else name
