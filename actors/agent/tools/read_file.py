"""The tool `read_file`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, BinaryIO

import msgspec
import trio

from roost.actors.agent.tools.paths import file_error, open_regular, resolve
from roost.actors.agent.tools.results import clip
from roost.actors.agent.tools.tool import Arguments, Surroundings, Tool, ToolFailed

if TYPE_CHECKING:
    from roost.schemas.base import CallId

MAX_SCANNED = 64 * 1024 * 1024


class ReadFileArguments(Arguments, frozen=True, kw_only=True):
    """`line` is the first line wanted, counted from 1; `limit` 0 means up to the end."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    line: Annotated[int, msgspec.Meta(ge=1)] = 1
    limit: Annotated[int, msgspec.Meta(ge=0)] = 0


class ReadFile(Tool[ReadFileArguments]):
    """Reads a text file, or some lines of it."""

    name = "read_file"
    description = "Read a text file. With line and limit, only those lines of it."
    parallel = True
    arguments = ReadFileArguments

    async def run(
        self, call_id: CallId, arguments: ReadFileArguments, around: Surroundings
    ) -> object:
        """Return the text; of a long one head and tail."""
        return await trio.to_thread.run_sync(_read, arguments, around, abandon_on_cancel=True)


def _read(arguments: ReadFileArguments, around: Surroundings) -> dict[str, object]:
    path = resolve(arguments.path, around)
    fd, found = open_regular(path)
    try:
        with os.fdopen(fd, "rb") as file:
            if arguments.line > 1 or arguments.limit:
                head, tail, omitted = _lines(file, arguments, around.limits.result_bytes)
            else:
                head, tail, omitted = _ends(file, found.st_size, around.limits.result_bytes)
    except OSError as error:
        raise file_error(error) from error
    if b"\0" in head or b"\0" in tail:
        raise ToolFailed("NOT_TEXT", "It is not a text file")
    text, truncated = clip(head, tail, omitted)
    return {"path": str(path), "content": text, "size": found.st_size, "truncated": truncated}


def _ends(file: BinaryIO, size: int, limit: int) -> tuple[bytes, bytes, int]:
    if size <= limit:
        return file.read(limit + 1), b"", 0
    half = limit // 2
    head = file.read(half)
    file.seek(size - half)
    return head, file.read(half), size - 2 * half


def _lines(file: BinaryIO, arguments: ReadFileArguments, limit: int) -> tuple[bytes, bytes, int]:
    kept = bytearray()
    omitted = 0
    last = arguments.line + arguments.limit - 1 if arguments.limit else float("inf")
    for number, line in enumerate(iter(lambda: file.readline(limit), b""), 1):
        if number > last or file.tell() > MAX_SCANNED:
            break
        if number < arguments.line:
            continue
        room = limit - len(kept)
        kept += line[:room]
        omitted += max(len(line) - room, 0)
    return bytes(kept), b"", omitted
