"""How many sessions there may be, and how much one may hold; a part is kept back so that a full one can still end its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roost.actors.errors import DaemonError
from roost.actors.store.database import EVENT_BYTES

if TYPE_CHECKING:
    from roost.actors.store.journal import Session
    from roost.config.model import Store

FULL: Final = "EVENT_STORE_CAPACITY_EXCEEDED"
RESERVED_EVENTS: Final = 64
RESERVED_BYTES: Final = 1024 * 1024
# With these a turn comes to its end, whatever it was doing.
ENDING_TYPES: Final = frozenset(
    {
        "tool.call.failed",
        "tool.call.completed",
        "tool.approval.rejected",
        "agent.turn.failed",
        "cancellation.completed",
        "session.closed",
    }
)


def full(session_id: str) -> DaemonError:
    """Return the refusal of what has no room in a session."""
    text = f"there is no room in session {session_id}"
    return DaemonError(FULL, text, {"sessionId": session_id})


def too_many(session_id: str, limit: int) -> DaemonError:
    """Return the refusal of a session that would be one too many."""
    text = f"there are {limit} sessions already; closed ones count until they are removed"
    return DaemonError(FULL, text, {"sessionId": session_id, "limit": limit})


class Capacity:
    """The bounds of `[store]`; 0 is none."""

    def __init__(self, settings: Store) -> None:
        self.configure(settings)

    def configure(self, settings: Store) -> None:
        """Take other bounds; what is over them already stays and does not grow."""
        self.sessions = settings.sessions
        self._events = settings.session_events
        self._bytes = settings.session_bytes
        self.is_bounded = bool(self._events or self._bytes)

    def has_room(self, session: Session, kind: str, size: int = 0) -> bool:
        """Return whether an event of this type and size may be added."""
        ends = kind in ENDING_TYPES
        if self._events:
            held = session.last_sequence - session.first_sequence + 1
            if held >= self._events - (0 if ends else RESERVED_EVENTS):
                return False
        if self._bytes:
            room = self._bytes - (0 if ends else RESERVED_BYTES)
            return session.bytes + size + EVENT_BYTES <= room
        return True
