"""Requests of this process to the providers service: which answer and which text belongs to which."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from roost.schemas.model import AskModel, ModelDelta, StopModel
from roost.supervisor.errors import ActorGone, CallTimeout, LinkFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.agent.runner import Sink
    from roost.schemas.base import Message
    from roost.supervisor.link import Link

LINK_TIMEOUT = 10.0


class ModelRequests:
    """The open requests over the newest link to the providers service."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self._linked = trio.Event()
        self._sinks: dict[int, Sink] = {}
        self._last = 0

    def link_up(self, link: Link) -> None:
        """Use this link from now on."""
        self.link = link
        self._linked.set()

    def link_down(self, link: Link) -> None:
        """The link is closed; its calls have failed already."""
        if self.link is link:
            self.link = None
            self._linked = trio.Event()

    def delta(self, message: ModelDelta) -> None:
        """Take text of a running request; text of one that has ended is dropped."""
        sink = self._sinks.get(message.stream)
        if sink is not None:
            sink.text(message.text)

    def new_stream(self) -> int:
        """Return a number for a request."""
        self._last += 1
        return self._last

    async def ask(self, request: AskModel, sink: Sink, *, within: float) -> Message:
        """Ask and return the answer; text goes into the sink. Cancelled, the service is told to stop.

        Raises:
            ActorGone: the service was lost before it answered, or does not come back.
            CallTimeout: no answer in time.
        """
        with trio.move_on_after(LINK_TIMEOUT):
            await self._linked.wait()
        link = self.link
        if link is None:
            raise ActorGone("the providers service is away")
        answers: list[Message | ActorGone] = []
        answered = trio.Event()
        try:
            ref = link.call_nowait(request, _collect(answers, answered))
        except LinkFull as error:
            raise ActorGone("the providers service does not read") from error
        self._sinks[request.stream] = sink
        try:
            with trio.move_on_after(within or math.inf):
                await answered.wait()
        finally:
            del self._sinks[request.stream]
            if not answers:
                link.forget(ref)
                with suppress(LinkFull):
                    link.cast(StopModel(stream=request.stream))
        if not answers:
            raise CallTimeout("the model did not answer in time")
        answer = answers[0]
        if isinstance(answer, ActorGone):
            raise answer
        return answer


def _collect(
    answers: list[Message | ActorGone], answered: trio.Event
) -> Callable[[Message | ActorGone], None]:
    def take(answer: Message | ActorGone) -> None:
        answers.append(answer)
        answered.set()

    return take
