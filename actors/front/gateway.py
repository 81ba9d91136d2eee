"""Calls to another process over a link that may be lost and replaced; deadlines, repetition, and what waits meanwhile."""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from roost.actors.errors import DaemonError, Internal, Overloaded, from_refused
from roost.actors.front.promise import Promise
from roost.schemas.base import Message, Refused
from roost.supervisor.errors import ActorGone, LinkFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.front.timers import Timer, Timers
    from roost.supervisor.link import Answer, Link

MAX_WAITING = 8192
BULKY_AT_ONCE = 8
GONE = "ACTOR_GONE"
RETRY_AFTER_MS = 1000
MAX_LINKS = 5
"""So many links a call may be lost with: it may be what ends them."""

M = TypeVar("M", bound=Message)

_log = logging.getLogger(__name__)


class Lost(Overloaded):
    """A call was under way when its process ended; it is not known whether it was carried out."""


def _nothing() -> None:
    pass


class _Call(Generic[M]):
    __slots__ = ("deadline", "gateway", "losses", "message", "promise", "ref", "repeat", "shape")

    def __init__(
        self,
        gateway: Gateway,
        message: Message,
        shape: type[M],
        deadline: float,
        repeat: bool,
    ) -> None:
        self.gateway = gateway
        self.message = message
        self.shape = shape
        self.deadline = deadline
        self.repeat = repeat
        self.promise: Promise[M] = Promise()
        self.ref = 0
        self.losses = 0

    def take(self, answer: Answer) -> None:
        """Hand the answer on, or wait for the next link."""
        if isinstance(answer, self.shape):
            self.promise.resolve(answer)
        elif isinstance(answer, Refused):
            self.promise.fail(from_refused(answer))
        elif isinstance(answer, ActorGone):
            self.gateway.lost(self)
        else:
            name, got = self.gateway.name, type(answer).__name__
            _log.error("%s answered %s with %s", name, type(self.message).__name__, got)
            self.promise.fail(Internal())


