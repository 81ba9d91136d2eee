"""Stored events folded into turns and items, one after the other, and what clients are told of each (T 4.2, 6.4).

The state after N events, given event N + 1, is the state after N + 1; the same events give the same items, live or read
later. Events are taken in the order of their sequences; `timestamp` orders nothing. Runs of text deltas may be left out
but for their first: the fold then knows which are missing, and of a message that has ended none is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
from msgspec import UNSET

from roost.actors.threads.items import Item, Turn, input_of, request_id, shown_text, word
from roost.actors.threads.teller import Teller, request_of
from roost.schemas import thread_events as seen
from roost.schemas.thread_results import ActiveFlag, TurnError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.schemas import thread_notifications as told
    from roost.schemas.thread import ApprovalDecision
    from roost.schemas.thread_results import ItemStatus, ItemType, TurnStatus

PREVIEW_CHARACTERS = 200
INTERRUPTED = "TURN_INTERRUPTED"
_CALL, _ASKED, _MESSAGE, _WORKFLOW, _RETRIEVAL = range(5)
_Key = tuple[str, int, str]
_REASONS = {
    "APPROVAL_TIMEOUT": "timeout",
    "TURN_TIMEOUT": "timeout",
    "TOOL_CANCELLED": "interrupted",
    "APPROVAL_UNAVAILABLE": "unavailable",
}


class Fold:
    """The open turn and the open items of a thread; `on_item` gets each item when it is opened."""

    def __init__(
        self, thread_id: str, *, on_item: Callable[[Item], None] | None = None, tells: bool = True
    ) -> None:
        self.thread_id = thread_id
        self.turn: Turn | None = None
        self.last = 0
        self._open: dict[_Key, Item] = {}
        self._streaming: Item | None = None
        self._on_item = on_item
        self._tell = Teller(thread_id, active=tells)
        self._latest: seen.Seen | None = None

    def fork(self) -> Fold:
        """Return another one that goes on from the same state, and tells."""
        other = Fold(self.thread_id)
        other.turn = self.turn.fork() if self.turn is not None else None
        other.last, other._latest = self.last, self._latest
        other._open = {key: item.fork() for key, item in self._open.items()}
        if self._streaming is not None:
            other._streaming = other._open.get(_key_of(self._streaming))
        return other

    def tell_from_now(self) -> None:
        """Tell what follows."""
        self._tell.active = True

    def take(self, sequence: int, event: seen.AnySeen) -> list[told.Told]:
        """Take the next event; return what clients are told of it, in order, if the fold tells."""
        kind = type(event)
        if self._streaming is not None:
            self._note_missing(sequence - 1)
            if kind is not seen.SeenDelta:
                self._streaming = None
        self.last = self._tell.at = sequence
        turn = self.turn
        if turn is not None and event.turn_id == turn.id:
            turn.at_rest = kind is seen.SeenMessage
        self._latest = event
        taker = self._takers.get(kind)
        if taker is not None:
            taker(self, event)
        return self._tell.take() if self._tell.active else []

    def reach(self, sequence: int) -> None:
        """There is nothing more up to this sequence but text deltas."""
        self._note_missing(sequence)
        self.last = max(self.last, sequence)

    def settle(self) -> None:
        """No turn is open in the store: what the log leaves open has ended all the same (T 6.5)."""
        end = self._latest
        self._streaming = None
        if end is not None:
            if self.turn is not None:
                self._abandon(end)
            self._close_all(end, "interrupted", None)
            self._tell.take()

    @property
    def open_items(self) -> list[Item]:
        """The items that may still change, in the order in which they were opened."""
        return list(self._open.values())

    @property
    def flags(self) -> tuple[ActiveFlag, ...]:
        """What the running turn waits for, or does."""
        if self.turn is None:
            return ()
        waits: tuple[ActiveFlag, ...] = ("waitingOnApproval",) if self._waits else ()
        return (*waits, "cancelling") if self.turn.cancelling else waits

    def asked(self) -> list[told.ApprovalRequestParams]:
        """Return what waits for a decision, as it was told."""
        return [request_of(self.thread_id, i) for i in self._open.values() if _is_request(i)]

    def call_of(self, request: str) -> str:
        """Return the id of the call that waits for the decision on a request; nothing if none does."""
        for item in self._open.values():
            if _is_request(item) and item.content["requestId"] == request:
                return str(item.content["toolCallId"])
        return ""

    @property
    def _waits(self) -> bool:
        return any(_is_request(item) for item in self._open.values())

    def _note_missing(self, upto: int) -> None:
        if upto > self.last and self._streaming is not None:
            self._streaming.pieces.append((self.last + 1, upto))

    def _user_message(self, event: seen.SeenUserMessage) -> None:
        text = shown_text(event)
        opens = bool(event.turn_id) and (self.turn is None or self.turn.id != event.turn_id)
        if opens:
            self._begin(event, input_of(event.metadata, text), word(event.metadata, "model"))
        if text is not None:
            content: dict[str, object] = {"text": text, "source": "turn" if opens else "steer"}
            self._one_shot("userMessage", event, content)

    def _transcript(self, event: seen.SeenTranscript) -> None:
        self._one_shot("userMessage", event, {"text": event.text, "source": "transcript"})

    def _delta(self, event: seen.SeenDelta) -> None:
        key = (event.turn_id, _MESSAGE, "")
        item = self._open.get(key)
        if item is None:
            item = self._start("agentMessage", "inProgress", event, {}, key)
        item.pieces.append(event.delta)
        item.run_event_id = event.id
        self._streaming = item
        self._tell.text(item, event.delta)

    def _message(self, event: seen.SeenMessage) -> None:
        key = (event.turn_id, _MESSAGE, "")
        item = self._open.get(key)
        if item is None and event.content:
            item = self._start("agentMessage", "inProgress", event, {}, key)
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
            self._tell.used(turn)
        if event.metadata.get("final") is True:
            self._end_turn(event, "completed", "interrupted")

    def _exhausted(self, event: seen.SeenExhausted) -> None:
        text = f"the limit of {event.max_iterations} iterations is reached"
        self._know_turn(event)
        self._close_all(event, "failed", event.turn_id)
        self._tell.warned(event.turn_id, text, "max_iterations")
        error = TurnError(message=text, code="max_iterations", retryable=False)
        self._end_turn(event, "failed", "failed", error)

    def _failed(self, event: seen.SeenFailed) -> None:
        cut = event.error_code == INTERRUPTED
        status: Literal["interrupted", "failed"] = "interrupted" if cut else "failed"
        self._know_turn(event)
        self._close_all(event, status, event.turn_id)
        self._tell.warned(event.turn_id, event.error, "run_failed")
        error = TurnError(
            message=event.error, code=event.error_code or UNSET, retryable=event.retryable
        )
        self._end_turn(event, status, status, None if cut else error)

    def _know_turn(self, event: seen.Seen) -> None:
        """A turn that failed before it could begin is told of all the same."""
        if event.turn_id and (self.turn is None or self.turn.id != event.turn_id):
            self._begin(event, (), "")

    def _requested(self, event: seen.SeenRequested) -> None:
        content: dict[str, object] = {
            "toolCallId": event.tool_call_id,
            "toolName": event.tool_name,
            "arguments": event.tool_args,
        }
        key = (event.turn_id, _CALL, event.tool_call_id)
        self._start("toolCall", "queued", event, content, key)

    def _started(self, event: seen.SeenStarted) -> None:
        item = self._open.get((event.turn_id, _CALL, event.tool_call_id))
        if item is None:
            return
        item.status = "inProgress"
        item.touch(event)
        self._tell.running(item)

    def _completed(self, event: seen.SeenCompleted) -> None:
        key = (event.turn_id, _CALL, event.tool_call_id)
        item = self._open.get(key)
        if item is not None:
            item.content |= {"status": "success", "result": event.result}
            self._end_item(key, "completed", event)

    def _call_failed(self, event: seen.SeenCallFailed) -> None:
        key = (event.turn_id, _CALL, event.tool_call_id)
        item = self._open.get(key)
        if item is not None:
            item.content |= {"status": "error", "error": event.error}
            if event.error_code:
                item.content["errorCode"] = event.error_code
            if event.outcome:
                item.content["outcome"] = event.outcome
            cut = event.error_code == "TOOL_CANCELLED"
            self._end_item(key, "interrupted" if cut else "failed", event)

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
        key = (event.turn_id, _ASKED, event.tool_call_id)
        item = self._start("approvalRequest", "inProgress", event, content, key)
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
        key = (event.turn_id, _ASKED, event.tool_call_id)
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
            self._tell.resolved(item, decision, reason)
            if not self._waits:
                self._status()

    def _retrieval(self, event: seen.SeenRetrieval) -> None:
        content: dict[str, object] = {"kind": "memoryRetrieval", "query": event.query}
        key = (event.turn_id, _RETRIEVAL, event.query)
        self._start("runStatus", "inProgress", event, content, key)

    def _retrieved(self, event: seen.SeenRetrieved) -> None:
        key = (event.turn_id, _RETRIEVAL, event.query)
        item = self._open.get(key)
        if item is not None:
            item.content["documents"] = event.documents
            self._end_item(key, "completed", event)

    def _workflow(self, event: seen.SeenWorkflow) -> None:
        key = (event.turn_id, _WORKFLOW, event.workflow_name)
        self._start("subRun", "inProgress", event, {"name": event.workflow_name}, key)

    def _workflow_done(self, event: seen.SeenWorkflowDone | seen.SeenWorkflowFailed) -> None:
        key = (event.turn_id, _WORKFLOW, event.workflow_name)
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
        self._tell.archived()

    def _begin(self, event: seen.Seen, said: tuple[str, ...], model: str) -> None:
        if self.turn is not None:
            self._abandon(event)
        self.turn = Turn(event.turn_id, said, event.at_ms, model)
        self._status()
        self._tell.began(self.turn)

    def _status(self) -> None:
        self._tell.status(self.turn, self.flags)

    def _abandon(self, event: seen.Seen) -> None:
        """End a turn that the log leaves without an end."""
        turn = self.turn
        assert turn is not None
        busy = any(item.turn_id == turn.id for item in self._open.values())
        done = turn.at_rest and not busy
        self._close_all(event, "interrupted", turn.id)
        self._finish(turn, event, "completed" if done else "interrupted", None)

    def _end_turn(
        self, event: seen.Seen, status: TurnStatus, left: ItemStatus, error: TurnError | None = None
    ) -> None:
        turn = self.turn
        if turn is None or event.turn_id != turn.id:
            return
        self._close_all(event, left, turn.id)
        self._finish(turn, event, status, error)

    def _finish(
        self, turn: Turn, event: seen.Seen, status: TurnStatus, error: TurnError | None
    ) -> None:
        turn.status = status
        turn.completed_at = event.at_ms
        if error is not None:
            turn.error = error
        self.turn = None
        self._status()
        self._tell.ended(turn)

    def _start(
        self,
        kind: ItemType,
        status: ItemStatus,
        event: seen.Seen,
        content: dict[str, object],
        key: _Key,
    ) -> Item:
        if key in self._open:
            self._end_item(key, "interrupted", event)
        item = self._open[key] = Item(kind, status, event, self._tell.at, content)
        if self._on_item is not None:
            self._on_item(item)
        self._tell.started(item)
        return item

    def _one_shot(self, kind: ItemType, event: seen.Seen, content: dict[str, object]) -> None:
        item = Item(kind, "completed", event, self._tell.at, content)
        item.completed_at = item.created_at
        if self._on_item is not None:
            self._on_item(item)
        self._tell.started(item)
        self._tell.completed(item)

    def _end_item(self, key: _Key, status: ItemStatus, event: seen.Seen) -> None:
        item = self._open.pop(key)
        item.close(status, event)
        self._tell.completed(item)

    def _close_all(self, event: seen.Seen, status: ItemStatus, turn_id: str | None) -> None:
        """End the open items of a turn, or (None) of all; nobody decides any more on what waited for that."""
        for key, item in list(self._open.items()):
            if turn_id is None or item.turn_id == turn_id:
                asked = _is_request(item)
                if asked:
                    item.content["decision"] = "deny"
                    self._tell.resolved(item, "deny", "interrupted")
                self._end_item(key, status, event)

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


def _key_of(item: Item) -> _Key:
    return (item.turn_id, _MESSAGE, "")


def _is_request(item: Item) -> bool:
    return item.type == "approvalRequest" and item.status == "inProgress"
