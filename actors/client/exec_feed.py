"""Standard input of `roost exec` on its way to the command.

It is read ahead up to a bound and sent in one request at a time, so that a command that does not read stops who writes to us.
While a request waits what comes is put together: the daemon counts requests, not bytes.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import trio
import trio.lowlevel

from roost.actors.client.errors import Disconnected, RpcError
from roost.actors.client.exec_params import PROCESS_ID, retry_delay
from roost.actors.client.replies import Nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.client.connection import Connection
    from roost.actors.client.exec_files import Input

PIECE: Final = 256 * 1024
AHEAD: Final = 1024 * 1024
INTERRUPT: Final = b"\x03"
PATIENCE: Final = 5.0
TIMES: Final = 3


class Feed:
    """What the command reads: what comes from `source`, and what is typed for the user with `push`."""

    def __init__(self, connection: Connection, source: Input | None) -> None:
        self._connection = connection
        self._source = source
        self._pending = bytearray()
        self._ended = False
        self._came = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()
        self._sent_at = float("inf")
        self._presses = 0
        self.on_stuck: Callable[[], None] | None = None
        """Called when the user presses Ctrl-C again and again while the daemon does not take it; for keyboards only."""

    def push(self, data: bytes) -> bool:
        """Put a few bytes behind what waits; return whether the command still reads."""
        if not self._ended:
            self._pending += data
            self._came.unpark_all()
        return not self._ended

    async def run(self) -> None:
        """Send all, then the end; return then, or as soon as the command takes no more."""
        async with trio.open_nursery() as nursery:
            if self._source is not None:
                nursery.start_soon(self._read, self._source)
            await self._send_all()
            self._ended = True
            nursery.cancel_scope.cancel()

    async def _read(self, source: Input) -> None:
        while data := await source.read():
            self._notice(data)
            self._pending += data
            self._came.unpark_all()
            while len(self._pending) >= AHEAD:
                await self._taken.park()
        self._ended = True
        self._came.unpark_all()

    def _notice(self, data: bytes) -> None:
        """Count Ctrl-C while nothing is taken; a terminal in raw mode has no other way out."""
        if trio.current_time() - self._sent_at < PATIENCE:
            self._presses = 0
            return
        self._presses += data.count(INTERRUPT)
        if self._presses >= TIMES and self.on_stuck is not None:
            self.on_stuck()

    async def _send_all(self) -> None:
        last = False
        while not last:
            while not self._pending and not self._ended:
                await self._came.park()
            piece = bytes(self._pending[:PIECE])
            del self._pending[:PIECE]
            last = self._ended and not self._pending
            self._taken.unpark_all()
            if not await self._send(piece, last=last):
                return

    async def _send(self, piece: bytes, *, last: bool) -> bool:
        """Send a piece and wait until it is taken; return whether the command still reads."""
        params: dict[str, object] = {"processId": PROCESS_ID}
        if piece:
            params["deltaBase64"] = base64.b64encode(piece).decode()
        if last:
            params["closeStdin"] = True
        self._sent_at = trio.current_time()
        try:
            return await ask_patiently(self._connection, "commandExec.write", params)
        finally:
            self._sent_at = float("inf")


async def ask_patiently(connection: Connection, method: str, params: dict[str, object]) -> bool:
    """Ask, again where the daemon says that it has too much to do; return whether it was done.

    A daemon that has gone is no error here: who waits for the command's end hears of it.
    """
    while True:
        try:
            await connection.call(method, params, Nothing, within=float("inf"))
        except Disconnected:
            return False
        except RpcError as error:
            delay = retry_delay(error)
            if delay is None:
                return False
        else:
            return True
        await trio.sleep(delay)
