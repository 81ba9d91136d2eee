"""All tools by name and alias, and the policy that judges their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from roost.actors.agent.calls import NOT_ALLOWED, Failed
from roost.actors.agent.effects import Allow, AskApproval, AskQuestion, Plan, Refuse, Verdict
from roost.actors.agent.tools.ask_user import AskUser
from roost.actors.agent.tools.edit_file import EditFile
from roost.actors.agent.tools.list_files import ListFiles
from roost.actors.agent.tools.read_file import ReadFile
from roost.actors.agent.tools.shell import Shell
from roost.actors.agent.tools.tool import AnyTool, Surroundings, invalid_arguments
from roost.actors.agent.tools.write_file import WriteFile
from roost.actors.session.approvals import (
    Grants,
    Rules,
    is_denied,
    judge,
    operation_keys,
)
from roost.schemas.model import ToolSpec
from roost.schemas.tool_names import canonical_tool

if TYPE_CHECKING:
    from roost.actors.agent.runner import CallRequest
    from roost.schemas.event import JsonObject

TOOLS: Final[tuple[AnyTool, ...]] = (
    ReadFile(),
    ListFiles(),
    WriteFile(),
    EditFile(),
    Shell(),
    AskUser(),
)
BY_NAME: Final = {tool.name: tool for tool in TOOLS}
_BY_CANONICAL: Final = {canonical_tool(tool.name): tool for tool in TOOLS}


def find_tool(name: str) -> AnyTool | None:
    """Return the tool that a name or an alias means."""
    return BY_NAME.get(name) or _BY_CANONICAL.get(canonical_tool(name))


def tool_specs(rules: Rules) -> tuple[ToolSpec, ...]:
    """Return the tools as a model sees them, without those that are denied in any case."""
    return tuple(
        ToolSpec(name=tool.name, description=tool.description, schema=tool.schema())
        for tool in TOOLS
        if not is_denied(rules, tool.name)
    )


class ToolPolicy:
    """What calls of the tools become in one session."""

    def __init__(self, around: Surroundings, rules: Rules, grants: Grants) -> None:
        self._around = around
        self._rules = rules
        self._grants = grants

    def plan(self, request: CallRequest) -> Plan:
        """Return what this call is; a tool that does not exist keeps the name it was called by."""
        tool = find_tool(request.name)
        return Plan(request.name or "?") if tool is None else Plan(tool.name, tool.parallel)

    def judge(self, tool: str, args: JsonObject, fault: str) -> Verdict:
        """Return what becomes of this call, given what has been approved until now."""
        found = BY_NAME.get(tool)
        if found is None:
            return Refuse(Failed("There is no such tool", NOT_ALLOWED.code))
        if fault:
            return Refuse(invalid_arguments(fault))
        prepared = found.prepare(args, self._around)
        if isinstance(prepared, Failed):
            return Refuse(prepared)
        keys = operation_keys(tool, args, self._around.cwd)
        judgement = judge(self._rules, tool, found.risk, keys, self._grants)
        if judgement == "deny":
            return Refuse(NOT_ALLOWED)
        refusal = found.refusal(self._around)
        if refusal is not None:
            return Refuse(refusal)
        if prepared.question:
            return AskQuestion(prepared.question)
        return Allow() if judgement == "run" else self._ask(found, args, keys)

    def _ask(self, tool: AnyTool, args: JsonObject, keys: tuple[str, ...]) -> AskApproval:
        policy = self._around.policy
        sandbox: str = policy.type
        reason = f"sandbox: {policy.label}"
        if tool.risk == "external_effect" and self._around.has_full_access:
            reason = f"runs without a sandbox, with full access to this machine ({reason})"
        elif tool.risk == "external_effect":
            reason = f"{reason}, held by {self._around.backend.name}"
        body: JsonObject = {
            "input": args,
            "permissions": [tool.risk],
            "reason": reason,
            "sandbox": sandbox,
        }
        return AskApproval(
            tool.risk, msgspec.json.encode(body), keys, {"sandbox": sandbox, "reason": reason}
        )
