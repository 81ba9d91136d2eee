"""Which files the file tools may touch, and opening them without ever blocking on something that is no file."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from roost.actors.agent.tools.tool import Surroundings, ToolFailed
from roost.actors.sandbox.places import PlaceError, is_inside

GONE = " (deleted)"


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
    check(real, around, writes=writes)
    return real


def check(real: Path, around: Surroundings, *, writes: bool) -> None:
    """Look whether a path without links may be read, or written, by this agent.

    Raises:
        ToolFailed: the sandbox policy keeps it from this agent.
    """
    policy = around.policy
    try:
        places = around.places()
    except PlaceError as error:
        raise ToolFailed("SANDBOX_DENIED", str(error)) from error
    if places.hides(str(real)):
        raise ToolFailed("SANDBOX_DENIED", "This place is hidden from agents in a sandbox")
    if not writes or places.lets_write(str(real)):
        return
    if policy.type == "readOnly":
        raise ToolFailed("SANDBOX_DENIED", "This agent may only read (sandbox: readOnly)")
    where = "Protected in" if is_inside(str(real), places.protected) else "Outside"
    raise ToolFailed("SANDBOX_DENIED", f"{where} the working folder (sandbox: {policy.type})")


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
    try:
        check_opened(fd, path)
    except ToolFailed:
        os.close(fd)
        raise
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        is_folder = stat.S_ISDIR(found.st_mode)
        raise ToolFailed(
            "NOT_A_FILE", "It is a folder" if is_folder else "It is not a regular file"
        )
    return fd, found


def check_opened(fd: int, path: Path) -> None:
    """Look whether a descriptor is what was resolved: a command may have put a link into the way since.

    Raises:
        ToolFailed: it is something else.
    """
    if sys.platform != "linux":
        return
    found = os.readlink(f"/proc/self/fd/{fd}")
    if found.removesuffix(GONE) != str(path).removesuffix(GONE):
        raise ToolFailed("FILE_ERROR", "The path was changed at this moment")


def file_error(error: OSError) -> ToolFailed:
    """Return the failure of a tool behind an error of the system."""
    code = "FILE_NOT_FOUND" if isinstance(error, FileNotFoundError) else "FILE_ERROR"
    return ToolFailed(code, error.strerror or "The system refused")
