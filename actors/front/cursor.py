"""Opaque cursors of the lists: where the last page ended, and of which list with which filter (P 16)."""

from __future__ import annotations

import base64
import binascii
from typing import Literal

import msgspec

from roost.actors.errors import DaemonError

MAX_CURSOR = 1024
FAMILY = "roost-"

Kind = Literal["agent", "session"]

_encode = msgspec.json.Encoder().encode


class _Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    k: tuple[int, str]
    f: str = ""


_decode = msgspec.json.Decoder(_Position).decode


def make_cursor(kind: Kind, created_at: int, last_id: str, filtered_by: str = "") -> str:
    """Return the cursor behind an entry."""
    body = _encode(_Position(k=(created_at, last_id), f=filtered_by))
    return _prefix(kind) + base64.urlsafe_b64encode(body).decode().rstrip("=")


def read_cursor(kind: Kind, cursor: str, filtered_by: str = "") -> tuple[int, str]:
    """Return where a cursor points.

    Raises:
        DaemonError: it is none, or one of another list or filter (`INVALID_CURSOR`).
    """
    prefix = _prefix(kind)
    body = cursor.removeprefix(prefix)
    try:
        if len(cursor) > MAX_CURSOR or body == cursor:
            raise ValueError
        decoded = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        position = _decode(decoded)
        if position.f != filtered_by:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        text = f"Invalid AgenC daemon {kind} cursor: {cursor[:64]}"
        raise DaemonError("INVALID_CURSOR", text) from None
    return position.k


def _prefix(kind: Kind) -> str:
    return f"{FAMILY}{kind}-list-v1:"
