"""Cuts texts to what a tool's result may hold: head and tail, by bytes and by size as JSON."""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode

ENCODED_BYTES = 60_000
"""How long a text may be as JSON, so that the result with all else stays under 65,536 bytes."""


def clip(head: bytes, tail: bytes, omitted: int) -> tuple[str, bool]:
    """Return head and tail as one text, and whether something is left out.

    `omitted` is how many bytes between them are gone already.
    """
    text = _join(head, tail, omitted)
    while len(_encode(text)) > ENCODED_BYTES:
        keep = max(len(head), len(tail)) * 2 // 3
        omitted += max(len(head) - keep, 0) + max(len(tail) - keep, 0)
        head = head[:keep]
        tail = tail[len(tail) - min(keep, len(tail)) :]
        text = _join(head, tail, omitted)
    return text, omitted > 0


def _join(head: bytes, tail: bytes, omitted: int) -> str:
    if not omitted:
        return (head + tail).decode(errors="replace")
    start = head.decode(errors="ignore")
    return f"{start}\n[… {omitted} bytes left out …]\n{tail.decode(errors='replace')}"
