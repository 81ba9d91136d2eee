"""The JSON-RPC state of one client, without I/O: what may start, what must wait, what is refused.

The rules, in the order in which they apply to one message (P 4, 5):

1. What is no request gets an error with the id null, or nothing.
2. The rate.
3. Before a connection has authenticated, anything but `initialize` ends it. `initialize` is done at once, so what is
   sent behind it waits for nothing.
4. The method, the kind of its params, an id that is in use, whether the connection is initialized, the params.
5. Requests that name one resource start in the order in which they came. At most so many short ones are at work;
   further ones wait. Long ones are counted apart; one too many is refused. Decisions and cancels wait for nobody.

Every request is answered once: who has taken it out with `finish` or `withdraw` answers it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import DaemonError, InvalidArgument, Overloaded, WrongState
from roost.actors.front.envelope import NotARequest, decode_request, error_line
from roost.actors.front.params import decode_params
from roost.schemas.daemon import Initialize, Params
from roost.schemas.rpc import NO_PARAMS, ClientReply, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roost.actors.front.limits import TokenBucket
    from roost.actors.front.method import Method

MAX_CONTROL = 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of one connection may be at work, and how many may wait.

    Where none `waits` for being too many, they are counted together, whatever they are.
    """

    in_flight: int
    queued: int
    waits: bool = True


class Pending:
    """A request that has been let in and not been answered."""

    __slots__ = ("at_work", "id", "key", "method", "ordered", "params")

    def __init__(self, request_id: str | int, method: Method, params: Params) -> None:
        self.id = request_id
        self.method = method
        self.params = params
        self.key = ""
        self.ordered = False
        self.at_work = False


