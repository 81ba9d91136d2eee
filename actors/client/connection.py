"""A client of the daemon: newline JSON-RPC over its Unix socket, found through the home."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
import trio
import trio.lowlevel

from roost.actors.client.errors import (
    ClientError,
    Disconnected,
    NotAnswering,
    NotRunning,
    RpcError,
)
from roost.actors.client.replies import Initialized, Reply
from roost.config.errors import HomeError
from roost.config.files import read_cookie, read_daemon_file
from roost.schemas.frame import FrameTooLarge, LineReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from roost.config.paths import Home

PROTOCOL = "1.0.0"
MAX_LINE = 64 * 1024 * 1024
MAX_NOTIFICATIONS = 1024
READ_SIZE = 256 * 1024
ANSWER_TIMEOUT = 30.0
PEER_CREDENTIALS = struct.Struct("3i")

# The decoder keeps what stands there as it is, `null` included; nothing stands for "absent".
NOTHING = msgspec.Raw()

ReplyType = TypeVar("ReplyType", bound=Reply)


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """Something the daemon says without being asked."""

    method: str
    params: msgspec.Raw


class _ErrorData(msgspec.Struct, frozen=True):
    code: str = ""


class _Error(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: msgspec.Raw = NOTHING


class _Incoming(msgspec.Struct, frozen=True):
    id: int | str | None = None
    method: str = ""
    params: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    error: _Error | None = None


_incoming = msgspec.json.Decoder(_Incoming)


class _Waiting:
    """One request without an answer yet."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: _Incoming | None = None


class Connection:
    """An open connection. Answers are matched by id, so any number of tasks may call at once.

    Notifications wait in a bounded channel. While it is full nothing more is read, answers included: a client that
    asks for notifications reads them in a task of its own. One that does not ask gets none.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        *,
        peer_pid: int,
        wants_notifications: bool,
        backlog: int = MAX_NOTIFICATIONS,
    ) -> None:
        self.peer_pid = peer_pid
        self._stream = stream
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._writer = trio.Lock()
        self._closed = False
        self._wants = wants_notifications
        self._notify, self.notifications = trio.open_memory_channel[Notification](backlog)

    async def call(
        self,
        method: str,
        params: Mapping[str, object],
        reply: type[ReplyType],
        *,
        within: float = ANSWER_TIMEOUT,
    ) -> ReplyType:
        """Ask and return the answer; `within` seconds, which may be infinite. A cancelled call drops its answer.

        Raises:
            RpcError: the daemon refused.
            NotAnswering: no answer in time.
            Disconnected: the connection ended before the answer.
        """
        raw = await self.call_raw(method, params, within=within)
        try:
            return msgspec.json.decode(raw, type=reply)
        except msgspec.MsgspecError as error:
            raise ClientError(f"cannot read the daemon's answer to {method}: {error}") from None

    async def call_raw(
        self, method: str, params: Mapping[str, object], *, within: float = ANSWER_TIMEOUT
    ) -> bytes:
        """Ask and return the JSON of the answer; raises as `call` does."""
        self._last_id += 1
        number = self._last_id
        waiting = self._waiting[number] = _Waiting()
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            with trio.move_on_after(within) as scope:
                await self._send(msgspec.json.encode(request) + b"\n")
                await waiting.done.wait()
            if scope.cancelled_caught:
                raise NotAnswering(f"the daemon did not answer {method} within {within:g} s")
        finally:
            del self._waiting[number]
        if waiting.answer is None:
            raise Disconnected("the daemon closed the connection")
        return _unwrap(waiting.answer)

    async def drained(self) -> None:
        """Return once every notification that has come so far has been taken, and its taker had a turn."""
        while self.notifications.statistics().current_buffer_used:
            await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    async def _send(self, data: bytes) -> None:
        if self._closed:
            raise Disconnected("the daemon closed the connection")
        try:
            async with self._writer:
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Disconnected("the daemon closed the connection") from None

    async def receive(self) -> None:
        """Read until the connection ends; then every waiting call and the notifications end too."""
        lines = LineReader(MAX_LINE)
        try:
            with contextlib.suppress(
                trio.BrokenResourceError, trio.ClosedResourceError, FrameTooLarge
            ):
                while data := await self._stream.receive_some(READ_SIZE):
                    for line in lines.feed(data):
                        await self._take(line)
        finally:
            self._closed = True
            for waiting in self._waiting.values():
                waiting.done.set()
            self._notify.close()

    async def _take(self, line: bytes) -> None:
        try:
            message = _incoming.decode(line)
        except msgspec.MsgspecError as error:
            raise ClientError(f"the daemon said something that is no JSON-RPC: {error}") from None
        if message.method:
            if self._wants:
                with contextlib.suppress(trio.BrokenResourceError):
                    await self._notify.send(
                        Notification(method=message.method, params=message.params)
                    )
            return
        waiting = self._waiting.get(message.id) if isinstance(message.id, int) else None
        if waiting is not None:
            waiting.answer = message
            waiting.done.set()
        elif message.id is None and message.error is not None:
            raise _error(message.error)


def _unwrap(message: _Incoming) -> bytes:
    if message.error is not None:
        raise _error(message.error)
    return bytes(message.result) or b"{}"


def _error(error: _Error) -> RpcError:
    code = ""
    if bytes(error.data):
        with contextlib.suppress(msgspec.MsgspecError):
            code = msgspec.json.decode(error.data, type=_ErrorData).code
    return RpcError(error.code, error.message, code, bytes(error.data))


def socket_path(home: Home) -> Path:
    """Return where the daemon of a home listens: as `daemon.json` says, else where it would."""
    with contextlib.suppress(HomeError):
        found = read_daemon_file(home)
        if found is not None and found.socket:
            return home.path / found.socket
    return home.socket


async def _dial(home: Home) -> trio.SocketStream:
    path = socket_path(home)
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        await sock.connect(os.fspath(path))
    except (FileNotFoundError, NotADirectoryError):
        sock.close()
        raise NotRunning(f"no daemon runs in {home.path}; start one with `roost up`") from None
    except OSError as error:
        sock.close()
        raise NotRunning(f"nothing answers at {path} ({error.strerror})") from None
    return trio.SocketStream(sock)


def _peer_pid(stream: trio.SocketStream) -> int:
    """Return the pid of the process that made the listener: root's, whoever accepts; 0 where it is not told."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0
    return _pid_in(stream.socket.getsockopt(socket.SOL_SOCKET, option, PEER_CREDENTIALS.size))


