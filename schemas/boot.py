"""What every child process of the daemon is told in its first message."""

from __future__ import annotations

import msgspec

from roost.schemas.base import Message


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """What confines commands on this machine, found out once at the daemon's start.

    `name` is `bubblewrap` (its binary is `program`, and `prefix` what inside it comes before the command), `landlock`, or
    empty if nothing does; `detail` says more to a person.
    """

    name: str = ""
    program: str = ""
    prefix: tuple[str, ...] = ()
    detail: str = ""


NO_BACKEND = Backend(detail="nobody has looked for a sandbox")


class Boot(Message, frozen=True, kw_only=True, tag="boot"):
    """The payload of `control.Start`.

    `settings` is the MessagePack of `roost.config.model.Settings`; `cold` is true for the first store of a daemon, when
    no agent process exists; `started_at` is when the daemon started, in milliseconds since 1970.
    """

    home: str
    settings: bytes
    root_pid: int
    started_at: int
    version: str
    cold: bool = False
    websocket_url: str = ""
    backend: Backend = NO_BACKEND


_decoder: msgspec.msgpack.Decoder[Boot] = msgspec.msgpack.Decoder(Boot)


def decode_boot(payload: bytes) -> Boot:
    """Return what is in the payload of a child's `control.Start`."""
    return _decoder.decode(payload)
