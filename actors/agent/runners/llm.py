"""The runner that asks a model, through the providers service; it holds no key and speaks no HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roost.actors.agent.arguments import from_text
from roost.actors.agent.runner import CallResult, History, RunnerFailed, Sink, Thought
from roost.actors.agent.tools.toolbox import tool_specs
from roost.schemas.base import Message, Refused
from roost.schemas.model import AskModel, ChatMessage, ModelAnswer, ToolSpec
from roost.supervisor.errors import ActorGone, CallTimeout

if TYPE_CHECKING:
    from roost.actors.session.approvals import Rules
    from roost.schemas.turn import QueuedMessage

MAX_CALLS = 64


class Models(Protocol):
    """The way to the providers service."""

    def new_stream(self) -> int:
        """Return a number for a request, not used before in this process."""
        ...

    async def ask(self, request: AskModel, sink: Sink, *, within: float) -> Message:
        """Ask; text goes into the sink as it comes. Cancelled, the model's server is told at once.

        Raises:
            ActorGone: the service was lost before it answered, or there is none.
            CallTimeout: no answer in time.
        """
        ...


class LlmRunner:
    """Asks one model of one provider; the conversation in the log is all its state."""

    def __init__(
        self,
        models: Models,
        history: History,
        *,
        provider: str,
        model: str,
        cwd: str,
        rules: Rules,
        timeout: float,
    ) -> None:
        self._rules = rules
        self._models = models
        self._history = history
        self._provider = provider
        self._model = model
        self._cwd = cwd
        self._timeout = timeout
        self._tools: tuple[ToolSpec, ...] = ()

    def steer(self, message: QueuedMessage) -> None:
        """Do nothing: the message is in the log."""

    async def think(self, results: tuple[CallResult, ...], sink: Sink) -> Thought:
        """Make one request to the model; it is repeated once if the service is lost before any text has come.

        Raises:
            RunnerFailed: the provider refused, failed or did not answer.
        """
        del results  # they are in the log
        if not self._tools:
            self._tools = tool_specs(self._rules)
        system = ChatMessage(role="system", content=_system_prompt(self._cwd))
        messages = (system, *await self._history.messages())
        counted = _Counting(sink)
        try:
            answer = await self._ask(messages, counted)
        except ActorGone:
            if counted.any_text:
                raise _lost(any_text=True) from None
            try:
                answer = await self._ask(messages, counted)
            except ActorGone:
                raise _lost(any_text=counted.any_text) from None
        return _thought(answer, any_text=counted.any_text)

    async def _ask(self, messages: tuple[ChatMessage, ...], sink: Sink) -> Message:
        request = AskModel(
            stream=self._models.new_stream(),
            provider=self._provider,
            model=self._model,
            messages=messages,
            tools=self._tools,
        )
        sink.sent()
        try:
            return await self._models.ask(request, sink, within=self._timeout)
        except CallTimeout:
            raise RunnerFailed(
                "The model did not answer in time",
                code="PROVIDER_TIMEOUT",
                phase="provider_stream",
                retryable=True,
                outcome="unknown",
            ) from None


class _Counting:
    """Passes text on and remembers whether there was any."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.any_text = False

    def text(self, piece: str) -> None:
        self.any_text = self.any_text or bool(piece)
        self._sink.text(piece)

    def sent(self) -> None:
        self._sink.sent()

    async def room(self) -> None:
        await self._sink.room()

    async def settled(self) -> None:
        await self._sink.settled()


def _thought(answer: Message, *, any_text: bool) -> Thought:
    match answer:
        case ModelAnswer():
            if len(answer.tool_calls) > MAX_CALLS:
                text = f"The model asked for more than {MAX_CALLS} calls at once"
                raise RunnerFailed(text, code="PROVIDER_OUTPUT_LIMIT", phase="provider_stream")
            return Thought(
                answer.text,
                tuple(from_text(call.name, call.arguments) for call in answer.tool_calls),
                input_tokens=answer.input_tokens,
                output_tokens=answer.output_tokens,
                total_tokens=answer.total_tokens,
                cache_read=answer.cache_read,
                cache_creation=answer.cache_creation,
            )
        case Refused():
            raise RunnerFailed(
                answer.message,
                code=answer.code,
                phase="provider_stream" if any_text else "provider_open",
                retryable=answer.retryable,
                outcome="unknown" if any_text else "failed",
            )
        case _:
            raise RunnerFailed("The providers service gave no answer", code="PROVIDER_API_ERROR")


def _lost(*, any_text: bool) -> RunnerFailed:
    return RunnerFailed(
        "The connection to the model was lost",
        code="PROVIDER_NETWORK_ERROR",
        phase="provider_stream" if any_text else "provider_open",
        retryable=True,
        outcome="unknown",
    )


def _system_prompt(cwd: str) -> str:
    return (
        "You are an agent that works on the user's machine. "
        f"Your working folder is {cwd}; relative paths start there. "
        "Use the tools to look at files, change them and run commands; do not guess what a tool can tell you. "
        "A call that the user denies is not to be repeated. When you are done, say briefly what you have done."
    )
