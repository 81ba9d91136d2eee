"""Trees of files for the search."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def fill(root: Path, *names: str) -> None:
    """Make empty files, and directories for names that end with a slash."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text("")


@contextlib.contextmanager
def deep_tree(root: Path, levels: int) -> Generator[int]:
    """Make directories `d`, each in the one before, and yield a descriptor of the deepest one.

    They are removed from the deepest up, with the files in it: nothing else goes so deep.
    """
    handle = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=handle)
        handle, outer = os.open("d", os.O_RDONLY, dir_fd=handle), handle
        os.close(outer)
    try:
        yield handle
    finally:
        for name in os.listdir(handle):
            os.unlink(name, dir_fd=handle)
        for _ in range(levels):
            handle, inner = os.open("..", os.O_RDONLY, dir_fd=handle), handle
            os.close(inner)
            os.rmdir("d", dir_fd=handle)
        os.close(handle)
