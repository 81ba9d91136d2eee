"""Which tool calls run, which wait for a person and which are refused (P 12); pure.

The order is that of P 12.1: a denial wins, then what has been granted, then the risk decides.
"""

from __future__ import annotations

import posixpath
import shlex
from typing import TYPE_CHECKING, Literal

import msgspec

from roost.schemas.tool_names import canonical_tool, canonical_tools

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roost.schemas.approval import Scope
    from roost.schemas.event import Risk

Ask = Literal["read", "write", "external_effect", "never"]

RISKS: tuple[Risk, ...] = ("read", "write", "external_effect", "destructive", "admin")

SHELLS = frozenset(("bash", "dash", "ksh", "sh", "zsh"))

_canonical_json = msgspec.json.Encoder(order="sorted").encode


class Rules(msgspec.Struct, frozen=True):
    """The rules that an agent was created with; entries may end in `*`."""

    ask: Ask = "write"
    unattended: bool = False
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


def make_rules(ask: Ask, unattended: bool, allow: Iterable[str], deny: Iterable[str]) -> Rules:
    """Return rules with aliases replaced and blank entries dropped."""
    return Rules(
        ask=ask, unattended=unattended, allow=canonical_tools(allow), deny=canonical_tools(deny)
    )


def is_denied(rules: Rules, tool: str) -> bool:
    """Return whether calls of this tool are denied whatever they ask for."""
    return _listed(rules.deny, canonical_tool(tool))


Judgement = Literal["run", "ask", "deny"]


def judge(rules: Rules, tool: str, risk: Risk, keys: Iterable[str], granted: Grants) -> Judgement:
    """Return what becomes of a call of this tool whose operation has these keys."""
    name = canonical_tool(tool)
    if is_denied(rules, tool):
        return "deny"
    if rules.unattended and _listed(rules.allow, name):
        return "run"
    if rules.ask == "never" or RISKS.index(risk) < RISKS.index(rules.ask):
        return "run"
    return "run" if granted.cover(keys) else "ask"


class Grants:
    """What has been approved for longer than one call: for a session, and for all sessions of an agent."""

    def __init__(self, agent: set[str], session: Iterable[str] = ()) -> None:
        self.agent = agent
        self.session = set(session)

    def cover(self, keys: Iterable[str]) -> bool:
        """Return whether every part of an operation has been approved; one without keys never is."""
        keys = tuple(keys)
        return bool(keys) and all(key in self.session or key in self.agent for key in keys)

    def add(self, keys: Iterable[str], scope: Scope) -> bool:
        """Remember an approval; return whether that changed anything."""
        if scope == "once":
            return False
        known = self.agent if scope == "agent" else self.session
        before = len(known)
        known.update(keys)
        return len(known) > before


def operation_keys(tool: str, arguments: dict[str, object], directory: str) -> tuple[str, ...]:
    """Return the keys of what a call does: not the tool alone, and not the way the arguments are written (P 12.3)."""
    name = canonical_tool(tool)
    match name, arguments:
        case "system.bash", {"command": str(command)}:
            return (f"{name}({plain_command(command)}) in {directory}",)
        case (("Edit" | "Write"), {"path": str(path)}):
            return (f"Edit({posixpath.normpath(posixpath.join(directory, path))})",)
        case _:
            return (f"{name}({_canonical_json(arguments).decode()}) in {directory}",)


def plain_command(command: str) -> str:
    """Return a shell command without wrappers of the form `bash -lc '…'`."""
    command = command.strip()
    while True:
        try:
            words = shlex.split(command)
        except ValueError:
            return command
        if len(words) != 3 or words[0].rpartition("/")[2] not in SHELLS:
            return command
        if not words[1].startswith("-") or words[1].startswith("--") or "c" not in words[1]:
            return command
        command = words[2].strip()


def _listed(entries: Iterable[str], name: str) -> bool:
    return any(
        name.startswith(entry[:-1]) if entry.endswith("*") else name == entry for entry in entries
    )
