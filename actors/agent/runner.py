"""The interface to what thinks: a runner is asked for one step of a turn at a time.

A step is text, and then either calls of tools, whose results the next step gets, or nothing, which ends the turn.
A runner never talks to clients and writes nothing down; it has no state that the log and `Thought.state` do not hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from roost.schemas.event import JsonObject, Outcome, Phase
from roost.schemas.turn import AddUsage

if TYPE_CHECKING:
    from roost.schemas.model import ChatMessage
    from roost.schemas.turn import QueuedMessage


class CallRequest(msgspec.Struct, frozen=True):
    """A call that the runner asks for.

    `fault` says why there are no usable arguments (`invalid JSON`, `invalid arguments`, `payload too large`).
    """

    name: str
    args: JsonObject
    fault: str = ""


class CallResult(msgspec.Struct, frozen=True):
    """How a call of the last step ended: its result, or the error that the runner gets to see."""

    call_id: str
    name: str
    args: JsonObject
    result: object = None
    error: str = ""
    code: str = ""


class Thought(msgspec.Struct, frozen=True):
    """One finished step. `text` repeats what was streamed; `state` rebuilds the runner after this step.

    Tokens are -1 where they are not known.
    """

    text: str
    calls: tuple[CallRequest, ...] = ()
    state: bytes = b""
    input_tokens: int = -1
    output_tokens: int = -1
    total_tokens: int = -1
    cache_read: int = 0
    cache_creation: int = 0

    @property
    def usage(self) -> tuple[AddUsage, ...]:
        """Return what the step has used, if that is known."""
        if self.input_tokens < 0 and self.output_tokens < 0:
            return ()
        used, made = max(self.input_tokens, 0), max(self.output_tokens, 0)
        return (
            AddUsage(
                input_tokens=used,
                output_tokens=made,
                total_tokens=self.total_tokens,
                cache_read=self.cache_read,
                cache_creation=self.cache_creation,
            ),
        )


class RunnerFailed(Exception):
    """The turn cannot go on; the text is shown to people, so it holds nothing secret."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        phase: Phase | None = None,
        retryable: bool = False,
        outcome: Outcome = "failed",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.phase: Phase | None = phase
        self.retryable = retryable
        self.outcome: Outcome = outcome


class Sink(Protocol):
    """Where the text of a step goes while it is made."""

    def text(self, piece: str) -> None:
        """Stream a piece of text; cheap, and never waits."""
        ...

    def sent(self) -> None:
        """Say that a request goes out to somebody who may act on it."""
        ...

    async def room(self) -> None:
        """Let others run, and wait while too much is not on disk yet. Call it now and then."""
        ...

    async def settled(self) -> None:
        """Wait until everything written so far is on disk."""
        ...


class History(Protocol):
    """The conversation so far, out of the log."""

    async def messages(self) -> list[ChatMessage]:
        """Return the conversation up to now, the results of the last step included."""
        ...


class Runner(Protocol):
    """What thinks in one turn. Cancelled, it stops at once and leaves nothing running."""

    def steer(self, message: QueuedMessage) -> None:
        """Hear of a message that has come into the turn, before the next step; it is in the log as well."""
        ...

    async def think(self, results: tuple[CallResult, ...], sink: Sink) -> Thought:
        """Make the next step.

        Raises:
            RunnerFailed: the turn has failed.
        """
        ...
