"""The errors of the daemon; each has one code of `roost.schemas.errors`.

DaemonError
├── InvalidArgument        the caller's fault: a value is wrong
├── NotFound               the caller's fault: there is no such thing
├── WrongState             the caller's fault: not now
├── Overloaded             try later
└── Internal               ours; logged, its text is not sent
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.schemas.base import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

_encode = msgspec.json.Encoder().encode


class DaemonError(Exception):
    """Base of the family: a code, a text for people, and further members for `error.data`."""

    def __init__(self, code: str, message: str, data: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data: dict[str, object] = dict(data or {})

    def refused(self) -> Refused:
        """Return the answer to a call that this error ended."""
        return Refused(
            code=self.code, message=self.message, data=_encode(self.data) if self.data else b""
        )


class InvalidArgument(DaemonError):
    """A value is wrong."""

    def __init__(self, message: str, data: Mapping[str, object] | None = None) -> None:
        super().__init__("INVALID_ARGUMENT", message, data)


class NotFound(DaemonError):
    """There is no such agent, session or run."""


class WrongState(DaemonError):
    """The thing exists and cannot do this now."""


class Overloaded(DaemonError):
    """Too much at once; the same request may be tried later."""


class Internal(DaemonError):
    """A fault of the daemon."""

    def __init__(self, message: str = "internal error") -> None:
        super().__init__("INTERNAL", message)


def from_refused(refused: Refused) -> DaemonError:
    """Return the error that a refused call stands for."""
    data = msgspec.json.decode(refused.data, type=dict[str, object]) if refused.data else None
    return DaemonError(refused.code, refused.message, data)
