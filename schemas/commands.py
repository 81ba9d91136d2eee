"""What the front and the commands service say to each other."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from roost.schemas.base import Message

MAX_WRITE = 256 * 1024
"""The most bytes for a program's input in one message."""
BYTES_MARK = 0xC6
"""MessagePack's mark of bytes with a size of four."""
MAX_PIECE = 1024 * 1024
"""The most bytes of an answer in one message."""


class WindowSize(Message, frozen=True, kw_only=True, tag="commands.size"):
    """The size of a terminal in characters."""

    rows: int
    cols: int


class StartCommand(Message, frozen=True, kw_only=True, tag="commands.start"):
    """Call front → commands: start a command; answered with `CommandStarted` once its process runs, or with `Refused`.

    `number` names the command in every later message; after `CommandEnded`, or a refusal, it is free. `connection` is the
    client's, whose commands share what may be unread. `policy` is what may be touched, as a setting is written. `env` is put over the daemon's own, None removes. `cap` is how many
    bytes of each stream are passed on, `timeout` in seconds, 0 is at once; None is no limit.
    """

    number: int
    connection: int
    process_id: str
    argv: tuple[str, ...]
    cwd: str
    policy: str
    env: dict[str, str | None] = {}
    stdin: bool = False
    size: WindowSize | None = None
    streaming: bool = False
    cap: int | None = None
    timeout: float | None = None


class CommandStarted(Message, frozen=True, kw_only=True, tag="commands.started"):
    """The answer to `StartCommand`."""


class WriteCommand(Message, frozen=True, kw_only=True, tag="commands.write"):
    """Call front → commands: bytes for a program's input, then its end with `close`.

    Answered with `InputTaken`, or `Refused`.
    """

    number: int
    data: bytes = b""
    close: bool = False


class InputTaken(Message, frozen=True, kw_only=True, tag="commands.input_taken"):
    """The answer to `WriteCommand`: whether the bytes are queued, or there was no room and `InputRoom` follows."""

    taken: bool


class InputRoom(Message, frozen=True, kw_only=True, tag="commands.input_room"):
    """Cast commands → front: after an `InputTaken` that says no, there is room now."""

    number: int


class ResizeCommand(Message, frozen=True, kw_only=True, tag="commands.resize"):
    """Cast front → commands: a command's terminal has another size."""

    number: int
    size: WindowSize


class EndCommand(Message, frozen=True, kw_only=True, tag="commands.end"):
    """Cast front → commands: end a command; what it has written, and its `CommandEnded`, still come."""

    number: int


class AbandonCommand(Message, frozen=True, kw_only=True, tag="commands.abandon"):
    """Cast front → commands: end a command that nobody waits for; nothing more is said of it."""

    number: int


class CommandOutput(Message, frozen=True, kw_only=True, tag="commands.output"):
    """Cast commands → front: one line for the client, a `commandExec.outputDelta` with its line feed."""

    number: int
    connection: int
    line: bytes


class OutputHead:
    """Encodes the `CommandOutput`s of one command, without a copy of the line."""

    _size: Final = struct.Struct(">BI")

    def __init__(self, number: int, connection: int) -> None:
        empty = msgspec.msgpack.encode(
            CommandOutput(number=number, connection=connection, line=b"")
        )
        self._head: Final = empty[:-2]  # without the empty line, which is a mark and a size

    def before(self, size: int) -> bytes:
        """Return what comes before a line of so many bytes."""
        return self._head + self._size.pack(BYTES_MARK, size)


class OutputTaken(Message, frozen=True, kw_only=True, tag="commands.output_taken"):
    """Cast front → commands: so many bytes of lines have been written to a client, or are not wanted any more."""

    connection: int
    size: int


class CommandPiece(Message, frozen=True, kw_only=True, tag="commands.piece"):
    """Cast commands → front: the next bytes of an answer that is too long for one message; `CommandEnded` has the last."""

    number: int
    data: bytes


class CommandEnded(Message, frozen=True, kw_only=True, tag="commands.ended"):
    """Cast commands → front: a command has ended and nothing of it is left; `result` is the JSON of the client's answer."""

    number: int
    result: bytes
