from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from roost.actors.front.frames import text_frame
from roost.actors.front.peer import Batch
from roost.actors.front.unix_connection import UnixConnection
from roost.actors.front.ws_connection import WebSocketConnection
from roost.config.load import load_settings
from roost.config.paths import Home

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from roost.actors.front.router import Caller
    from roost.actors.front.socket_peer import SocketDoor, SocketPeer


class Wire:
    """A socket that has received some bytes, and takes all that is sent."""

    def __init__(self, received: bytes) -> None:
        self.received = received
        self.sent = b""

    def fileno(self) -> int:
        return -1

    def recv(self, _size: int) -> bytes:
        received, self.received = self.received, b""
        return received

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)


class Said:
    """Answers each message as it is told to: at once, or before it returns, or by an event."""

    def __init__(self, peer: SocketPeer) -> None:
        self._peer = peer

    def receive(self, line: bytes) -> bytes | None:
        kind, _, name = line.partition(b" ")
        if kind == b"now":
            return name + b"\n"
        if kind == b"done":
            self._peer.answer(name + b"\n")
        else:
            self._peer.tell(Batch([name + b"\n"]))
        return None


def nothing(_peer: object) -> None:
    """Flush nothing: the test does."""


def door(home: Path) -> SocketDoor:
    settings = load_settings(Home(home, explicit=True), {}, {}).settings
    poller = SimpleNamespace(mark_dirty=nothing)
    made = SimpleNamespace(
        services=SimpleNamespace(settings=settings), poller=poller, may_take_big=lambda: True
    )
    return cast("SocketDoor", made)


def as_line(name: bytes) -> bytes:
    return name + b"\n"


@pytest.mark.parametrize(
    ("make", "framed"),
    [(UnixConnection, as_line), (WebSocketConnection, text_frame)],
    ids=["unix", "websocket"],
)
def test_what_is_sent_is_in_the_order_in_which_it_was_said(
    tmp_path: Path,
    make: Callable[[SocketDoor, socket.socket], SocketPeer],
    framed: Callable[[bytes], bytes],
) -> None:
    lines = [b"now a", b"now b", b"done c", b"now d", b"event e", b"event f", b"now g", b"done h"]
    masked = [bytes((0x81, 0x80 | len(line))) + bytes(4) + line for line in lines]
    wire = Wire(b"\n".join(lines) + b"\n" if make is UnixConnection else b"".join(masked))
    peer = make(door(tmp_path), cast("socket.socket", wire))
    peer.caller = cast("Caller", Said(peer))
    peer.on_readable()
    peer.flush()
    assert wire.sent == b"".join(framed(bytes((name,))) for name in b"abcdefgh")
