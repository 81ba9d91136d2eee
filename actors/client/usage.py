"""What takes space in a home: its files, and the events of each session."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from roost.actors.store.snapshot import Snapshot
    from roost.config.paths import Home

_BREAK = re.compile(r"[\t\n\u2028\u2029]")
FOLDERS = ("logs", "workspaces", "damaged")


class FileUsage(NamedTuple):
    """A file, or a folder with all that is in it."""

    name: str
    bytes: int


class SessionUsage(NamedTuple):
    """The events of a session, and what they take in the store's file."""

    agent_id: str
    session_id: str
    events: int
    bytes: int


class Usage(NamedTuple):
    """What takes space, the largest first."""

    files: list[FileUsage]
    sessions: list[SessionUsage]

    def session_rows(self) -> list[tuple[str, str, str, str]]:
        """Return a row of a table for each session; no id breaks its line."""
        return [
            (
                _in_line(s.agent_id) or "-",
                _in_line(s.session_id),
                str(s.events),
                format_bytes(s.bytes),
            )
            for s in self.sessions
        ]

    def as_json(self) -> dict[str, object]:
        """Return the figures for programs, with sums for each agent."""
        agents: dict[str, dict[str, object]] = {}
        events: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for one in self.sessions:
            events[one.agent_id] = events.get(one.agent_id, 0) + one.events
            sizes[one.agent_id] = sizes.get(one.agent_id, 0) + one.bytes
        for agent_id, count in events.items():
            agents[agent_id] = {"agentId": agent_id, "events": count, "bytes": sizes[agent_id]}
        return {
            "files": [one._asdict() for one in self.files],
            "agents": sorted(agents.values(), key=lambda one: -sizes[str(one["agentId"])]),
            "sessions": [
                {
                    "sessionId": one.session_id,
                    "agentId": one.agent_id,
                    "events": one.events,
                    "bytes": one.bytes,
                }
                for one in self.sessions
            ],
        }


def measure(home: Home, snapshot: Snapshot) -> Usage:
    """Return what takes space in a home.

    Raises:
        sqlite3.Error: the store cannot be read.
    """
    sessions = [
        SessionUsage(
            session.agent_id,
            session.session_id,
            session.last_sequence - session.first_sequence + 1,
            snapshot.size(session),
        )
        for session in snapshot.sessions()
    ]
    sessions.sort(key=lambda one: -one.bytes)
    return Usage(_files(home), sessions)


def format_bytes(size: int) -> str:
    """Return a size for people, exact where it is small."""
    if size < 10_000:
        return f"{size} B"
    return f"{size / 1024:.0f} KiB" if size < 10_000_000 else f"{size / 1024 / 1024:.0f} MiB"


def _in_line(text: str) -> str:
    return _BREAK.sub("\ufffd", text)


def _files(home: Home) -> list[FileUsage]:
    found: dict[str, int] = {}
    for entry in os.scandir(home.path):
        if entry.name in FOLDERS:
            found[f"{entry.name}/"] = _below(home.path / entry.name)
        elif entry.is_file(follow_symlinks=False) and entry.name.startswith("store"):
            found[entry.name] = entry.stat(follow_symlinks=False).st_size
    return sorted((FileUsage(*one) for one in found.items()), key=lambda one: -one.bytes)


def _below(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                continue  # it has just gone
    return total
