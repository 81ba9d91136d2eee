"""The tool `write_file`, and replacing a file in one step."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
import trio

from roost.actors.agent.tools.paths import check_opened, file_error, resolve
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
    """Give a file, named by a path without links, a new content in one step; its mode stays.

    Raises:
        ToolFailed: the system refused, it is no regular file, or the way to it has changed since.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            check_opened(folder, path.parent)
            _replace(folder, path.name, data)
        finally:
            os.close(folder)
    except OSError as error:
        raise file_error(error) from error


def _replace(folder: int, name: str, data: bytes) -> None:
    mode = _mode(folder, name)
    temporary = f".{name[:100]}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
        try:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def _mode(folder: int, name: str) -> int:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return NEW_FILE_MODE
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailed("NOT_A_FILE", "It is not a regular file")
    if not os.access(name, os.W_OK, dir_fd=folder):
        raise ToolFailed("FILE_ERROR", "Permission denied")
    return stat.S_IMODE(found.st_mode)
