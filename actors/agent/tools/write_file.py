"""The tool `write_file`, and replacing a file in one step."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
import trio

from roost.actors.agent.tools.paths import file_error, resolve
from roost.actors.agent.tools.tool import Arguments, Surroundings, Tool, ToolFailed

if TYPE_CHECKING:
    from pathlib import Path

    from roost.schemas.base import CallId
    from roost.schemas.event import Risk

NEW_FILE_MODE = 0o644


class WriteFileArguments(Arguments, frozen=True, kw_only=True):
    """The whole new content."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    content: str


class WriteFile(Tool[WriteFileArguments]):
    """Creates a file, or replaces its content."""

    name = "write_file"
    description = "Write a file: create it, with its folders, or replace all of its content."
    risk: ClassVar[Risk] = "write"
    arguments = WriteFileArguments

    async def run(
        self, call_id: CallId, arguments: WriteFileArguments, around: Surroundings
    ) -> object:
        """Return what has been written. Cancelled, the file is the old or the new one, never half of it."""
        return await trio.to_thread.run_sync(_write, arguments, around)


def _write(arguments: WriteFileArguments, around: Surroundings) -> dict[str, object]:
    path = resolve(arguments.path, around, writes=True)
    existed = path.exists()
    data = arguments.content.encode()
    replace_file(path, data)
    return {"path": str(path), "bytes": len(data), "created": not existed}


def replace_file(path: Path, data: bytes) -> None:
    """Give a file a new content in one step; its mode stays.

    Raises:
        ToolFailed: the system refused, or it is no regular file.
    """
    try:
        mode = _mode(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise file_error(error) from error


def _mode(path: Path) -> int:
    try:
        found = path.stat()
    except FileNotFoundError:
        return NEW_FILE_MODE
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailed("NOT_A_FILE", "It is not a regular file")
    if not os.access(path, os.W_OK):
        raise ToolFailed("FILE_ERROR", "Permission denied")
    return stat.S_IMODE(found.st_mode)
