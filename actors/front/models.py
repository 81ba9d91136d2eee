"""The models that can be used, as the providers' servers tell them; whoever asks waits a bounded time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, Overloaded
from roost.schemas.model import ListModels, ModelInfo, Models

if TYPE_CHECKING:
    from roost.actors.front.services import Services

LIST_SECONDS = 6.5
"""A little more than the providers service gives the slowest of its servers."""
LOOK_SECONDS = 1.0
RETRY_AFTER_MS = 1000


async def list_models(
    services: Services, provider: str = "", seconds: float = LIST_SECONDS
) -> Models:
    """Return the models of all providers, or of one; of one that there is not, none.

    Raises:
        Overloaded: the providers service is away, has too much to do or does not answer in time.
    """
    asked = services.providers.ask(ListModels(provider=provider), Models)
    timer = services.timers.after(
        seconds, lambda: asked.fail(_not_now("the lists of models do not come in time"))
    )
    asked.then(timer.cancel)
    try:
        return await asked
    except DaemonError as error:
        if error.code == "PROVIDER_NOT_FOUND":
            return Models(models=())
        raise _not_now(error.message) from None


async def find_model(services: Services, model: str) -> tuple[bool, ModelInfo | None]:
    """Return whether agents may be given this model, and what is known of it.

    One that no provider tells of may not, if any tells of some. Where that is not known within a second, any may: a turn
    that cannot have its model fails with the provider's own words.
    """
    try:
        known = (await list_models(services, seconds=LOOK_SECONDS)).models
    except Overloaded:
        return True, None
    found = next((each for each in known if each.id == model), None)
    return found is not None or not known, found


def _not_now(text: str) -> Overloaded:
    return Overloaded("OVERLOADED", text, {"retryAfterMs": RETRY_AFTER_MS})
