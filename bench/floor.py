"""The floor: a bare server that does the same I/O as the daemon's Unix socket and nothing else.

uvloop and orjson, one process, newline JSON. `health.ping` is answered, `attach` subscribes the connection, and `burst`
sends N notifications of the usual size to every subscriber. No authentication, no validation, no log, no limits.
Usage: floor.py SOCKET
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import cast

import orjson
import uvloop

PING = "health.ping"
subscribers: list[Floor] = []


class Floor(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            message = orjson.loads(line)
            if message["method"] == PING:
                result: dict[str, object] = {"ok": True, "now": time.time()}
            else:
                result = {}
                if message["method"] == "attach":
                    subscribers.append(self)
                elif message["method"] == "burst":
                    burst(message["params"]["n"])
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            self.transport.write(orjson.dumps(answer) + b"\n")


def burst(count: int) -> None:
    for sequence in range(count):
        params = {
            "sessionId": "session_019a0000-0000-7000-8000-000000000000",
            "eventId": "019a0000-0000-7000-8000-000000000000",
            "sequence": sequence,
            "delta": "some text of a stream",
        }
        note = {"jsonrpc": "2.0", "method": "event.message_chunk", "params": params}
        line = orjson.dumps(note) + b"\n"
        for one in subscribers:
            one.transport.write(line)


async def main() -> None:
    loop = asyncio.get_running_loop()
    await loop.create_unix_server(Floor, sys.argv[1], backlog=1024)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.install()
    asyncio.run(main())
