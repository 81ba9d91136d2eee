"""What runners are given in tests: a sink, a history, and models that answer from a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from roost.schemas.model import AskModel, ChatMessage, ModelAnswer
from roost.supervisor.errors import ActorGone, CallTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.agent.runner import Sink
    from roost.schemas.base import Message


class FakeSink:
    """Keeps what is streamed."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.rooms = 0
        self.requests = 0

    def text(self, piece: str) -> None:
        self.pieces.append(piece)

    def sent(self) -> None:
        self.requests += 1

    async def room(self) -> None:
        self.rooms += 1
        await trio.lowlevel.checkpoint()

    async def settled(self) -> None:
        await trio.lowlevel.checkpoint()


class FakeHistory:
    """A conversation that stays as it is."""

    def __init__(self, *messages: ChatMessage) -> None:
        self.conversation = list(messages)

    async def messages(self) -> list[ChatMessage]:
        await trio.lowlevel.checkpoint()
        return list(self.conversation)


class Gone:
    """The service is lost, after some text or before."""

    def __init__(self, *deltas: str, slow: bool = False) -> None:
        self.deltas = deltas
        self.error: Exception = CallTimeout("slow") if slow else ActorGone("gone")


class Hanging:
    """The model says something and then nothing more."""

    def __init__(self, *deltas: str) -> None:
        self.deltas = deltas


class FakeModels:
    """Answers requests from a list; what is left over when a test ends is its own concern."""

    def __init__(self, *answers: Message | Gone | Hanging) -> None:
        self.asked: list[AskModel] = []
        self.stopped: list[int] = []
        self._answers: Sequence[Message | Gone | Hanging] = answers

    def new_stream(self) -> int:
        return len(self.asked) + 1

    async def ask(self, request: AskModel, sink: Sink, *, within: float) -> Message:
        answer = self._answers[len(self.asked)]
        self.asked.append(request)
        await trio.lowlevel.checkpoint()
        match answer:
            case Gone(deltas=deltas, error=error):
                for delta in deltas:
                    sink.text(delta)
                raise error
            case Hanging(deltas=deltas):
                for delta in deltas:
                    sink.text(delta)
                try:
                    await trio.sleep_forever()
                finally:
                    self.stopped.append(request.stream)
            case ModelAnswer(text=text):
                for at in range(0, len(text), 3):
                    sink.text(text[at : at + 3])
                return answer
            case _:
                return answer
