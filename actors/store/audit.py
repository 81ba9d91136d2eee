"""The record of decisions about tool calls: one JSON line each in `audit/permission-audit.jsonl`, beside the log of events.

It is for people and their tools; the daemon reads nothing of it, and a line that cannot be written is lost with a warning.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from roost.schemas.base import iso_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roost.schemas.approval import PendingRow

FOLDER: Final = "audit"
FILE: Final = "permission-audit.jsonl"
MAX_TEXT: Final = 512
_FLAGS: Final = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | os.O_CLOEXEC
    | os.O_NOFOLLOW
    | os.O_NONBLOCK
    | os.O_NOCTTY
)

_REASON_CODES: Final = {
    "denied": "rpc_denied",
    "cancelled": "rpc_cancelled",
}
_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class Decided(NamedTuple):
    """An approval that has been settled, by a client or by the daemon itself."""

    session_id: str
    agent_id: str
    row: PendingRow
    by_client: bool


class Audit:
    """The file, opened at the first decision; only the store writes to it."""

    def __init__(self, home: Path, *, rotate_bytes: int, keep: int) -> None:
        self._folder = home / FOLDER
        self._path = self._folder / FILE
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._fd = -1

    def set_bounds(self, *, rotate_bytes: int, keep: int) -> None:
        """Rotate a file that is larger, and keep so many old ones, from now on."""
        self._rotate_bytes, self._keep = rotate_bytes, keep

    def write(self, decisions: Sequence[Decided]) -> None:
        """Append a line for each decision."""
        try:
            if self._fd >= 0 and os.fstat(self._fd).st_size >= self._rotate_bytes:
                self._rotate()
            if self._fd < 0:
                self._open()
            self._append(b"".join(_encode(_line(each)) + b"\n" for each in decisions))
        except OSError as error:
            _log.warning("%d decisions are missing in %s: %s", len(decisions), self._path, error)

    def close(self) -> None:
        """Close the file; a later decision opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Whatever else has that name must not hold up the store.
        fd = os.open(self._path, _FLAGS, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def _append(self, data: bytes) -> None:
        """Write all of it, or raise; then what has been cut is taken back."""
        before = os.fstat(self._fd).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, before)
            raise

    def _rotate(self) -> None:
        self.close()
        for number in range(self._keep, 0, -1):
            newer = self._numbered(number - 1)
            if newer.exists():
                os.replace(newer, self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._folder / f"{FILE}.{number}" if number else self._path


def _line(decided: Decided) -> dict[str, str]:
    row = decided.row
    line = {
        "time": iso_time(row.settled_at),
        "eventKind": "user_decision" if decided.by_client else "daemon_decision",
        "decision": "timed_out" if row.state == "timeout" else row.state,
        "source": "daemon-rpc" if decided.by_client else "daemon",
        "subjectType": "tool_request",
        "sessionId": decided.session_id,
        "agentId": decided.agent_id,
        "requestId": row.request_id,
        "toolName": row.tool_name,
        "reasonCode": _reason_code(decided),
    }
    if row.state == "approved":
        line["scope"] = row.scope
    if row.by:
        line["clientId"] = row.by
    if row.reason:
        line["reason"] = row.reason
    return {name: text[:MAX_TEXT] for name, text in line.items()}


def _reason_code(decided: Decided) -> str:
    state = decided.row.state
    if not decided.by_client:
        return "no_decision_in_time" if state == "timeout" else "turn_ended"
    if state == "approved":
        return "rpc_approved_once" if decided.row.scope == "once" else "rpc_approved_for_scope"
    return _REASON_CODES.get(state, f"rpc_{state}")