class Connection:
    """What the protocol remembers of one client."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        limits: Limits,
        *,
        authenticated: bool,
        authenticate: Callable[[str], bool],
        bucket: TokenBucket | None = None,
    ) -> None:
        self.initialized = False
        self.experimental = False
        self.greeted = False
        self.authenticated = authenticated
        self.closing = False
        self.stopping = False
        self.ignored = 0
        self._methods = methods
        self.limits = limits
        self._authenticate = authenticate
        self.bucket = bucket
        self._open: dict[str | int, Pending] = {}
        self._keys: dict[str, deque[Pending]] = {}
        self._ready: deque[Pending] = deque()
        self._counts = {"short": 0, "long": 0, "decision": 0, "priority": 0, "control": 0}
        self._waiting = 0

    @property
    def open_requests(self) -> int:
        """How many requests have been let in and not been answered."""
        return len(self._open)

    @property
    def idle(self) -> bool:
        """Whether every request that was let in has been answered."""
        return not self._open

    def receive(self, line: bytes, now: float) -> Pending | Request | ClientReply | bytes | None:
        """Take one message; return the request that is to start, the answer to a refused one, or None.

        A request for a bare method comes as it is. After an answer the connection is to be closed if `closing` is set.
        """
        try:
            request = decode_request(line)
        except NotARequest as fault:
            return self._refuse(fault, now)
        method = self._methods.get(request.method)
        if method is not None and method.bare and self.initialized and self.bucket is None:
            raw = request.params
            if (raw is NO_PARAMS or bytes(raw) == b"{}") and request.id not in self._open:
                return request
        try:
            if self.bucket is not None and not (method is not None and method.unmetered):
                self._take_token(self.bucket, now)
            pending = self._admit(request, method)
        except DaemonError as error:
            return error_line(None if error.code == "PARSE_ERROR" else request.id, error)
        return pending if pending.at_work else None

    def finish(self, pending: Pending) -> list[Pending]:
        """Take an answered request out; return those that may start now. After `drain` there is nothing to take out."""
        if self._open.get(pending.id) is not pending:
            return []
        following = self.release(pending)
        del self._open[pending.id]
        self._counts[pending.method.lane] -= 1
        return following + self._begin_ready()

    def release(self, pending: Pending) -> list[Pending]:
        """Let go what the request held up by its order, though it is not answered yet; return what may start now."""
        if self._open.get(pending.id) is not pending:
            return []
        started: list[Pending] = []
        following = self._let_go(pending)
        if following is not None:
            if following.method.lane == "short":
                self._ready.append(following)
            else:
                self._waiting -= 1
                following.at_work = True
                started.append(following)
        return started + self._begin_ready()

    def _begin_ready(self) -> list[Pending]:
        started: list[Pending] = []
        while self._ready and self._counts["short"] < self.limits.in_flight:
            self._waiting -= 1
            started.append(self._begin_short(self._ready.popleft()))
        return started

    def find(self, request_id: str | int) -> Pending | None:
        """Return the open request of that id."""
        return self._open.get(request_id)

    def withdraw(self, pending: Pending) -> None:
        """Take out a request that waits; it is not to be started."""
        del self._open[pending.id]
        self._waiting -= 1
        if pending.method.lane == "long":
            self._counts["long"] -= 1
        if not pending.ordered and pending.key:
            self._keys[pending.key].remove(pending)
            return
        self._ready.remove(pending)
        following = self._let_go(pending)
        if following is not None:
            self._ready.append(following)

    def drain(self) -> list[Pending]:
        """Take out and return every open request."""
        found = list(self._open.values())
        self._open.clear()
        self._keys.clear()
        self._ready.clear()
        self._counts = dict.fromkeys(self._counts, 0)
        self._waiting = 0
        return found

    def _refuse(self, fault: NotARequest, now: float) -> bytes | None:
        error = fault.error
        if error is None:
            self.ignored += 1
            return None
        try:
            if self.bucket is not None:
                self._take_token(self.bucket, now)
        except DaemonError as limited:
            return error_line(fault.request_id, limited)
        if not self.authenticated:
            error = self._unauthenticated()
        return error_line(fault.request_id, error)

    def check_rate(self, now: float) -> None:
        """Let one more message through.

        Raises:
            Overloaded: there were too many (`RATE_LIMITED`).
        """
        if self.bucket is not None:
            self._take_token(self.bucket, now)

    def _take_token(self, bucket: TokenBucket, now: float) -> None:
        if not bucket.take(now):
            raise Overloaded(
                "RATE_LIMITED",
                "daemon connection rate limit exceeded",
                {
                    "requestRatePerSecond": bucket.rate,
                    "requestBurst": bucket.burst,
                    "retryAfterMs": bucket.retry_after_ms,
                },
            )

    def _admit(self, request: Request, method: Method | None) -> Pending:
        name, raw = request.method, request.params
        if not self.authenticated and name != "initialize":
            raise self._unauthenticated()
        if method is None:
            raise DaemonError("METHOD_NOT_FOUND", f"unknown daemon method: {name[:128]}")
        if raw is not NO_PARAMS and bytes(raw)[:1] != b"{":
            if not self.authenticated:
                raise self._unauthenticated()
            raise InvalidArgument("daemon request params must be an object", {"path": ""})
        if name == "initialize":
            return self._initialize(request, method)
        if self._open and request.id in self._open and name != "request.cancel":
            shown = str(request.id)[:128]
            raise InvalidArgument(f"daemon request is already in flight: {shown}")
        if not self.initialized:
            raise WrongState("CONNECTION_NOT_INITIALIZED", "Not initialized")
        instant = method.lane == "instant"
        if self.stopping and not instant:
            raise WrongState("SHUTTING_DOWN", "the daemon is shutting down")
        if not method.implemented:
            text = f"daemon method is not implemented yet: {name}"
            raise DaemonError("METHOD_NOT_FOUND", text)
        params = decode_params(name, method.params, raw)
        pending = Pending(request.id, method, params)
        if instant:
            pending.at_work = True
        else:
            self._queue(pending)
        return pending

    def _initialize(self, request: Request, method: Method) -> Pending:
        try:
            params = decode_params("initialize", method.params, request.params)
        except InvalidArgument:
            if not self.authenticated:
                raise self._unauthenticated() from None
            raise
        assert isinstance(params, Initialize)
        if not self.authenticated and not self._authenticate(params.auth_cookie):
            raise self._unauthenticated()
        self.authenticated = self.greeted = True
        pending = Pending(request.id, method, params)
        pending.at_work = True
        return pending

    def _unauthenticated(self) -> DaemonError:
        self.closing = True
        return WrongState(
            "CONNECTION_AUTHENTICATION_FAILED", "daemon connection authentication failed"
        )

    def _queue(self, pending: Pending) -> None:
        """Let the request start or wait; raise what refuses it."""
        lane, counts = pending.method.lane, self._counts
        if lane != "short" or not self.limits.waits:
            self._check_count(lane)
        if pending.method.order:
            pending.key = getattr(pending.params, pending.method.order)
        behind = self._keys.get(pending.key) if pending.key else None
        full = lane == "short" and (bool(self._ready) or counts["short"] >= self.limits.in_flight)
        if (behind is not None or full) and self._waiting >= self.limits.queued:
            raise Overloaded(
                "TOO_MANY_QUEUED_REQUESTS",
                "daemon connection has too many queued requests",
                {"maxQueuedRequests": self.limits.queued},
            )
        self._open[pending.id] = pending
        if lane != "short":
            counts[lane] += 1
        if behind is not None:
            self._waiting += 1
            behind.append(pending)
            return
        if pending.key:
            self._keys[pending.key] = deque()
            pending.ordered = True
        if full:
            self._waiting += 1
            self._ready.append(pending)
        elif lane == "short":
            self._begin_short(pending)
        else:
            pending.at_work = True

    def _check_count(self, lane: str) -> None:
        if lane == "control":
            if self._counts["control"] >= MAX_CONTROL:
                raise Overloaded("OVERLOADED", "too many cancels at once", {"retryAfterMs": 100})
        elif self._at_work(lane) >= self.limits.in_flight:
            raise Overloaded(
                "TOO_MANY_IN_FLIGHT_REQUESTS",
                "daemon connection has too many in-flight requests",
                {"maxInFlightRequests": self.limits.in_flight},
            )

    def _at_work(self, lane: str) -> int:
        if self.limits.waits:
            return self._counts[lane]
        return len(self._open) - self._counts["control"]

    def _begin_short(self, pending: Pending) -> Pending:
        self._counts["short"] += 1
        pending.at_work = True
        return pending

    def _let_go(self, pending: Pending) -> Pending | None:
        """Give the place of a resource to the next request that waits for it, and return that one."""
        if not pending.ordered:
            return None
        pending.ordered = False
        waiting = self._keys[pending.key]
        if not waiting:
            del self._keys[pending.key]
            return None
        following = waiting.popleft()
        following.ordered = True
        return following
