"""How a door's answers look as lines; the daemon door's own way is the base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.front.envelope import answer_line, error_line

if TYPE_CHECKING:
    from roost.actors.errors import DaemonError


class Wire:
    """The daemon door's answers."""

    def answer(self, request_id: str | int, result: bytes) -> bytes:
        """Return the line that answers a request with a result."""
        return answer_line(request_id, result)

    def error(self, request_id: str | int | None, error: DaemonError) -> bytes:
        """Return the line that answers a request with an error."""
        return error_line(request_id, error)


DAEMON_WIRE = Wire()


class BareWire(Wire):
    """The same errors without the member `jsonrpc`, for who has sent none."""

    def error(self, request_id: str | int | None, error: DaemonError) -> bytes:
        """Return the line that answers a request with an error."""
        return b"{" + error_line(request_id, error).removeprefix(_HEAD)


_HEAD = b'{"jsonrpc":"2.0",'
BARE_WIRE = BareWire()
