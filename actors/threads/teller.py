"""What clients are told of one event: the params of notifications in their order; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from roost.schemas import thread_notifications as told

if TYPE_CHECKING:
    from roost.actors.threads.items import Item, Turn
    from roost.schemas.thread import ApprovalDecision
    from roost.schemas.thread_results import ActiveFlag


class Teller:
    """Collects what is told of the event with the sequence `at`."""

    def __init__(self, thread_id: str) -> None:
        self.at = 0
        self._thread_id = thread_id
        self._told: list[told.Told] = []

    def take(self) -> list[told.Told]:
        """Return what has been told, and forget it."""
        if not self._told:
            return []
        found, self._told = self._told, []
        return found

    def started(self, item: Item) -> None:
        """An item begins."""
        self._told.append(
            told.ItemStarted(
                sequence=self.at,
                thread_id=self._thread_id,
                turn_id=item.turn_id,
                item=item.shown(),
            )
        )

    def completed(self, item: Item) -> None:
        """An item has ended."""
        self._told.append(
            told.ItemCompleted(
                sequence=self.at,
                thread_id=self._thread_id,
                turn_id=item.turn_id,
                item=item.shown(),
            )
        )

    def text(self, item: Item, text: str) -> None:
        """An agent's message goes on."""
        self._told.append(
            told.AgentMessageDelta(
                sequence=self.at,
                thread_id=self._thread_id,
                turn_id=item.turn_id,
                item_id=item.id,
                delta=text,
            )
        )

    def running(self, item: Item) -> None:
        """The handler of a call runs."""
        self._told.append(
            told.ToolCallDelta(
                sequence=self.at,
                thread_id=self._thread_id,
                turn_id=item.turn_id,
                item_id=item.id,
                delta={"status": "inProgress"},
            )
        )

    def asked(self, item: Item) -> None:
        """Somebody has to decide."""
        self._told.append(request_of(self._thread_id, item))

    def resolved(self, item: Item, decision: ApprovalDecision, reason: str) -> None:
        """Somebody has decided, or nobody can any more."""
        self._told.append(
            told.ApprovalResolved(
                sequence=self.at,
                thread_id=self._thread_id,
                turn_id=item.turn_id,
                request_id=str(item.content["requestId"]),
                decision=decision,
                reason=reason or UNSET,
            )
        )

    def status(self, turn: Turn | None, flags: tuple[ActiveFlag, ...]) -> None:
        """The thread runs, or does not."""
        self._told.append(
            told.ThreadStatusChanged(
                sequence=self.at,
                thread_id=self._thread_id,
                status="idle" if turn is None else "running",
                active_turn_id=UNSET if turn is None else turn.id,
                active_flags=flags or UNSET,
            )
        )

    def archived(self) -> None:
        """The thread takes no further turn."""
        at, thread_id = self.at, self._thread_id
        self._told.append(told.ThreadArchived(sequence=at, thread_id=thread_id))
        self._told.append(
            told.ThreadStatusChanged(sequence=at, thread_id=thread_id, status="archived")
        )

    def began(self, turn: Turn) -> None:
        """A turn begins."""
        shown, thread_id = turn.shown(self._thread_id), self._thread_id
        self._told.append(told.TurnStarted(sequence=self.at, thread_id=thread_id, turn=shown))

    def ended(self, turn: Turn) -> None:
        """A turn has ended."""
        shown, thread_id = turn.shown(self._thread_id), self._thread_id
        self._told.append(told.TurnCompleted(sequence=self.at, thread_id=thread_id, turn=shown))

    def used(self, turn: Turn) -> None:
        """A turn has used tokens."""
        usage = turn.usage()
        if usage is not None:
            self._told.append(
                told.TokenUsageUpdated(
                    sequence=self.at,
                    thread_id=self._thread_id,
                    turn_id=turn.id,
                    token_usage=usage,
                )
            )

    def warned(self, turn_id: str, text: str, code: told.WarningCode) -> None:
        """Something went wrong."""
        self._told.append(
            told.ErrorWarning(
                sequence=self.at,
                message=text,
                code=code,
                thread_id=self._thread_id,
                turn_id=turn_id or UNSET,
            )
        )


def request_of(thread_id: str, item: Item) -> told.ApprovalRequestParams:
    """Return what is told of an item that waits for a decision."""
    content = item.content
    return told.ApprovalRequestParams(
        sequence=item.first,
        thread_id=thread_id,
        turn_id=item.turn_id,
        request_id=str(content["requestId"]),
        tool_name=str(content["toolName"]),
        preview=str(content["preview"]),
        tool_call_id=str(content["toolCallId"]),
        arguments=content["arguments"],
        risk=str(content["risk"]),
    )
