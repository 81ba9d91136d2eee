"""What `roost app-server` adds to the greeting of its client: that lines should be short.

Many clients of this protocol read lines of at most 64 KiB from a server that they have started, and do not say so. Their
`initialize` says it for them; all else passes as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

LINE_BYTES: Final = 60_000
"""A little less than what they read."""
MEMBER: Final = "roost.lineBytes"
MAX_GREETING: Final = 65_536


class Greeting:
    """Looks at the client's lines until one of them is `initialize`."""

    def __init__(self) -> None:
        self._held = b""
        self._over = False

    def feed(self, data: bytes) -> bytes:
        """Take what the client said and return what is to be sent; the beginning of a line is held back until it is over."""
        if self._over:
            return data
        lines = (self._held + data).split(b"\n")
        self._held = lines.pop()
        ready = b""
        while lines and not self._over:
            ready += self._greeted(lines.pop(0)) + b"\n"
        if self._over or len(self._held) > MAX_GREETING:
            ready += b"".join(line + b"\n" for line in lines) + self.end()
        return ready

    def end(self) -> bytes:
        """Return what was held back; nothing is from now on."""
        self._over = True
        held, self._held = self._held, b""
        return held

    def _greeted(self, line: bytes) -> bytes:
        try:
            message = _object(msgspec.json.decode(line))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return line
        params = _object(message.get("params"))
        if message.get("method") != "initialize":
            return line
        self._over = True
        given = params.get("capabilities")
        if "clientInfo" not in params or not (given is None or _is_object(given)):
            return line
        said = {MEMBER: LINE_BYTES, **_object(params.get("capabilities"))}
        return msgspec.json.encode({**message, "params": {**params, "capabilities": said}})


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
