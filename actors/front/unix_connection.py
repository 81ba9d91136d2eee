"""One client on the Unix socket: newline JSON."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from roost.actors.front.socket_peer import SocketPeer
from roost.schemas.frame import LineReader

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from roost.actors.front.socket_peer import SocketDoor


class UnixConnection(SocketPeer):
    """A connection, which may end its input and still read its answers."""

    transport = "unix"

    def __init__(self, door: SocketDoor, sock: socket.socket) -> None:
        super().__init__(door, sock, LineReader(door.services.settings.limits.line_bytes))

    def _answer_all(self, answers: Sequence[bytes]) -> None:
        self.answer(answers[0] if len(answers) == 1 else b"".join(answers))

    def _input_ended(self) -> None:
        """The client sends no more. If it still reads, it gets the answers that it waits for."""
        self._stop_reading()
        self._look_gone()
        if not self.closed:
            self.caller.when_idle(self._leave)

    def _look_gone(self) -> None:
        """End if the client has closed its socket, and not only the half that it wrote to."""
        if self.closed:
            return
        look = select.poll()
        look.register(self._sock, 0)
        if look.poll(0):
            self._end()
