"""The answer to `GET /models`, with what the servers say of a model each in its own way (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from roost.actors.providers.errors import garbage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_NAME = 200
TOOL_PARAMETER = "tools"


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its server describes it; None is what it does not say."""

    id: str
    name: str = ""
    context_length: int = 0
    tools: bool | None = None


class _Model(msgspec.Struct):
    id: str
    name: object = None
    display_name: object = None
    context_length: object = None
    context_window: object = None
    max_model_len: object = None
    max_context_length: object = None
    max_input_tokens: object = None
    meta: object = None
    supported_parameters: object = None


class _ModelList(msgspec.Struct):
    data: list[_Model]


_decoder = msgspec.json.Decoder(_ModelList | list[_Model])


def read_models(body: bytes) -> list[Offered]:
    """Return the models in the answer, each id once.

    Raises:
        ProviderError: the body is something else.
    """
    try:
        answer = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise garbage("no list of models") from None
    models = answer.data if isinstance(answer, _ModelList) else answer
    found: dict[str, Offered] = {}
    for model in models:
        if model.id and model.id not in found:
            found[model.id] = _offered(model)
    return list(found.values())


def _offered(model: _Model) -> Offered:
    name = model.display_name if isinstance(model.display_name, str) else model.name
    return Offered(
        id=model.id,
        name=name[:MAX_NAME] if isinstance(name, str) else "",
        context_length=_context_length(model),
        tools=_tools(model.supported_parameters),
    )


def _context_length(model: _Model) -> int:
    # llama.cpp tells how long the model's context could be, and newer ones how long it is.
    meta = _object(model.meta)
    said = (
        model.context_length,
        model.context_window,
        model.max_model_len,
        model.max_context_length,
        model.max_input_tokens,
        meta.get("n_ctx"),
        meta.get("n_ctx_train"),
    )
    for length in said:
        if isinstance(length, int) and not isinstance(length, bool) and 0 < length < 2**63:
            return length
    return 0


def _tools(parameters: object) -> bool | None:
    if not isinstance(parameters, list):
        return None
    return TOOL_PARAMETER in cast("Sequence[object]", parameters)


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
