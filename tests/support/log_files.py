"""Logs as JSON lines, and stores filled without a daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from roost.actors.store.catalogue import Catalogue
from roost.actors.store.database import EVENT_BYTES, open_database, write_meta
from roost.actors.store.sealing import seal
from roost.schemas.agent import AgentSpec
from roost.schemas.base import AgentId, SessionId
from roost.schemas.session import SessionSpec
from roost.schemas.validation import judge

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, object]


def event(session: str, sequence: int, kind: str = "user.message", **fields: object) -> Json:
    """Return a stored event."""
    if kind == "user.message":
        fields.setdefault("content", f"message {sequence}")
    return {
        "type": kind,
        "id": f"{session}/{sequence}",
        "version": "1.0",
        "timestamp": 1_700_000_000.5 + sequence,
        "session_id": session,
        "sequence": sequence,
        "metadata": {},
        **fields,
    }


def log(session: str, count: int, first: int = 1) -> list[Json]:
    """Return the events of a session without turns."""
    return [event(session, sequence) for sequence in range(first, first + count)]


def lines(events: list[Json]) -> bytes:
    """Return events as a file."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in events)


def parsed(data: bytes) -> list[Json]:
    """Return the objects of a file."""
    return [json.loads(line) for line in data.splitlines()]


def fill_store(path: Path, *logs: list[Json], ephemeral: bool = False) -> None:
    """Make a store, or add to one, with these sessions, each with an agent of its own."""
    connection = open_database(path, wal_autocheckpoint=4000)
    catalogue = Catalogue(connection)
    connection.execute("begin")
    for events in logs:
        session_id = SessionId(str(events[0]["session_id"]))
        agent_id = AgentId(f"agent_of_{session_id}")
        catalogue.add_agent(AgentSpec(agent_id=agent_id, created_at=1, cwd="/"), has_env=False)
        spec = SessionSpec(
            session_id=session_id, agent_id=agent_id, created_at=1, ephemeral=ephemeral
        )
        catalogue.add_session(spec)
        sql = "select key from sessions where session_id = ?"
        (key,) = connection.execute(sql, (session_id,)).fetchone()
        size = 0
        for one in events:
            found = judge(msgspec.json.encode(one)).event
            assert found is not None, one
            size += len(found.body) + EVENT_BYTES
            row = (found.sequence, found.id, found.type, found.turn_id, found.body)
            connection.execute(
                "insert into events(session, sequence, event_id, type, turn_id, body, crc)"
                " values(?, ?, ?, ?, ?, ?, ?)",
                (key, *row, seal(key, found.sequence, found.body)),
            )
        last = int(str(events[-1]["sequence"]))
        connection.execute(
            "update counters set last_sequence = ?, bytes = ? where session = ?", (last, size, key)
        )
    write_meta(connection, "clean", "1")
    connection.execute("commit")
    connection.close()
