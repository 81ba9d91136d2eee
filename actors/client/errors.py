"""The errors of the command line, sorted by what the user can do; each has an exit status.

ClientError                1
├── NotRunning             3: there is no daemon in this home
├── NotAnswering           3: there is one, and it does not answer
├── Disconnected           3: it went away while it was asked
└── RpcError               1: it refused the request
"""

from __future__ import annotations

from typing import ClassVar


class ClientError(Exception):
    """Base of the family; the text is for the user."""

    exit_status: ClassVar[int] = 1


class NotRunning(ClientError):
    """No daemon runs in the home."""

    exit_status: ClassVar[int] = 3


class NotAnswering(ClientError):
    """The daemon did not answer in time."""

    exit_status: ClassVar[int] = 3


class Disconnected(ClientError):
    """The connection ended."""

    exit_status: ClassVar[int] = 3


class RpcError(ClientError):
    """The daemon answered with an error."""

    def __init__(self, number: int, message: str, code: str, data: bytes = b"") -> None:
        super().__init__(f"{message} ({code or number})")
        self.number = number
        self.message = message
        self.code = code
        self.data = data