class Gateway:
    """The way to one process. With `waits`, calls made while it is away wait for the next link, else they fail."""

    def __init__(self, name: str, timers: Timers, timeout: float, *, waits: bool = True) -> None:
        self.name = name
        self.link: Link | None = None
        self.on_call: Callable[[], None] = _nothing
        self._timers = timers
        self._timeout = timeout or math.inf
        self._waits = waits
        self._waiting: deque[_Call[Message]] = deque()
        self._calls: deque[_Call[Message]] = deque()
        self._timer: Timer | None = None
        self._bulky: deque[Callable[[], None]] = deque()
        self._bulky_open = 0
        self._starting = False

    def set_timeout(self, seconds: float) -> None:
        """Wait so long for answers from now on, and not longer for those that are waited for; 0 is no limit."""
        self._timeout = seconds or math.inf
        latest = trio.current_time() + self._timeout
        for call in self._calls:
            call.deadline = min(call.deadline, latest)
        if self._calls:
            self._arm()
        elif self._timer is not None:
            # It would go off by the old limit, which may be never.
            self._timer.cancel()
            self._timer = None

    @property
    def unanswered(self) -> int:
        """How many calls wait for their answer."""
        return sum(not call.promise.done for call in self._calls)

    @property
    def busy(self) -> bool:
        """Whether a call waits for its answer."""
        self._drop_done()
        return bool(self._calls)

    def connect(self, link: Link, *, before: Callable[[], None] = _nothing) -> None:
        """Use this link from now on; after `before`, what waited is sent in its order."""
        self.link = link
        before()
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            if not call.promise.done:
                self._send(call)

    def disconnect(self, link: Link) -> None:
        """Stop using a link that is closed."""
        if self.link is link:
            self.link = None

    def cast(self, message: Message) -> None:
        """Send a message if there is a link; one that is lost must not matter."""
        if self.link is not None:
            try:
                self.link.cast(message)
            except LinkFull:
                _log.warning("%s does not read; %s is lost", self.name, type(message).__name__)

    def ask(self, message: Message, shape: type[M], *, repeat: bool = True) -> Promise[M]:
        """Call and promise an answer of this shape; with `repeat` the call may be sent again on a new link.

        The promise fails with what the other process refused, or `OVERLOADED` when it does not answer in time.
        """
        call = _Call(self, message, shape, trio.current_time() + self._timeout, repeat)
        self._drop_done()
        self._calls.append(call)  # type: ignore[arg-type]  # a call's own shape only matters to itself
        if self._timer is None:
            self._arm()
        self.on_call()
        if self.link is None:
            self.lost(call, sent=False)
        else:
            self._send(call)  # type: ignore[arg-type]
        return call.promise

    def ask_bulky(self, message: Message, shape: type[M]) -> Promise[M]:
        """Call, as `ask` does, for an answer that may be large (a page, a list).

        Only a few of these are under way at once and the rest wait in order, so that their answers never fill the link.
        What waits is bounded by who asks: each feed reads one page at a time, each request one list.
        """
        promise: Promise[M] = Promise()
        self._bulky.append(lambda: self._begin_bulky(message, shape, promise))
        self._start_bulky()
        return promise

    def _start_bulky(self) -> None:
        if self._starting:  # an answer that is there at once: the loop below goes on
            return
        self._starting = True
        try:
            while self._bulky and self._bulky_open < BULKY_AT_ONCE:
                self._bulky_open += 1
                self._bulky.popleft()()
        finally:
            self._starting = False

    def _begin_bulky(self, message: Message, shape: type[M], promise: Promise[M]) -> None:
        answer = self.ask(message, shape)

        def pass_on() -> None:
            self._bulky_open -= 1
            self._start_bulky()
            try:
                promise.resolve(answer.result())
            except DaemonError as error:
                promise.fail(error)

        answer.then(pass_on)

    def push(self) -> None:
        """Send what has been asked now, and not at the end of the sweep: the other process works on it meanwhile."""
        if self.link is not None:
            self.link.flush()

    def lost(self, call: _Call[M], *, sent: bool = True) -> None:
        """Let a call wait for the next link, if it may."""
        call.losses += sent
        if not self._waits:
            call.promise.fail(DaemonError(GONE, f"{self.name} is gone"))
        elif sent and not call.repeat:
            text = "the daemon lost sight of this request; look whether it was carried out"
            call.promise.fail(Lost("OVERLOADED", text, {"retryAfterMs": RETRY_AFTER_MS}))
        elif call.losses >= MAX_LINKS:
            text = f"the daemon's {self.name} was lost {call.losses} times over this request"
            _log.error("%s: %s", type(call.message).__name__, text)
            call.promise.fail(Internal(text))
        elif len(self._waiting) >= MAX_WAITING:
            text = "too many requests wait for the daemon's store"
            call.promise.fail(Overloaded("OVERLOADED", text, {"retryAfterMs": RETRY_AFTER_MS}))
        else:
            self._waiting.append(call)  # type: ignore[arg-type]

    def _send(self, call: _Call[Message]) -> None:
        assert self.link is not None
        try:
            call.ref = self.link.call_nowait(call.message, call.take)
        except LinkFull:
            text = f"the daemon's {self.name} is overloaded"
            call.promise.fail(Overloaded("OVERLOADED", text, {"retryAfterMs": RETRY_AFTER_MS}))
        except Exception:  # noqa: BLE001 - what cannot be written down fails alone, and gives its place back
            _log.exception("%s cannot be sent to %s", type(call.message).__name__, self.name)
            call.promise.fail(Internal())

    def _drop_done(self) -> None:
        calls = self._calls
        while calls and calls[0].promise.done:
            calls.popleft()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._calls[0].deadline - trio.current_time()
        self._timer = self._timers.after(seconds, self._expire)

    def _expire(self) -> None:
        """All calls have the same time, so the oldest is the first to run out of it."""
        self._timer = None
        now = trio.current_time()
        while self._calls and (self._calls[0].promise.done or self._calls[0].deadline <= now):
            call = self._calls.popleft()
            if not call.promise.done:
                if self.link is not None:
                    self.link.forget(call.ref)
                text = f"the daemon's {self.name} does not answer"
                call.promise.fail(Overloaded("OVERLOADED", text, {"retryAfterMs": RETRY_AFTER_MS}))
        if self._calls:
            self._arm()
