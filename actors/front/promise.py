"""Answers that come later, and coroutines that wait for them without a task.

A handler is a coroutine that awaits promises and nothing else. It runs inside the sweep that read its request until it
waits, and goes on inside the sweep that reads the answer.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from roost.actors.errors import DaemonError, Internal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Promise(Generic[T]):
    """A value or an error that is set once; a later one is ignored."""

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T
        self._error: DaemonError | None = None
        self._callbacks: list[Callable[[], None]] = []

    def resolve(self, value: T) -> None:
        """Set the value; who waits goes on before this returns."""
        if not self.done:
            self._value = value
            self._settle()

    def fail(self, error: DaemonError) -> None:
        """Set the error."""
        if not self.done:
            self._error = _again(error)
            self._settle()

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once this is done; at once if it is."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def result(self) -> T:
        """Return the value of a promise that is done, or raise its error."""
        if self._error is not None:
            raise _again(self._error)
        return self._value

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self.done:
            yield self
        return self.result()

    def _settle(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Work(Generic[T]):
    """A handler's coroutine on its way from promise to promise."""

    __slots__ = ("_coroutine", "_ended", "_on_end", "_running")

    def __init__(
        self,
        coroutine: Coroutine[Promise[object], None, T],
        on_end: Callable[[T | DaemonError], None],
    ) -> None:
        self._coroutine = coroutine
        self._on_end = on_end
        self._ended = False
        self._running = False

    def step(self) -> None:
        """Run until the coroutine waits or ends; `on_end` gets what it returned, or the error that ended it."""
        if self._ended:
            return
        self._running = True
        try:
            promise = self._coroutine.send(None)
        except StopIteration as stop:
            self._end(stop.value)
        except DaemonError as error:
            self._end(error)
        except Exception:  # noqa: BLE001
            _log.exception("a handler crashed")
            self._end(Internal())
        else:
            if self._ended:
                self._coroutine.close()
            else:
                promise.then(self.step)
        finally:
            self._running = False

    def cancel(self) -> None:
        """Give the work up; `on_end` is not called."""
        self._ended = True
        # The promise that it waits for may be kept long after who wanted the outcome has gone.
        self._on_end = _nobody
        if not self._running:
            self._coroutine.close()

    def _end(self, outcome: T | DaemonError) -> None:
        if not self._ended:
            self._ended = True
            self._on_end(outcome)


class Places:
    """So many works at once, the others wait in order. Who has asked gives the place back, whether it came or not."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Promise[None]] = deque()
        self._giving = False

    def ask(self) -> Promise[None]:
        """Promise a place."""
        place: Promise[None] = Promise()
        if self._free and not self._waiting:
            self._free -= 1
            place.resolve(None)
        else:
            self._waiting.append(place)
        return place

    def give_back(self, place: Promise[None]) -> None:
        """Let the next one in."""
        if not place.done:
            self._waiting.remove(place)
            return
        self._free += 1
        if self._giving:  # who was let in has ended at once: the loop below goes on
            return
        self._giving = True
        try:
            while self._free and self._waiting:
                self._free -= 1
                self._waiting.popleft().resolve(None)
        finally:
            self._giving = False


def _nobody(_outcome: object) -> None:
    pass


def _again(error: DaemonError) -> DaemonError:
    """Return an equal error without the frames that this one has passed.

    Those frames hold the promise: with an error that keeps them, each would keep the other until a collection.
    """
    fresh = type(error).__new__(type(error), *error.args)
    vars(fresh).update(vars(error))
    return fresh


def start(
    coroutine: Coroutine[Promise[object], None, T], on_end: Callable[[T | DaemonError], None]
) -> Work[T]:
    """Begin to run a coroutine; it may have ended when this returns."""
    work = Work(coroutine, on_end)
    work.step()
    return work
