"""Which provider and model think in a turn; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from roost.config.model import Settings
    from roost.schemas.agent import AgentSpec

SCRIPT: Final = "script"


class Thinker(NamedTuple):
    """A provider of the configuration (or `script`), and its model; `model` is empty where there is none to choose."""

    provider: str
    model: str


def choose(settings: Settings, spec: AgentSpec, session_model: str, turn_model: str) -> Thinker:
    """Return who thinks: the turn's model, else the session's, else the agent's, else the provider's own.

    A model is a name as the agent's provider knows it, or `provider/name` for one of any configured provider, or the name
    of a provider (`script` included) for its own model.
    """
    provider = spec.provider or settings.agents.provider
    wanted = turn_model or session_model or spec.model
    known = {SCRIPT, *settings.providers}
    if wanted in known:
        provider, wanted = wanted, ""
    head, slash, rest = wanted.partition("/")
    if slash and rest and head in known:
        provider, wanted = head, rest
    if provider == SCRIPT:
        return Thinker(SCRIPT, "")
    found = settings.providers.get(provider)
    return Thinker(provider, wanted or (found.model if found is not None else ""))
