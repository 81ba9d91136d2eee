"""A few events out of many: those of some types, read backwards through a window of the log that is always as wide.

Text deltas are most of a log and are stepped over; a page therefore may be empty although there is more before it.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, NamedTuple

from roost.actors.store.paging import Damaged, is_of_the_row
from roost.actors.store.sealing import is_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roost.actors.store.journal import Session

# How many events of the log one page goes through, and how much of what it finds it takes.
WINDOW: Final = 2_048
PAGE_BYTES: Final = 524_288

SAID: Final = ("user.message", "agent.message.completed", "transcript.final")
OUTPUTS: Final = (*SAID, "tool.call.completed", "tool.call.failed")

_WINDOW: Final = """select sequence, body, crc from events
    where session = ? and sequence > ? and sequence <= ? and type in ({}) order by sequence desc"""
_COUNT: Final = "select count(*) from events where session = ? and sequence > ? and sequence <= ?"
_ONE: Final = "select type, body, crc from events where session = ? and sequence = ?"


class Window(NamedTuple):
    """What was found, newest first; the events before `next` are still to be read."""

    events: list[tuple[int, bytes]]
    damaged: list[tuple[int, int]]
    next: int


def read_window(
    connection: sqlite3.Connection,
    session: Session,
    after: int,
    upto: int,
    kinds: tuple[str, ...],
    met: Callable[[Damaged], None],
) -> Window:
    """Return the events of these types with `after` < sequence ≤ `upto`, as far down as one page goes.

    `met` is told of the first event that cannot be read.
    """
    after = max(after, upto - WINDOW)
    if after >= upto:
        return Window([], [], after)
    events: list[tuple[int, bytes]] = []
    try:
        (count,) = connection.execute(_COUNT, (session.key, after, upto)).fetchone()
        if count == upto - after:
            sql = _WINDOW.format(",".join("?" * len(kinds)))
            size = 0
            for sequence, body, crc in connection.execute(sql, (session.key, after, upto, *kinds)):
                if not is_sealed(session.key, sequence, body, crc):
                    break
                size += len(body)
                if events and size > PAGE_BYTES:
                    return Window(events, [], sequence)
                events.append((sequence, body))
            else:
                return Window(events, [], after)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not is_of_the_row(error):
            raise
    return _one_by_one(connection, session, after, upto, kinds, met)


def _one_by_one(
    connection: sqlite3.Connection,
    session: Session,
    after: int,
    upto: int,
    kinds: tuple[str, ...],
    met: Callable[[Damaged], None],
) -> Window:
    """Go through a window in which something is damaged."""
    events: list[tuple[int, bytes]] = []
    damaged: list[tuple[int, int]] = []
    size = 0
    for sequence, kind, body in _backwards(connection, session.key, after, upto):
        if body is None:
            if not damaged:
                met(Damaged(session.session_id, sequence))
            if damaged and damaged[-1][0] == sequence + 1:
                damaged[-1] = (sequence, damaged[-1][1])
            else:
                damaged.append((sequence, sequence))
        elif kind in kinds:
            size += len(body)
            if events and size > PAGE_BYTES:
                return Window(events, damaged, sequence)
            events.append((sequence, body))
    return Window(events, damaged, after)


def _backwards(
    connection: sqlite3.Connection, key: int, after: int, upto: int
) -> Iterator[tuple[int, str, bytes | None]]:
    """Yield each sequence with the type and the body of its event; no body if that cannot be read."""
    for sequence in range(upto, after, -1):
        row = None
        try:
            row = connection.execute(_ONE, (key, sequence)).fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not is_of_the_row(error):
                raise
        if row is None or not is_sealed(key, sequence, row[1], row[2]):
            yield sequence, "", None
        else:
            yield sequence, row[0], row[1]
