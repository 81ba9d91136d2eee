"""The folder that an agent works in: the caller's, checked, or a new one of its own. All of it may block."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from roost.actors.errors import InvalidArgument

if TYPE_CHECKING:
    from roost.schemas.base import AgentId

PATH = {"path": "/cwd"}


def check_folder(method: str, text: str) -> str:
    """Return the folder a caller named, normalised.

    Raises:
        InvalidArgument: it is not absolute, not a folder, or cannot be used.
    """
    if not os.path.isabs(text):
        raise InvalidArgument(f'{method} cwd must be an absolute path (got "{text[:256]}")', PATH)
    path = os.path.normpath(text)
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except (PermissionError, ValueError):
        raise InvalidArgument(f"{method} cwd is not accessible: {path}", PATH) from None
    except OSError:
        is_folder = False
    if not is_folder:
        raise InvalidArgument(f"{method} cwd is not an existing directory: {path}", PATH)
    if not os.access(path, os.R_OK | os.X_OK):
        raise InvalidArgument(f"{method} cwd is not accessible: {path}", PATH)
    return path


def make_scratch(home: str, agent_id: AgentId) -> str:
    """Make an agent's own folder, for its owner alone, and return it.

    Raises:
        OSError: the disk does not allow it.
    """
    parent = Path(home) / "workspaces"
    parent.mkdir(mode=0o700, exist_ok=True)
    folder = parent / agent_id
    folder.mkdir(mode=0o700, exist_ok=True)
    return str(folder)
