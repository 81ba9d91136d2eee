"""What an agent and the providers service say to each other about a model."""

from __future__ import annotations

from typing import Literal

from roost.schemas.base import Message


class ToolCall(Message, frozen=True, kw_only=True, tag="model.tool_call"):
    """A call that the model asks for; `arguments` is the text it gave, JSON or not."""

    id: str
    name: str
    arguments: str


class ChatMessage(Message, frozen=True, kw_only=True, tag="model.message"):
    """One message of a conversation. `tool_call_id` belongs to role `tool`, `tool_calls` to `assistant`."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


class ToolSpec(Message, frozen=True, kw_only=True, tag="model.tool"):
    """A tool as the model sees it; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: bytes


class AskModel(Message, frozen=True, kw_only=True, tag="model.ask"):
    """Call agent → providers: one request to a model. Answered with `ModelAnswer` or `Refused`.

    Meanwhile `ModelDelta` casts with the same `stream` come, in order, all before the answer. Codes when refused:
    `PROVIDER_NOT_FOUND`, `PROVIDER_CONFIG_ERROR`, `PROVIDER_AUTH_ERROR`, `PROVIDER_RATE_LIMITED`,
    `PROVIDER_NETWORK_ERROR`, `PROVIDER_API_ERROR`, `PROVIDER_OUTPUT_LIMIT`, `PROVIDER_TIMEOUT`; `retryable` says whether
    the same request may be tried again.
    """

    stream: int
    provider: str
    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()


class StopModel(Message, frozen=True, kw_only=True, tag="model.stop"):
    """Cast agent → providers: give the request up; the model's server is told at once. The call is not answered."""

    stream: int


class TakeLoad(Message, frozen=True, kw_only=True, tag="model.take_load"):
    """Call front → providers: how much is under way. Answered with `Load`."""


class Load(Message, frozen=True, kw_only=True, tag="model.load"):
    """The answer to `TakeLoad`: open requests of all agents."""

    requests: int


class DropKeys(Message, frozen=True, kw_only=True, tag="model.drop_keys"):
    """Cast front → providers: keep no key and no connection that was opened with one; requests under way go on."""


class ModelDelta(Message, frozen=True, kw_only=True, tag="model.delta"):
    """Cast providers → agent: text of a running request; pieces that came together are joined."""

    stream: int
    text: str


class ModelAnswer(Message, frozen=True, kw_only=True, tag="model.answer"):
    """The whole answer; `text` repeats what the deltas said. -1 tokens where the server did not say.

    Of the input `cache_read` tokens were known to the server already, and `cache_creation` were not and are kept there now.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    input_tokens: int = -1
    output_tokens: int = -1
    total_tokens: int = -1
    cache_read: int = 0
    cache_creation: int = 0


class ListModels(Message, frozen=True, kw_only=True, tag="model.list"):
    """Call front → providers: the models of all providers, or of one; answered with `Models` within a few seconds.

    Refused `PROVIDER_NOT_FOUND`, or `PROVIDER_RATE_LIMITED` when too many ask at once.
    """

    provider: str = ""


class ModelInfo(Message, frozen=True, kw_only=True, tag="model.info"):
    """One model of one provider; no name and a context length of 0 are what its server does not tell."""

    provider: str
    id: str
    name: str = ""
    context_length: int = 0
    tools: bool = True


class Models(Message, frozen=True, kw_only=True, tag="model.models"):
    """The answer to `ListModels`: the default provider's models first, the others' as configured.

    Each provider's configured model is its first. What was told a short while ago is told again without asking.
    `failed` maps a provider that could not be asked to why; of that one the models are those it told last.
    """

    models: tuple[ModelInfo, ...]
    failed: dict[str, str] = {}
