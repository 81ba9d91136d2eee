"""Which files the file tools may touch, and opening them without ever blocking on something that is no file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from roost.actors.agent.tools.tool import Surroundings, ToolFailed


def resolve(path: str, around: Surroundings, *, writes: bool = False) -> Path:
    """Return the absolute path behind a path argument, links followed.

    Raises:
        ToolFailed: the sandbox policy keeps it from this agent.
    """
    if "\0" in path or not path:
        raise ToolFailed("INVALID_PATH", "Not a path")
    real = Path(os.path.realpath(os.path.join(around.cwd, os.path.expanduser(path))))
    if around.has_full_access:
        return real
    home = Path(os.path.realpath(around.home))
    cwd = Path(os.path.realpath(around.cwd))
    if real.is_relative_to(home) and not real.is_relative_to(home / "workspaces" / around.agent_id):
        raise ToolFailed("SANDBOX_DENIED", "The daemon's own folder is not for agents")
    if writes and around.sandbox == "readOnly":
        raise ToolFailed("SANDBOX_DENIED", "This agent may only read (sandbox: readOnly)")
    if writes and not real.is_relative_to(cwd):
        raise ToolFailed(
            "SANDBOX_DENIED", f"Outside the working folder (sandbox: {around.sandbox})"
        )
    return real


def open_regular(path: Path) -> tuple[int, os.stat_result]:
    """Return a descriptor for reading a regular file, and what it is.

    Raises:
        ToolFailed: there is none, or it may not be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise file_error(error) from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        is_folder = stat.S_ISDIR(found.st_mode)
        raise ToolFailed(
            "NOT_A_FILE", "It is a folder" if is_folder else "It is not a regular file"
        )
    return fd, found


def file_error(error: OSError) -> ToolFailed:
    """Return the failure of a tool behind an error of the system."""
    code = "FILE_NOT_FOUND" if isinstance(error, FileNotFoundError) else "FILE_ERROR"
    return ToolFailed(code, error.strerror or "The system refused")
