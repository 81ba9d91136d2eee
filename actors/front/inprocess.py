"""Connections of code in the front's own process (P 2.4): the same core, no socket, no framing.

A handle speaks JSON as every client does, so what is checked and what is answered is the same. What it is told comes in
order, and never inside a call of its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.errors import DaemonError, WrongState
from roost.actors.front.envelope import NotARequest, decode_request, error_line
from roost.actors.front.inprocess_peer import DeafPeer, InProcessPeer
from roost.actors.front.promise import Promise
from roost.actors.front.router import Caller
from roost.actors.front.thread_wire import Incoming, decode_message
from roost.schemas.daemon import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roost.actors.front.door import Door
    from roost.actors.front.services import Services

CLIENT_NAME = "agenc-in-process"

_encode = msgspec.json.Encoder().encode


class _Fault(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: dict[str, object] = {}


class _Answer(msgspec.Struct, frozen=True):
    id: str | int | None
    result: msgspec.Raw = msgspec.Raw()
    error: _Fault | None = None


_decode = msgspec.json.Decoder(_Answer).decode


class InProcess:
    """A connection's handle. After `close`, or the daemon's stop, every call raises `trio.ClosedResourceError`."""

    def __init__(
        self, host: InProcessDoor, on_notification: Callable[[bytes], None] | None
    ) -> None:
        services = host.services
        limits = services.settings.limits
        if on_notification is None:
            self._peer: InProcessPeer = DeafPeer(limits, answered=self._take, ended=self._end)
        else:
            self._peer = InProcessPeer(
                limits, answered=self._take, notified=on_notification, ended=self._end
            )
        self.ended: Promise[None] = Promise()
        self._host = host
        self._limit = limits.line_bytes
        self._last_id = 0
        self._at_once: deque[tuple[bytes, Promise[bytes | None]]] = deque()
        self._waiting: dict[str | int, deque[Promise[bytes | None]]] = {}
        self._caller = Caller(
            services,
            host.door,
            self._peer,
            authenticated=True,
            authenticate=_never,
            bucket=None,
        )
        host.peers[self._peer] = self._caller

    @property
    def closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._peer.closed

    def dispatch(self, message: bytes) -> Promise[bytes | None]:
        """Handle one JSON-RPC message; promise its answer, or None if it is one that gets none.

        A promise that is open when the handle is closed fails with `REQUEST_CANCELLED`.

        Raises:
            trio.ClosedResourceError: the handle is closed.
        """
        if self.closed:
            raise trio.ClosedResourceError("the connection in this process is closed")
        promise: Promise[bytes | None] = Promise()
        answer = self._receive(message)
        if self.closed:
            promise.fail(_cancelled(""))
            return promise
        if answer is not None:
            self._at_once.append((answer, promise))
            self._peer.answer(answer)
            return promise
        request_id = self._id_of(message)
        if request_id is None:
            promise.resolve(None)
        else:
            self._waiting.setdefault(request_id, deque()).append(promise)
        return promise

    async def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        request_id: str | int | None = None,
    ) -> bytes:
        """Ask and return the result's JSON. When cancelled, the request goes on and its answer is dropped.

        Raises:
            DaemonError: it was refused, or the handle was closed meanwhile.
            trio.ClosedResourceError: the handle is closed.
        """
        if request_id is None:
            self._last_id += 1
            request_id = f"request-{self._last_id}"
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        promise = self.dispatch(_encode(message))
        done = trio.Event()
        promise.then(done.set)
        await done.wait()
        answer = promise.result()
        assert answer is not None
        return _result(answer)

    async def initialize(self, **params: object) -> bytes:
        """Open the logical connection: without params, in the server's own version and for nobody's name.

        Raises:
            DaemonError: it was refused.
            trio.ClosedResourceError: the handle is closed.
        """
        own = {"protocolVersion": PROTOCOL_VERSION, "clientName": CLIENT_NAME}
        return await self.request("initialize", {**own, **params}, request_id="initialize")

    def close(self) -> None:
        """Detach and give up what is asked, as often as it is called; turns go on."""
        self._peer.end()

    def _id_of(self, message: bytes) -> str | int | None:
        """Return the id of a request; of what is answered by nobody, None."""
        try:
            if self._caller.thread is None:
                return decode_request(message).id
            found, _ = decode_message(message)
        except NotARequest:
            return None
        return found.id if isinstance(found, Incoming) else None

    def _receive(self, message: bytes) -> bytes | None:
        if len(message) > self._limit:
            text = f"a message has at most {self._limit} bytes"
            return error_line(None, DaemonError("MESSAGE_TOO_LARGE", text, {"limit": self._limit}))
        return self._caller.receive(message)

    def _take(self, line: bytes) -> None:
        """Give an answer to who waits for it: those given at once are told by what they are, the others by their ids."""
        if self._at_once and self._at_once[0][0] is line:
            self._at_once.popleft()[1].resolve(line[:-1])
            return
        request_id = _decode(line).id
        assert request_id is not None
        waiting = self._waiting[request_id]
        promise = waiting.popleft()
        if not waiting:
            del self._waiting[request_id]
        promise.resolve(line[:-1])

    def _end(self) -> None:
        self._host.peers.pop(self._peer, None)
        self._caller.end()
        given, left = list(self._at_once), list(self._waiting.items())
        self._at_once.clear()
        self._waiting.clear()
        for answer, promise in given:
            promise.resolve(answer[:-1])
        for request_id, promises in left:
            for promise in promises:
                promise.fail(_cancelled(request_id))
        self.ended.resolve(None)


class InProcessDoor:
    """The way in for code of this process; who holds it is trusted."""

    def __init__(self, services: Services, door: Door) -> None:
        self.services = services
        self.door = door
        self.peers: dict[InProcessPeer, Caller] = {}

    async def open(
        self, on_notification: Callable[[bytes], None] | None = None, **initialize: object
    ) -> InProcess:
        """Return an initialized handle; without a callback it is told nothing but answers.

        Raises:
            DaemonError: initialize was refused; the handle is closed.
        """
        handle = self.connect(on_notification)
        try:
            await handle.initialize(**initialize)
        except BaseException:
            handle.close()
            raise
        return handle

    def connect(self, on_notification: Callable[[bytes], None] | None = None) -> InProcess:
        """Return a handle that is not initialized."""
        return InProcess(self, on_notification)


def _result(answer: bytes) -> bytes:
    found = _decode(answer)
    error = found.error
    if error is None:
        return bytes(found.result)
    data = dict(error.data)
    raise DaemonError(str(data.pop("code", "INTERNAL")), error.message, data)


def _cancelled(request_id: str | int) -> DaemonError:
    data = {"requestId": request_id, "reason": "connection closed"}
    return WrongState("REQUEST_CANCELLED", f"daemon request cancelled: {request_id}", data)


def _never(_given: str) -> bool:
    return False
