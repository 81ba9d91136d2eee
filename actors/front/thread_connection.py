"""The thread door's rules for one client's messages, without I/O (T 1.1, 1.2, 1.5, 1.8).

In the order in which they apply to one message:

1. What is no message gets an error with the id null; a notification gets nothing, and is nothing.
2. An answer to a request of the server is passed on.
3. The rate.
4. `initialize` once; before it nothing else. `initialized` may come as a request, too.
5. The method, what is for `experimentalApi` alone, an id that is in use, the params.
6. Requests that name one thread start in the order in which they came; interrupts and decisions wait for nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, Overloaded, WrongState
from roost.actors.front.connection import Connection, Pending
from roost.actors.front.envelope import NotARequest
from roost.actors.front.thread_params import decode_thread_params
from roost.actors.front.thread_wire import Incoming, decode_message
from roost.schemas.rpc import ClientReply
from roost.schemas.thread import EXPERIMENTAL

if TYPE_CHECKING:
    from roost.actors.front.method import Method
    from roost.actors.front.thread_wire import ThreadWire
    from roost.schemas.rpc import Request


class ThreadConnection(Connection):
    """What the protocol remembers of one thread client. `wire` is set with the first message that decides it."""

    wire: ThreadWire

    def receive(self, line: bytes, now: float) -> Pending | Request | ClientReply | bytes | None:
        """Take one message; return the request that is to start, a client's answer, the answer to a refused one, or None."""
        try:
            message, _ = decode_message(line)
        except NotARequest as fault:
            return self.wire.error(None, fault.error or WrongState("INVALID_REQUEST", ""))
        if message is None or isinstance(message, ClientReply):
            return message
        if message.id is None:
            self.ignored += message.method != "initialized"
            return None
        method = self._methods.get(message.method)
        try:
            if self.bucket is not None and not (method is not None and method.unmetered):
                self._take_token(self.bucket, now)
            pending = self._take(message, message.id, method)
        except DaemonError as error:
            return self.wire.error(message.id, error)
        return pending if pending.at_work else None

    def _take(self, message: Incoming, request_id: str | int, method: Method | None) -> Pending:
        name = message.method
        if method is None:
            raise self._unknown(name)
        if name == "initialize":
            if self.initialized:
                raise WrongState("CONNECTION_ALREADY_INITIALIZED", "Already initialized")
        elif not self.initialized:
            raise WrongState("CONNECTION_NOT_INITIALIZED", "Not initialized")
        if name in EXPERIMENTAL and not self.experimental:
            raise WrongState(
                "EXPERIMENTAL_API_REQUIRED",
                f"{name} requires experimentalApi capability",
                {"descriptor": name},
            )
        if request_id in self._open:
            raise DaemonError(
                "INVALID_REQUEST", f"id is already in flight: {str(request_id)[:128]}"
            )
        instant = method.lane == "instant"
        if self.stopping and not instant:
            raise Overloaded("SHUTTING_DOWN", "the daemon is shutting down")
        if not method.implemented:
            raise self._unknown(name)
        params = decode_thread_params(name, method.params, message.params)
        pending = Pending(request_id, method, params)
        if instant:
            pending.at_work = True
        else:
            self._queue(pending)
        return pending

    def _unknown(self, name: str) -> DaemonError:
        data: dict[str, object] = {"method": name[:128], "boundProtocol": "thread"}
        return DaemonError("METHOD_NOT_FOUND", f"unknown method: {name[:128]}", data)
