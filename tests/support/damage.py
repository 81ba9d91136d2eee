"""Damage done to a store's files, and what is left of its log: for tests and for the bench."""

from __future__ import annotations

import random
from pathlib import Path  # noqa: TC003
from typing import NamedTuple

from roost.schemas import session, turn
from roost.schemas.base import SessionId, TurnId
from tests.support.desk import Actor, Book
from tests.support.store import create_agent, delta, unique, user_message

FILES = ("store.db", "store.db-wal")


class Log(NamedTuple):
    """What each session held: its events as bodies."""

    bodies: dict[str, tuple[bytes, ...]]


class Left(NamedTuple):
    """What a session still gives: its first events, and the error that ended them ("" for none)."""

    bodies: tuple[bytes, ...]
    code: str
    message: str


def fill(book: Book, *, sessions: int = 5, events: int = 40, seed: int = 1) -> Log:
    """Write sessions, half of them into the database and half into its log."""
    words = random.Random(seed)
    names: list[str] = []
    for number in range(sessions):
        agent_id, session_id = f"agent_{seed}_{number}", f"session_{seed}_{number}"
        book.ask(create_agent(agent_id, session_id))
        actor = Actor(book, agent_id, session_id)
        turn_id = TurnId(unique("turn"))
        accepted = actor.accept()
        begin = turn.BeginTurn(turn_id=turn_id, message_id=accepted.message_id)
        actor.send(actor.draft(user_message(session_id, turn_id), begin))
        for _ in range(events):
            actor.send(actor.draft(delta(session_id, turn_id, "x" * words.randint(1, 600))))
        if number == sessions // 2:
            book.connection.execute("pragma wal_checkpoint(restart)").fetchall()
        names.append(session_id)
    return Log({name: left_of(book, name).bodies for name in names})


def left_of(book: Book, session_id: str) -> Left:
    """Read a session from its beginning to its end or to its first error."""
    bodies: list[bytes] = []
    while True:
        page = book.read(
            session.ReadPage(session_id=SessionId(session_id), after=len(bodies), max_events=1000)
        )
        if not isinstance(page, session.Page):
            return Left(tuple(bodies), page.code, page.message)  # type: ignore[attr-defined]
        if not page.bodies:
            return Left(tuple(bodies), "", "")
        bodies.extend(page.bodies)


def behind_damage(book: Book, session_id: str) -> list[bytes]:
    """Read all that can be read of a session, damaged events skipped."""
    bodies: list[bytes] = []
    after = 0
    while True:
        request = session.ReadPage(
            session_id=SessionId(session_id), after=after, max_events=1000, skip_damaged=True
        )
        page = book.read(request)
        assert isinstance(page, session.Page), page
        if not page.bodies and not page.damaged_upto:
            return bodies
        bodies.extend(page.bodies)
        after = max(page.damaged_upto, page.first + len(page.bodies) - 1)


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def cut(path: Path, size: int) -> None:
    """Cut a file off."""
    with path.open("r+b") as file:
        file.truncate(size)


def damage(home: Path, words: random.Random) -> str:
    """Flip a bit, or now and then cut off the rest, at a random place of the database or its log; return what was done."""
    found = [
        home / name for name in FILES if (home / name).exists() and (home / name).stat().st_size
    ]
    path = words.choice(found)
    at = words.randrange(path.stat().st_size)
    if words.random() < 0.25:
        cut(path, at)
        return f"{path.name} cut at {at}"
    bit = words.randrange(8)
    flip(path, at, bit)
    return f"{path.name} bit {bit} of {at}"
