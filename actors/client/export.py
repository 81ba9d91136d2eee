"""Sessions out of the store as JSON lines, one after the other."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import IO, TYPE_CHECKING, NamedTuple

from roost.actors.client.errors import ClientError
from roost.actors.client.lookup import match_id
from roost.actors.store.snapshot import Broken, Gone, NotReadable, Snapshot, stored_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from roost.actors.store.snapshot import LoggedSession
    from roost.config.paths import Home


class Exported(NamedTuple):
    """What an export has written, and how many sessions are not whole."""

    sessions: int
    events: int
    damaged: int


@contextlib.contextmanager
def open_snapshot(home: Home) -> Generator[Snapshot]:
    """Open a read-only view of the store of a home.

    Raises:
        ClientError: there is none that can be read, or it cannot be read any more.
    """
    try:
        with Snapshot(home.store) as snapshot:
            yield snapshot
    except NotReadable as error:
        raise ClientError(str(error)) from None
    except sqlite3.Error as error:
        raise ClientError(f"the store cannot be read: {error}; see `roost doctor`") from None


def find_logged(snapshot: Snapshot, text: str) -> LoggedSession:
    """Return the session with this id, or beginning or end of one.

    Raises:
        ClientError: there is none, or there are several.
    """
    found = snapshot.session(text)
    if found is None:
        ids = [session.session_id for session in snapshot.sessions()]
        session_id = match_id(text, ids, "session")
        found = snapshot.session(session_id) if session_id is not None else None
    if found is None:
        raise ClientError(f"there is no session {text!r}; `roost ps --all --json` names them")
    return found


def choose(snapshot: Snapshot, names: Sequence[str], agent: str) -> Iterator[LoggedSession]:
    """Yield the sessions that are named, or all of them, or all of an agent; ephemeral ones are never exported.

    Raises:
        ClientError: one that is named does not exist or is ephemeral, or there is no such agent.
    """
    if names:
        chosen = {session.key: session for session in (find_logged(snapshot, n) for n in names)}
        for session in chosen.values():
            if session.ephemeral:
                raise ClientError(f"session {session.session_id} is ephemeral: it is not exported")
        for session in chosen.values():
            if not agent or _is_of(session, agent):
                yield session
        return
    any_of_agent = not agent
    for session in snapshot.sessions():
        if not agent or _is_of(session, agent):
            any_of_agent = True
            if not session.ephemeral:
                yield session
    if not any_of_agent:
        raise ClientError(f"there is no session of an agent {agent!r}")


def write_sessions(
    snapshot: Snapshot,
    sessions: Iterator[LoggedSession],
    out: IO[bytes],
    after: int,
    complain: Callable[[str], None],
) -> Exported:
    """Write the events of sessions behind `after`; what cannot be read ends its own session only."""
    events = damaged = count = 0
    for session in sessions:
        count += 1
        written = max(after, session.first_sequence - 1)
        try:
            while rows := snapshot.page(session, written, session.last_sequence):
                out.write(b"".join(stored_line(*row) for row in rows))
                events += len(rows)
                written = rows[-1][0]
        except (Broken, Gone, sqlite3.Error) as error:
            damaged += 1
            what = error if isinstance(error, Broken | Gone) else _told(session, written, error)
            complain(str(what))
    return Exported(count, events, damaged)


def _told(session: LoggedSession, written: int, error: sqlite3.Error) -> str:
    return f"session {session.session_id}: nothing behind event {written} can be read ({error})"


def _is_of(session: LoggedSession, agent: str) -> bool:
    name = session.agent_id
    return agent == name or name.endswith(agent) or name.partition("_")[2].startswith(agent)