def _pid_in(credentials: bytes) -> int:
    pid: int = PEER_CREDENTIALS.unpack(credentials)[0]
    return pid


def peer_of_socket(home: Home) -> int:
    """Return the pid of the process that listens for the daemon of a home, or 0 if nothing accepts."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(socket_path(home)))
            return _pid_in(probe.getsockopt(socket.SOL_SOCKET, option, PEER_CREDENTIALS.size))
        except OSError:
            return 0


def only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one exception in a group, the first if all are of the command line's own, else the group."""
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting += reversed(cast("BaseExceptionGroup[BaseException]", error).exceptions)
        else:
            leaves.append(error)
    if len(leaves) == 1 or all(isinstance(error, ClientError) for error in leaves):
        return leaves[0]
    return group


@contextlib.asynccontextmanager
async def open_connection(
    home: Home,
    *,
    notifications: bool = False,
    capabilities: Mapping[str, object] | None = None,
    backlog: int = MAX_NOTIFICATIONS,
    within: float = ANSWER_TIMEOUT,
) -> AsyncGenerator[Connection]:
    """Connect to the daemon of a home and initialize; close when the block is left.

    At most `backlog` notifications wait to be taken; the daemon is not read from while they are so many.

    Raises:
        NotRunning: there is no daemon.
        NotAnswering: there is one that does not answer in time.
        RpcError: it refused.
    """
    stream = await _dial(home)
    connection = Connection(
        stream, peer_pid=_peer_pid(stream), wants_notifications=notifications, backlog=backlog
    )
    try:
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(connection.receive)
            await _initialize(connection, home, capabilities or {}, within)
            yield connection
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only_error(group) from None


async def _initialize(
    connection: Connection, home: Home, capabilities: Mapping[str, object], within: float
) -> None:
    params: dict[str, object] = {
        "protocolVersion": PROTOCOL,
        "clientName": "roost",
        "capabilities": capabilities,
    }
    # The daemon knows a Unix socket's peer by its uid; the cookie is for systems that do not tell it.
    with contextlib.suppress(HomeError):
        params["authCookie"] = read_cookie(home)
    await connection.call("initialize", params, Initialized, within=within)
