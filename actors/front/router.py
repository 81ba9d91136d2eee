"""From a request to its handler and back to the client: one `Caller` per connection.

A handler that can answer at once does so in the sweep that read its request. Any other is a coroutine that is driven
by the answers it waits for; a request costs no task.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import DaemonError, Internal, WrongState
from roost.actors.front.attachments import Visitor
from roost.actors.front.binding import judge, refusal
from roost.actors.front.connection import Connection, Limits, Pending
from roost.actors.front.envelope import answer_line
from roost.actors.front.limits import make_bucket
from roost.actors.front.params import NOTHING
from roost.actors.front.promise import Work
from roost.actors.front.thread_connection import ThreadConnection
from roost.actors.front.thread_wire import WIRES, ThreadWire
from roost.actors.front.wire import BARE_WIRE, DAEMON_WIRE
from roost.schemas.rpc import ClientReply, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roost.actors.front.auth import PeerIdentity
    from roost.actors.front.binding import Judgement
    from roost.actors.front.door import Door, Entry, Outcome
    from roost.actors.front.limits import TokenBucket
    from roost.actors.front.peer import Peer
    from roost.actors.front.services import Services
    from roost.actors.front.thread_feeds import ThreadClient
    from roost.actors.front.wire import Wire
    from roost.schemas.daemon import Params

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class Call:
    """One request at work."""

    __slots__ = ("after", "caller", "on_cancel", "pending", "services", "work")

    def __init__(self, caller: Caller, pending: Pending) -> None:
        self.caller = caller
        self.services = caller.services
        self.pending = pending
        self.work: Work[Outcome] | None = None
        self.on_cancel: Callable[[str], None] | None = None
        self.after: list[Callable[[], None]] = []
        """Called in order once the answer is queued, whatever it is."""

    @property
    def method(self) -> str:
        """The name of the method, for texts."""
        return self.pending.method.name

    def release_order(self) -> None:
        """Let the next request for the same resource start, though this one is not answered yet."""
        self.caller.start(self.caller.connection.release(self.pending))


class Caller:
    """One connection as the handlers see it. The transport calls `receive` and `end`."""

    def __init__(
        self,
        services: Services,
        door: Door,
        peer: Peer,
        *,
        authenticated: bool,
        authenticate: Callable[[str], bool],
        bucket: TokenBucket | None,
        identity: PeerIdentity | None = None,
    ) -> None:
        self.services = services
        self.number = services.next_caller()
        self.peer = peer
        self.visitor = Visitor(peer)
        self.identity = identity
        self.connection = self._daemon = Connection(
            door.methods,
            _limits_of(services, peer),
            authenticated=authenticated,
            authenticate=authenticate,
            bucket=bucket,
        )
        self.connection.stopping = services.stopping
        self.wire = DAEMON_WIRE
        self.on_reply: Callable[[ClientReply], None] = _ignore
        self.thread: ThreadClient | None = None
        """What a client of the thread door has said of itself."""
        self._door = door
        self._threaded: ThreadConnection | None = None
        self._jsonrpc: bool | None = None
        self._unbound = door.thread is not None
        self._entries: Mapping[str, Entry[Params]] = door.entries
        self._bare = door.bare
        self._calls: dict[str | int, Call] = {}
        self._starting: deque[Pending] = deque()
        self._pumping = False
        self._on_idle: Callable[[], None] | None = None
        self.ended = False
        self.at_end: dict[str, Callable[[], object]] = {}

    def configure(self, rate: int, burst: int) -> None:
        """Take over the limits of new settings, and a rate; tokens that are used up stay so if it is the old one."""
        services, limits = self.services, self.services.settings.limits
        self.connection.limits = _limits_of(services, self.peer)
        bucket = self.connection.bucket
        if (bucket.rate, bucket.burst) != (rate, burst) if bucket is not None else rate:
            self.connection.bucket = make_bucket(rate, burst, services.timers.now())
        if self._unbound and self.connection is not self._daemon:
            self._daemon.limits, self._daemon.bucket = (
                self.connection.limits,
                self.connection.bucket,
            )
        self.peer.set_limits(limits.unsent_response_bytes, limits.client_queue_bytes)

    def receive(self, line: bytes) -> bytes | None:
        """Handle one message of the client; return its answer, to be sent, if there is one at once."""
        if self._unbound:
            refusal = self._choose(line)
            if refusal is not None:
                return refusal
        now = self.services.timers.now() if self.connection.bucket is not None else 0.0
        outcome = self.connection.receive(line, now)
        if type(outcome) is Request:
            self.services.requests += 1
            return answer_line(outcome.id, self._bare[outcome.method](self, NOTHING))
        if outcome is None:
            return None
        if isinstance(outcome, bytes):
            if self.connection.closing:
                self.peer.answer(outcome)
                self.peer.finish(1008, "authentication failed")
                return None
            return outcome
        if isinstance(outcome, ClientReply):
            self.on_reply(outcome)
            return None
        assert isinstance(outcome, Pending)
        self.services.requests += 1
        if outcome.method.lane == "instant":
            return self._answer_now(outcome)
        self.start((outcome,))
        return None

    def start(self, pendings: tuple[Pending, ...] | list[Pending]) -> None:
        """Start requests that have been let through; what they let through in turn is started after them."""
        self._starting.extend(pendings)
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._starting and not self.ended:
                self._start(self._starting.popleft())
        finally:
            self._pumping = False

    def cancel(self, request_id: str | int, reason: str) -> bool:
        """Answer an open request with `REQUEST_CANCELLED`; return whether there was one that can be cancelled."""
        pending = self.connection.find(request_id)
        if pending is None:
            return False
        call = self._calls.get(request_id)
        if call is None:
            if pending.at_work:
                return False
            self.connection.withdraw(pending)
            following: list[Pending] = []
        elif call.on_cancel is None:
            return False
        else:
            if call.work is not None:
                call.work.cancel()
            call.on_cancel(reason)
            del self._calls[request_id]
            following = self.connection.finish(pending)
        data = {"requestId": request_id, "reason": reason}
        text = f"daemon request cancelled: {request_id}"
        self._refuse(request_id, WrongState("REQUEST_CANCELLED", text, data))
        self.start(following)
        return True

    @property
    def with_jsonrpc(self) -> bool:
        """Whether what is sent to a thread client carries `jsonrpc`."""
        return self._jsonrpc is not False

    def become_thread(self, client: ThreadClient, on_reply: Callable[[ClientReply], None]) -> None:
        """Speak the thread protocol for good."""
        self.thread, self.on_reply = client, on_reply
        if client.view.line_bytes:
            wire = ThreadWire(jsonrpc=self.with_jsonrpc, line_bytes=client.view.line_bytes)
            self.wire = wire
            if self._threaded is not None:
                self._threaded.wire = wire
        self.connection.initialized = self.connection.greeted = True
        self.connection.experimental = client.view.experimental
        self.services.threads.join(client)
        self.at_end["threads"] = lambda: self.services.threads.leave(client)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once all that the client has asked is answered; not at all if the connection ends before."""
        self._on_idle = callback
        self._look_idle()

    def end(self) -> None:
        """The connection has ended: give up what it waits for; turns go on."""
        if self.ended:
            return
        self.ended = True
        self._on_idle = None
        _, after = self._give_up()
        self.services.attachments.leave(self.visitor)
        at_end, self.at_end = self.at_end, {}
        for callback in (*at_end.values(), *after):
            callback()

    def shut_down(self) -> None:
        """Answer everything that is open, because the daemon stops."""
        error = WrongState("SHUTTING_DOWN", "the daemon is shutting down")
        found, after = self._give_up()
        for pending in found:
            self._refuse(pending.id, error)
        for callback in after:
            callback()

    def _choose(self, line: bytes) -> bytes | None:
        """Let the door that a message is for take it; the first that is initialized keeps the connection."""
        if self.connection.initialized:
            self._unbound = False
            return None
        thread = self._door.thread
        if thread is None or not self._daemon.authenticated:
            return None
        found = judge(line)
        if self._jsonrpc is None:
            self._jsonrpc = found.jsonrpc
        wire = WIRES[self._jsonrpc is not False]
        refused = refusal(found, self._door.methods)
        if refused is not None:
            return self._refuse_first(found, refused, wire)
        if found.side == "thread":
            self._use(thread, self._thread_connection(thread, wire), wire)
        else:
            self._use(self._door, self._daemon, DAEMON_WIRE)
        return None

    def _refuse_first(self, found: Judgement, error: DaemonError, wire: Wire) -> bytes:
        """Return the answer to a request that belongs to no door that the connection could be bound to."""
        try:
            self._daemon.check_rate(self.services.timers.now())
        except DaemonError as limited:
            error = limited
        if error.code == "CONNECTION_NOT_INITIALIZED":
            wire = BARE_WIRE if self._jsonrpc is False else DAEMON_WIRE
        return wire.error(found.request_id, error)

    def _thread_connection(self, thread: Door, wire: ThreadWire) -> ThreadConnection:
        connection = self._threaded
        if connection is None:
            connection = self._threaded = ThreadConnection(
                thread.methods,
                self._daemon.limits,
                authenticated=True,
                authenticate=lambda _: True,
                bucket=self._daemon.bucket,
            )
        connection.wire = wire
        connection.limits, connection.bucket = self._daemon.limits, self._daemon.bucket
        return connection

    def _use(self, door: Door, connection: Connection, wire: Wire) -> None:
        self.connection, self.wire = connection, wire
        connection.stopping = self.services.stopping
        self._entries, self._bare = door.entries, door.bare

    def _give_up(self) -> tuple[list[Pending], list[Callable[[], None]]]:
        """Return what was open, and what is to be done after its answers: it gives back what was held meanwhile."""
        self._starting.clear()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if call.work is not None:
                call.work.cancel()
        after = [callback for call in calls.values() for callback in call.after]
        return self.connection.drain(), after

    def _answer_now(self, pending: Pending) -> bytes:
        try:
            result = self._entries[pending.method.name].answer(self, pending.params)
        except DaemonError as error:
            return self.wire.error(pending.id, error)
        except Exception:  # noqa: BLE001
            _log.exception("%s crashed", pending.method.name)
            return self.wire.error(pending.id, Internal())
        return self.wire.answer(pending.id, result)

    def _start(self, pending: Pending) -> None:
        call = Call(self, pending)
        coroutine = self._entries[pending.method.name].begin(call, pending.params)
        work = call.work = Work(coroutine, lambda outcome: self._finish(pending, outcome))
        self._calls[pending.id] = call
        work.step()

    def _finish(self, pending: Pending, outcome: Outcome | DaemonError) -> None:
        """Answer a request. What goes wrong here, in whatever read the answer, costs this connection and no other."""
        try:
            self._conclude(pending, outcome)
        except Exception:  # noqa: BLE001
            _log.exception("the end of %s crashed", pending.method.name)
            self.peer.abort("a fault of the daemon")

    def _conclude(self, pending: Pending, outcome: Outcome | DaemonError) -> None:
        if isinstance(outcome, DaemonError):
            self._refuse(pending.id, outcome)
        else:
            result = outcome if isinstance(outcome, msgspec.Raw) else _encode(outcome)
            self.peer.answer(self.wire.answer(pending.id, result))
        call = self._calls.pop(pending.id, None)
        if call is not None:
            for callback in call.after:
                callback()
        self.start(self.connection.finish(pending))
        if self._on_idle is not None:
            self._look_idle()

    def _look_idle(self) -> None:
        callback = self._on_idle
        if callback is not None and self.connection.idle:
            self._on_idle = None
            callback()

    def _refuse(self, request_id: str | int, error: DaemonError) -> None:
        self.peer.answer(self.wire.error(request_id, error))


def _ignore(_reply: ClientReply) -> None:
    """Nothing was asked of the client."""


def _limits_of(services: Services, peer: Peer) -> Limits:
    limits = services.settings.limits
    return Limits(
        in_flight=limits.in_flight_requests, queued=limits.queued_requests, waits=peer.waits
    )
