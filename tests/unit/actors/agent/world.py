"""A turn machine between a store, clients, handlers and a runner that all take their time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from roost.actors.agent.calls import NEXT, Completed, Logged
from roost.actors.agent.effects import (
    AskSteers,
    Effect,
    Emit,
    LimitQueue,
    LimitWait,
    Recall,
    Release,
    RunTool,
    StopThinking,
    StopTool,
    TakePermit,
    Think,
)
from roost.actors.agent.events import EventMaker
from roost.actors.agent.order import check_order
from roost.actors.agent.runner import Thought
from roost.actors.agent.turn import State, TurnMachine
from roost.schemas import event
from roost.schemas.base import MessageId
from roost.schemas.turn import (
    BeginTurn,
    ClaimCall,
    EndCall,
    EndTurn,
    OpenPending,
    QueuedMessage,
    SettleCall,
    SettlePending,
)
from tests.unit.actors.agent.machine import SESSION, TURN, CountedStamps, TablePolicy

if TYPE_CHECKING:
    from roost.actors.agent.calls import End
    from roost.actors.agent.effects import Verdict
    from roost.schemas.approval import PendingRow, PendingState

DECISIONS = {"approved": "tool.approval.approved", "denied": "tool.approval.rejected"}


class World:
    """What is on its way to the machine, and the log as the store has it; checks what must hold at every moment."""

    def __init__(self, verdicts: dict[str, Verdict], *, max_iterations: int) -> None:
        stamps = CountedStamps()
        self.machine = TurnMachine(
            EventMaker(SESSION, TURN, stamps),
            stamps,
            TablePolicy(verdicts),
            max_iterations=max_iterations,
        )
        self.drafts: deque[Emit] = deque()
        self.news: deque[PendingRow] = deque()
        self.rows: dict[str, PendingRow] = {}
        self.thinking = False
        self.stopping_thought = False
        self.waits: list[str] = []
        self.limited: list[str] = []
        self.queue: list[str] = []
        self.permits: set[str] = set()
        self.running: dict[str, str] = {}
        self.stopped: list[str] = []
        self.recalls: list[str] = []
        self.ran: list[str] = []
        self.ledger: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.calls: dict[str, Logged] = {}
        self.last = ""
        self.log: list[str] = []
        self.failure: event.AgentTurnFailed | None = None
        self.ended: list[EndTurn] = []
        self.cancelled = False
        self.late = False
        self.unread: list[QueuedMessage] = []
        self.steers = 0
        self.read: list[str] = []
        self.asked = False
        message = QueuedMessage(message_id=MessageId("m"), stream_id="", accepted_at=1, text="hi")
        self.take(self.machine.begin(message, {}))

    @property
    def is_over(self) -> bool:
        return self.machine.state is State.ENDED and not self.drafts

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Emit():
                    self.drafts.append(effect)
                case AskSteers():
                    assert self.unread
                    self.asked = True
                case Think():
                    assert not self.thinking
                    self.thinking, self.stopping_thought = True, False
                case StopThinking():
                    assert self.thinking
                    self.stopping_thought = True
                case LimitWait(call_id=call_id):
                    self.waits.append(call_id)
                case LimitQueue(call_id=call_id):
                    self.limited.append(call_id)
                case TakePermit(call_id=call_id):
                    self.queue.append(call_id)
                case Release(call_id=call_id):
                    self.permits.discard(call_id)
                    self.queue = [other for other in self.queue if other != call_id]
                    self.limited = [other for other in self.limited if other != call_id]
                case Recall(call_id=call_id):
                    self.recalls.append(call_id)
                case RunTool(call_id=call_id, tool=tool):
                    self._run(call_id, tool)
                case StopTool(call_id=call_id):
                    assert call_id in self.running
                    self.stopped.append(call_id)

    def _run(self, call_id: str, tool: str) -> None:
        assert call_id in self.permits
        assert self.calls[call_id] is Logged.RUNNING, "a handler ran before its start was on disk"
        assert call_id not in self.ran, "a call ran twice"
        self.ran.append(call_id)
        self.running[call_id] = tool
        assert len(self.running) <= 4
        assert len(self.running) == 1 or all(name.startswith("p") for name in self.running.values())

    # What the world does.

    def answer(self, refusal: str = "") -> None:
        """Let the store take the oldest draft; a start may be refused."""
        if not self.drafts:
            return
        emit = self.drafts.popleft()
        settles = [change for change in emit.changes if isinstance(change, SettlePending)]
        claims = [change for change in emit.changes if isinstance(change, ClaimCall)]
        ends = [change for change in emit.changes if isinstance(change, EndTurn)]
        if ends and ends[0].outcome == "completed" and self.unread:
            assert not self.drafts
            self.take(self.machine.end_refused())
            return
        if ends:
            self._keep_unread()
        if settles and self.rows[settles[0].request_id].state != "open":
            self.take(self.machine.settle_refused(emit.call_id))
            self.news.append(self.rows[emit.call_id])
            return
        if claims and refusal:
            self.take(self.machine.start_refused(emit.call_id, refusal))
            return
        if emit.event is not None:
            self._record(emit.event)
        for change in emit.changes:
            self._change(change)
        if emit.mark == "started":
            self.take(self.machine.started(emit.call_id))
        elif emit.mark == "settled":
            self.take(self.machine.settled(emit.call_id))

    def _change(self, change: object) -> None:
        match change:
            case OpenPending(row=row):
                self.rows[row.request_id] = row
            case SettlePending(request_id=request_id, state=state):
                self.rows[request_id] = msgspec.structs.replace(self.rows[request_id], state=state)
            case ClaimCall(call_id=call_id):
                assert call_id not in self.ledger
                self.ledger[call_id] = "running"
            case EndCall(call_id=call_id):
                assert self.ledger[call_id] == "running"
                self.ledger[call_id] = "ended"
            case SettleCall(call_id=call_id, state=state):
                assert self.ledger[call_id] in {"running", "ended"}
                self.ledger[call_id] = state
            case EndTurn():
                self.ended.append(change)
            case BeginTurn(message_id=message_id) if message_id != "m":
                assert self.unread.pop(0).message_id == message_id, "read out of order, or twice"
                self.read.append(message_id)
            case _:
                pass

    def _record(self, found: event.AnyEvent) -> None:
        kind = str(found.__struct_config__.tag)
        self._log(kind, getattr(found, "tool_call_id", ""))
        if isinstance(found, event.ToolCallRequested):
            self.names[found.tool_call_id] = found.tool_name
        if isinstance(found, event.AgentTurnFailed):
            self.failure = found
        msgspec.json.encode(found)

    def _keep_unread(self) -> None:
        """Write, as the store does, what the turn has not read, right before its end."""
        self.read += [message.message_id for message in self.unread]
        self.unread.clear()

    def _log(self, kind: str, call_id: str = "") -> None:
        if kind == "user.message":
            assert all(state is Logged.ENDED for state in self.calls.values())
        check_order(self.last, kind)
        self.last = kind
        self.log.append(kind)
        if call_id:
            self.calls[call_id] = NEXT[self.calls.get(call_id, Logged.NONE)][kind]

    def decide(self, request_id: str, state: PendingState) -> None:
        """A client decides; the machine hears of it later."""
        row = self.rows[request_id]
        if row.state != "open":
            return
        row = self.rows[request_id] = msgspec.structs.replace(row, state=state)
        self.news.append(row)
        if row.kind == "approval":
            self._log(DECISIONS[state], request_id)

    def tell(self, *, again: bool = False) -> None:
        """Let the machine hear of the oldest decision."""
        if self.news:
            row = self.news[0] if again else self.news.popleft()
            self.take(self.machine.decided(row))

    def steer(self) -> None:
        """A client sends a message into the turn; the machine hears of it later."""
        if not self.ended and self.steers < 4:
            self.steers += 1
            message_id = MessageId(f"steer{self.steers}")
            message = QueuedMessage(message_id=message_id, stream_id="", accepted_at=1, text="no")
            self.unread.append(message)

    def tell_unread(self) -> None:
        """Let the machine hear of all it has not read, as at a pull."""
        self.asked = False
        for message in list(self.unread):
            self.take(self.machine.steer(message))

    def permit(self) -> None:
        if self.queue:
            call_id = self.queue.pop(0)
            self.permits.add(call_id)
            self.take(self.machine.permitted(call_id))

    def expire_queue(self) -> None:
        for call_id in (self.queue + self.limited)[-1:]:
            self.take(self.machine.queue_expired(call_id))

    def expire_wait(self) -> None:
        if self.waits:
            self.take(self.machine.wait_expired(self.waits[-1]))

    def end_tool(self, end: End | None) -> None:
        """A handler ends; with None it unwinds because it was stopped."""
        running = self.stopped if end is None else list(self.running)
        if running:
            call_id = running[-1]
            del self.running[call_id]
            self.stopped = [other for other in self.stopped if other != call_id]
            if end is None:
                self.take(self.machine.tool_stopped(call_id))
            else:
                self.take(self.machine.tool_ended(call_id, end))

    def recall(self, end: End) -> None:
        if self.recalls:
            self.take(self.machine.recalled(self.recalls.pop(), end))

    def stop_thought(self) -> None:
        if self.thinking and self.stopping_thought:
            self.thinking = False
            self.take(self.machine.runner_stopped())

    def cancel(self) -> None:
        self.cancelled = self.cancelled or self.machine.state is not State.ENDED
        self.take(self.machine.cancel())

    def limit(self) -> None:
        self.late = self.late or self.machine.state is not State.ENDED
        self.take(self.machine.limit_passed())

    def finish(self) -> None:
        """Let everything that is under way come to its end; the runner has no more wishes."""
        for _ in range(500):
            if self.is_over:
                return
            self.answer()
            self.tell()
            if self.asked:
                self.tell_unread()
            self.permit()
            self.end_tool(None)
            self.end_tool(Completed("late"))
            self.recall(Completed("before"))
            for request_id in self.rows:
                kind = self.rows[request_id].kind
                self.decide(request_id, "denied" if kind == "approval" else "cancelled")
            self.stop_thought()
            if self.thinking and not self.drafts:
                self.say()
        raise AssertionError("the turn does not come to an end")

    def say(self) -> None:
        self.thinking = False
        self.take(self.machine.thought(Thought("done")))
