"""Ids and times of what an agent writes."""

from __future__ import annotations

import time

from uuid_utils import uuid7

from roost.schemas.base import CallId, TurnId


class SystemStamps:
    """The system's clock, and ids that grow with time."""

    def event(self) -> str:
        """Return a new event id."""
        return str(uuid7())

    def call(self) -> CallId:
        """Return a new call id."""
        return CallId(f"call_{uuid7().hex}")

    def turn(self) -> TurnId:
        """Return a new turn id."""
        return TurnId(f"turn_{uuid7().hex}")

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return time.time()
