"""What the tools are called in rules, whatever name they were given by (P 12.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CANONICAL = {
    **dict.fromkeys(
        (
            "bash",
            "desktop.bash",
            "exec_command",
            "kill_process",
            "monitor",
            "powershell",
            "shell",
            "system.bash",
            "write_stdin",
        ),
        "system.bash",
    ),
    **dict.fromkeys(("apply_patch", "edit", "edit_file", "fileedit", "multiedit"), "Edit"),
    **dict.fromkeys(("filewrite", "write", "write_file"), "Write"),
    **dict.fromkeys(("fileread", "read", "read_file"), "FileRead"),
    **dict.fromkeys(("grep", "system.grep"), "Grep"),
    **dict.fromkeys(("glob", "list_files", "system.glob"), "Glob"),
}
"""Names of tools, in lower case, and what they are called in rules."""


def canonical_tool(name: str) -> str:
    """Return the name of a tool as rules know it; a name without alias is its own."""
    name = name.strip()
    return CANONICAL.get(name.lower(), name)


def canonical_tools(names: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a list with aliases replaced, each once; blank ones are dropped."""
    found = (canonical_tool(name) for name in names if name.strip())
    return tuple(dict.fromkeys(found))
