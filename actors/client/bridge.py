"""Standard input and output joined to the daemon's socket: the bytes are passed on as they are.

Each direction is a loop of blocking calls: what is full on one side is not read from on the other, so neither holds more
than one piece and the beginning of one line. The calls block because the descriptors may be shared with other processes,
to whom a flag set here would happen too.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from typing import TYPE_CHECKING, Final

from roost.actors.client.connection import socket_path
from roost.actors.client.errors import Disconnected, NotRunning

if TYPE_CHECKING:
    from roost.actors.client.greeting import Greeting
    from roost.config.paths import Home

PIECE: Final = 64 * 1024
WHOLE_LINE: Final = 1024 * 1024
"""A line of the daemon's up to this length is written whole or not at all."""


class WholeLines:
    """Turn pieces of a stream into pieces that end with a line; `held` is the beginning of one.

    A line that is longer than the limit is passed on in pieces.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = b""

    def feed(self, data: bytes) -> bytes:
        """Take what was read and return what can be written."""
        end = data.rfind(b"\n") + 1
        if not end and len(self.held) + len(data) > self._limit:
            end = len(data)
        if not end:
            self.held += data
            return b""
        ready, self.held = self.held + data[:end], data[end:]
        return ready


class Bridge:
    """One connection for one pair of descriptors; a `greeting` changes what the client says at first."""

    def __init__(
        self, home: Home, source: int, target: int, greeting: Greeting | None = None
    ) -> None:
        self._greeting = greeting
        self._home = home
        self._source = source
        self._target = target
        self._input_ended = False
        self._lines = WholeLines(WHOLE_LINE)

    def run(self) -> None:
        """Pass on requests and what the daemon says, until the input has ended and the daemon has answered everything.

        The daemon is connected to when there is something to say: it drops who is silent.

        Raises:
            NotRunning: there is no daemon.
            Disconnected: the daemon ended the connection.
            BrokenPipeError: nobody reads the output any more.
        """
        self._wait_for_input()
        with _connect(self._home) as sock:
            threading.Thread(target=self._send_requests, args=(sock,), daemon=True).start()
            try:
                self._write_answers(sock)
            except ConnectionResetError:
                self._input_ended = False
        if not self._input_ended or self._lines.held:
            raise Disconnected("the daemon closed the connection")

    def _wait_for_input(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._target, 0)
        if any(fd == self._target for fd, _ in poll.poll()):
            raise BrokenPipeError

    def _send_requests(self, sock: socket.socket) -> None:
        """Run in a thread of its own, which ends with the process if nothing else ends it."""
        # Whatever fails here ends the connection, and that is seen by who reads from it.
        with contextlib.suppress(OSError):
            while data := self._read():
                sock.sendall(data if self._greeting is None else self._greeting.feed(data))
            if self._greeting is not None:
                sock.sendall(self._greeting.end())
            self._input_ended = True
            sock.shutdown(socket.SHUT_WR)

    def _read(self) -> bytes:
        try:
            return os.read(self._source, PIECE)
        except OSError:
            # A terminal that has hung up says so once by an error.
            return b""

    def _write_answers(self, sock: socket.socket) -> None:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        poll.register(self._target, 0)
        while True:
            if any(fd == self._target for fd, _ in poll.poll()):
                raise BrokenPipeError
            data = sock.recv(PIECE)
            if not data:
                return
            self._write(self._lines.feed(data))

    def _write(self, data: bytes) -> None:
        ready = memoryview(data)
        while ready:
            ready = ready[os.write(self._target, ready) :]


def _connect(home: Home) -> socket.socket:
    path = socket_path(home)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(os.fspath(path))
    except OSError as error:
        sock.close()
        raise NotRunning(f"nothing answers at {path} ({error.strerror})") from None
    return sock
