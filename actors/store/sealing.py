"""The checksum of a stored event: over its body, and over where it belongs."""

from __future__ import annotations

from typing import Final
from zlib import crc32

_SPREAD: Final = 0x9E37_79B1
_WORD: Final = 0xFFFF_FFFF


def seal(session: int, sequence: int, body: bytes) -> int:
    """Return the checksum of an event of the session with this key."""
    return crc32(body, (session * _SPREAD + sequence) & _WORD)


def is_sealed(session: int, sequence: int, body: object, crc: object) -> bool:
    """Return whether an event is what was written, where it was written; older rows have a checksum of the body alone."""
    if not isinstance(body, bytes):
        return False
    return crc == seal(session, sequence, body) or crc == crc32(body)
