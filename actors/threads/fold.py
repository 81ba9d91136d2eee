"""Stored events folded into turns and items, one after the other, and what clients are told of each (T 4.2, 6.4).

The state after N events, given event N + 1, is the state after N + 1; the same events give the same items, live or read
later. Events are taken in the order of their sequences; `timestamp` orders nothing. Runs of text deltas may be left out
but for their first: the fold then knows which are missing, and of a message that has ended none is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
from msgspec import UNSET

from roost.actors.threads.items import input_of, request_id, shown_text
from roost.actors.threads.state import (
    ASKED,
    CALL,
    MESSAGE,
    QUESTION,
    RETRIEVAL,
    WORKFLOW,
    State,
)
from roost.schemas import thread_events as seen
from roost.schemas.thread_results import TurnError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.threads.items import Item
    from roost.schemas import thread_notifications as told
    from roost.schemas.thread import ApprovalDecision

PREVIEW_CHARACTERS = 200
INTERRUPTED = "TURN_INTERRUPTED"
_REASONS = {
    "APPROVAL_TIMEOUT": "timeout",
    "TURN_TIMEOUT": "timeout",
    "TOOL_CANCELLED": "interrupted",
    "APPROVAL_UNAVAILABLE": "unavailable",
}


class Fold(State):
    """What each event does to the open turn and the open items."""

    def fork(self) -> Fold:
        """Return another one that goes on from the same state, and tells."""
        other = Fold(self.thread_id)
        self._fork_into(other)
        return other

    def take(self, sequence: int, event: seen.AnySeen) -> list[told.Told]:
        """Take the next event; return what clients are told of it, in order, if the fold tells."""
        kind = type(event)
        if self._streaming is not None:
            if sequence > self.last + 1:
                self._note_missing(sequence - 1)
            if kind is not seen.SeenDelta:
                self._streaming = None
        self.last = sequence
        if self._tell is not None:
            self._tell.at = sequence
        turn = self.turn
        if turn is not None and event.turn_id == turn.id:
            turn.at_rest = kind is seen.SeenMessage
        self._latest = event
        taker = self._takers.get(kind)
        if taker is not None:
            taker(self, event)
        return self._tell.take() if self._tell is not None else []

    def _user_message(self, event: seen.SeenUserMessage) -> None:
        text = shown_text(event)
        opens = bool(event.turn_id) and (self.turn is None or self.turn.id != event.turn_id)
        if opens:
            model = event.metadata.model
            self._begin(event, input_of(event, text), model if isinstance(model, str) else "")
        if text is not None:
            content: dict[str, object] = {"text": text, "source": "turn" if opens else "steer"}
            self._one_shot("userMessage", event, content)

    def _transcript(self, event: seen.SeenTranscript) -> None:
        self._one_shot("userMessage", event, {"text": event.text, "source": "transcript"})

    def _delta(self, event: seen.SeenDelta) -> None:
        key = (event.turn_id, MESSAGE, "")
        item = self._open.get(key)
        if item is None:
            item = self._start("agentMessage", "inProgress", event, {}, key)
        item.pieces.append(event.delta)
        item.run_event_id = event.id
        self._streaming = item
        if self._tell is not None:
            self._tell.text(item, event.delta)

    def _message(self, event: seen.SeenMessage) -> None:
        key = (event.turn_id, MESSAGE, "")
        item = self._open.get(key)
        if item is None and event.content:
            item = self._start("agentMessage", "inProgress", event, {}, key)
            if self._tell is not None:
                self._tell.text(item, event.content)
        if item is not None:
            if event.content:
                item.content["text"] = event.content
                item.pieces.clear()
            self._end_item(key, "completed", event)
        turn = self.turn
        if turn is None or turn.id != event.turn_id:
            return
        if event.tokens is not None:
            turn.use(event.tokens)
            if self._tell is not None:
                self._tell.used(turn)
        if event.metadata.final is True:
            self._end_turn(event, "completed", "interrupted")

    def _exhausted(self, event: seen.SeenExhausted) -> None:
        text = f"the limit of {event.max_iterations} iterations is reached"
        self._know_turn(event)
        self._close_all(event, "failed", event.turn_id)
        if self._tell is not None:
            self._tell.warned(event.turn_id, text, "max_iterations")
        error = TurnError(message=text, code="max_iterations", retryable=False)
        self._end_turn(event, "failed", "failed", error)

    def _failed(self, event: seen.SeenFailed) -> None:
        cut = event.error_code == INTERRUPTED
        status: Literal["interrupted", "failed"] = "interrupted" if cut else "failed"
        self._know_turn(event)
        self._close_all(event, status, event.turn_id)
        if self._tell is not None:
            self._tell.warned(event.turn_id, event.error, "run_failed")
        error = TurnError(
            message=event.error, code=event.error_code or UNSET, retryable=event.retryable
        )
        self._end_turn(event, status, status, None if cut else error)

    def _requested(self, event: seen.SeenRequested) -> None:
        content: dict[str, object] = {
            "toolCallId": event.tool_call_id,
            "toolName": event.tool_name,
            "arguments": event.tool_args,
        }
        key = (event.turn_id, CALL, event.tool_call_id)
        self._start("toolCall", "queued", event, content, key)
        if event.tool_name == QUESTION:
            self._status()

    def _started(self, event: seen.SeenStarted) -> None:
        item = self._open.get((event.turn_id, CALL, event.tool_call_id))
        if item is None:
            return
        item.status = "inProgress"
        item.run_event_id = event.id
        if self._tell is not None:
            self._tell.running(item)

    def _completed(self, event: seen.SeenCompleted) -> None:
        key = (event.turn_id, CALL, event.tool_call_id)
        item = self._open.get(key)
        if item is not None:
            item.content["status"] = "success"
            item.content["result"] = event.result
            self._end_item(key, "completed", event)
            self._answered(item)

    def _answered(self, item: Item) -> None:
        if item.content["toolName"] == QUESTION:
            self._status()

    def _call_failed(self, event: seen.SeenCallFailed) -> None:
        key = (event.turn_id, CALL, event.tool_call_id)
        item = self._open.get(key)
        if item is not None:
            item.content |= {"status": "error", "error": event.error}
            if event.error_code:
                item.content["errorCode"] = event.error_code
            if event.outcome:
                item.content["outcome"] = event.outcome
            cut = event.error_code == "TOOL_CANCELLED"
            self._end_item(key, "interrupted" if cut else "failed", event)
            self._answered(item)

    def _asked(self, event: seen.SeenAsked) -> None:
        compact = msgspec.json.format(bytes(event.tool_args), indent=-1)
        preview = f"{event.tool_name} {compact.decode()}"[:PREVIEW_CHARACTERS]
        content: dict[str, object] = {
            "requestId": request_id(event.id),
            "toolCallId": event.tool_call_id,
            "toolName": event.tool_name,
            "preview": preview,
            "choices": ("allow", "deny"),
            "risk": event.risk,
            "arguments": event.tool_args,
        }
        key = (event.turn_id, ASKED, event.tool_call_id)
        item = self._start("approvalRequest", "inProgress", event, content, key)
        if self._tell is not None:
            self._tell.asked(item)
        self._status()

    def _approved(self, event: seen.SeenApproved) -> None:
        self._decided(event, "allow", "", "")

    def _rejected(self, event: seen.SeenRejected) -> None:
        code = event.error_code
        self._decided(event, "deny", _REASONS.get(code, event.reason), code)

    def _decided(
        self, event: seen.SeenCall, decision: ApprovalDecision, reason: str, code: str
    ) -> None:
        key = (event.turn_id, ASKED, event.tool_call_id)
        item = self._open.get(key)
        asked = str(item.content["requestId"]) if item is not None else ""
        if item is not None:
            item.content["decision"] = decision
            self._end_item(key, "completed", event)
        content: dict[str, object] = {
            "requestId": asked,
            "toolCallId": event.tool_call_id,
            "toolName": event.tool_name,
            "decision": decision,
        }
        named = {"reason": reason, "errorCode": code}
        content |= {name: text for name, text in named.items() if text}
        self._one_shot("approvalResolved", event, content)
        if item is not None:
            if self._tell is not None:
                self._tell.resolved(item, decision, reason)
            if not self._waits:
                self._status()

    def _retrieval(self, event: seen.SeenRetrieval) -> None:
        content: dict[str, object] = {"kind": "memoryRetrieval", "query": event.query}
        key = (event.turn_id, RETRIEVAL, event.query)
        self._start("runStatus", "inProgress", event, content, key)

    def _retrieved(self, event: seen.SeenRetrieved) -> None:
        key = (event.turn_id, RETRIEVAL, event.query)
        item = self._open.get(key)
        if item is not None:
            item.content["documents"] = event.documents
            self._end_item(key, "completed", event)

    def _workflow(self, event: seen.SeenWorkflow) -> None:
        key = (event.turn_id, WORKFLOW, event.workflow_name)
        self._start("subRun", "inProgress", event, {"name": event.workflow_name}, key)

    def _workflow_done(self, event: seen.SeenWorkflowDone | seen.SeenWorkflowFailed) -> None:
        key = (event.turn_id, WORKFLOW, event.workflow_name)
        item = self._open.get(key)
        if item is None:
            return
        if isinstance(event, seen.SeenWorkflowFailed):
            item.content["error"] = event.error
            self._end_item(key, "failed", event)
        else:
            item.content["result"] = event.result
            self._end_item(key, "completed", event)

    def _cancel(self, event: seen.SeenCancel) -> None:
        turn = self.turn
        if turn is not None and event.turn_id in ("", turn.id) and not turn.cancelling:
            turn.cancelling = True
            self._status()

    def _cancelled(self, event: seen.SeenCancelled) -> None:
        self._close_all(event, "interrupted", event.turn_id)
        self._end_turn(event, "interrupted", "interrupted")

    def _closed(self, event: seen.SeenClosed) -> None:
        if self.turn is not None:
            self._abandon(event)
        if self._tell is not None:
            self._tell.archived()

    # Nothing but the type of an event decides what it does.
    _takers: ClassVar[dict[type[seen.Seen], Callable[..., None]]] = {
        seen.SeenUserMessage: _user_message,
        seen.SeenTranscript: _transcript,
        seen.SeenDelta: _delta,
        seen.SeenMessage: _message,
        seen.SeenExhausted: _exhausted,
        seen.SeenFailed: _failed,
        seen.SeenRequested: _requested,
        seen.SeenStarted: _started,
        seen.SeenCompleted: _completed,
        seen.SeenCallFailed: _call_failed,
        seen.SeenAsked: _asked,
        seen.SeenApproved: _approved,
        seen.SeenRejected: _rejected,
        seen.SeenRetrieval: _retrieval,
        seen.SeenRetrieved: _retrieved,
        seen.SeenWorkflow: _workflow,
        seen.SeenWorkflowDone: _workflow_done,
        seen.SeenWorkflowFailed: _workflow_done,
        seen.SeenCancel: _cancel,
        seen.SeenCancelled: _cancelled,
        seen.SeenClosed: _closed,
    }
