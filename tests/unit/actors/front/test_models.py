from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import pytest
import trio

from roost.actors.errors import DaemonError, Overloaded
from roost.actors.front.models import LIST_SECONDS, find_model, list_models
from roost.actors.front.promise import Promise, start
from roost.actors.front.timers import Timers
from roost.schemas.model import ListModels, ModelInfo, Models

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from trio.testing import MockClock

    from roost.actors.front.services import Services

T = TypeVar("T")

KNOWN = Models(models=(ModelInfo(provider="p", id="a"), ModelInfo(provider="q", id="b")))


class Front:
    """As much of the front's services as asks for models: it is the way to the providers itself."""

    def __init__(self, answer: Models | DaemonError | None = None) -> None:
        self.timers = Timers()
        self.providers = self
        self.asked: list[ListModels] = []
        self._answer = answer

    def ask(self, message: ListModels, _shape: type[Models]) -> Promise[Models]:
        """Promise the answer, which never comes if there is none."""
        self.asked.append(message)
        promise: Promise[Models] = Promise()
        if isinstance(self._answer, Models):
            promise.resolve(self._answer)
        elif self._answer is not None:
            promise.fail(self._answer)
        return promise

    @property
    def services(self) -> Services:
        """What the functions are given."""
        return cast("Services", self)  # they use nothing else of it


def outcome(work: Coroutine[Promise[object], None, T]) -> list[T | DaemonError]:
    """Start a handler and return where its outcome will be."""
    found: list[T | DaemonError] = []
    start(work, found.append)
    return found


async def test_the_models_of_a_provider_that_there_is_not_are_none() -> None:
    front = Front(DaemonError("PROVIDER_NOT_FOUND", "no provider is called 'x'"))
    assert outcome(list_models(front.services, "x")) == [Models(models=())]
    assert front.asked == [ListModels(provider="x")]
    assert front.timers.armed == 0


@pytest.mark.parametrize("code", ["ACTOR_GONE", "OVERLOADED", "PROVIDER_RATE_LIMITED"])
async def test_what_keeps_the_models_from_being_told_may_be_over_soon(code: str) -> None:
    (error,) = outcome(list_models(Front(DaemonError(code, "not now")).services))
    assert isinstance(error, Overloaded)
    assert (error.code, error.message) == ("OVERLOADED", "not now")
    assert "retryAfterMs" in error.data


async def test_nobody_waits_longer_for_the_models_than_a_few_seconds(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    front = Front()
    nursery.start_soon(front.timers.run)
    listed = outcome(list_models(front.services))
    looked = outcome(find_model(front.services, "a"))
    await trio.sleep(1.1)
    assert looked == [(True, None)]
    await trio.sleep(LIST_SECONDS)
    assert isinstance(listed[0], Overloaded)


async def test_a_model_is_known_if_any_provider_tells_of_it() -> None:
    front = Front(KNOWN)
    assert outcome(find_model(front.services, "b")) == [(True, KNOWN.models[1])]
    assert outcome(find_model(front.services, "c")) == [(False, None)]


async def test_where_no_provider_tells_of_any_model_any_may_be_asked_for() -> None:
    assert outcome(find_model(Front(Models(models=())).services, "c")) == [(True, None)]
