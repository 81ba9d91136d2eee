"""The commands of a fake daemon: one, which writes and ends as a test tells it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.schemas.command_exec import (
    CommandResize,
    CommandStart,
    CommandTerminate,
    CommandWrite,
    TerminalSize,
)
from tests.support.fake_daemon import FakeClient, FakeDaemon, Params, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

Ended = dict[str, object] | Refusal
KILLED: Params = {"exitCode": -1, "signal": "SIGTERM"}


class FakeCommand:
    """What the client started last; `wait` for what it is to do."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.start: CommandStart | None = None
        self.client: FakeClient | None = None
        self.input = b""
        self.input_closed = False
        self.sizes: list[tuple[int, int]] = []
        self.terminated = False
        self.is_stubborn = False
        self._ended: Ended | None = None
        self._changed = trio.Condition()
        for method, handler in {
            "start": self._start,
            "write": self._write,
            "resize": self._resize,
            "terminate": self._terminate,
        }.items():
            daemon.handlers[f"commandExec.{method}"] = handler

    async def wait(self, claim: Callable[[], object]) -> None:
        """Wait until something that the client did has made the claim true."""
        async with self._changed:
            while not claim():
                await self._changed.wait()

    async def wait_started(self) -> CommandStart:
        await self.wait(lambda: self.start)
        assert self.start is not None
        return self.start

    async def write(self, data: bytes, stream: str = "stdout") -> None:
        """Write something, once it is started."""
        start = await self.wait_started()
        assert self.client is not None
        delta = {
            "processId": start.process_id,
            "stream": stream,
            "deltaBase64": base64.b64encode(data).decode(),
            "capReached": False,
        }
        method = "commandExec.outputDelta"
        await self.client.send({"jsonrpc": "2.0", "method": method, "params": delta})

    async def end(self, ended: Ended | None = None, **result: object) -> None:
        """End it, by default with exit code 0."""
        await self.wait_started()
        self._ended = ended or {"exitCode": 0, "stdout": "", "stderr": "", **result}
        await self._tell()

    async def lose(self) -> None:
        """Close the connection, as a daemon that is killed."""
        await self.wait_started()
        assert self.client is not None
        await self.client.stream.aclose()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _start(self, client: FakeClient, params: Params) -> object:
        self.start = msgspec.convert(params, type=CommandStart)
        self.client = client
        await self._tell()
        await self.wait(lambda: self._ended is not None)
        if isinstance(self._ended, Refusal):
            raise self._ended
        return self._ended

    async def _write(self, client: FakeClient, params: Params) -> object:
        asked = msgspec.convert(params, type=CommandWrite)
        self.input += base64.b64decode(asked.delta_base64 or "", validate=True)
        self.input_closed = self.input_closed or asked.close_stdin
        await self._tell()
        return {}

    async def _resize(self, client: FakeClient, params: Params) -> object:
        size = msgspec.convert(params, type=CommandResize).size
        self.sizes.append(as_pair(size))
        await self._tell()
        return {}

    async def _terminate(self, client: FakeClient, params: Params) -> object:
        msgspec.convert(params, type=CommandTerminate)
        self.terminated = True
        if self._ended is None and not self.is_stubborn:
            self._ended = dict(KILLED)
        await self._tell()
        return {}


def as_pair(size: TerminalSize | None) -> tuple[int, int]:
    """Return rows and columns."""
    assert size is not None
    return size.rows, size.cols
