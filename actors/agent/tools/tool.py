"""What every tool has: names, a risk, arguments that are checked, and a time limit."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

import msgspec

from roost.actors.agent.calls import Failed
from roost.actors.command.leftovers import Leftovers
from roost.actors.sandbox.launch import Launch, launch, places_for
from roost.actors.sandbox.policy import Policy, read_setting
from roost.config.model import Sandbox, Tools
from roost.schemas.base import CallId
from roost.schemas.boot import NO_BACKEND, Backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.sandbox.places import Places
    from roost.schemas.event import JsonObject, Outcome, Risk

_PLACE = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MISSING = re.compile(r"(?:missing required|contains unknown) field `([^`]*)`")


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the arguments of a tool."""


A = TypeVar("A", bound=Arguments)


class ToolFailed(Exception):
    """The tool could not do it; nothing has been changed. The text says why and repeats nothing secret."""

    def __init__(self, code: str, message: str, *, outcome: Outcome = "failed") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.outcome: Outcome = outcome


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of one agent's session have in common.

    `sandbox` is the policy of its tools as `read_setting` reads it, `rules` and `backend` what holds commands to it.
    """

    agent_id: str
    cwd: str
    home: str
    sandbox: str
    env: Mapping[str, str]
    limits: Tools
    leftovers: Leftovers
    rules: Sandbox
    backend: Backend = NO_BACKEND
    session_id: str = ""

    def idempotency_key(self, call_id: CallId) -> str:
        """Return what names this call to systems outside: the same however often they are told of it."""
        return f"{self.session_id}:{call_id}"

    @property
    def has_full_access(self) -> bool:
        """Return whether nothing is kept from the tools."""
        return self.policy.type == "dangerFullAccess"

    @property
    def policy(self) -> Policy:
        """Return what the tools may touch."""
        return read_setting(self.sandbox)

    @property
    def own_folder(self) -> str:
        """Return the one part of the daemon's home that this agent may see: its workspace, with its kept outputs."""
        return os.path.join(self.home, "workspaces", self.agent_id)

    def places(self) -> Places:
        """Return what the file tools may see and change: the working folder, and no folder that others use too.

        Raises:
            PlaceError: the policy cannot hold in this working folder.
        """
        policy = msgspec.structs.replace(self.policy, exclude_tmpdir=True, exclude_slash_tmp=True)
        own = (self.own_folder,)
        return places_for(
            policy, cwd=self.cwd, env=self.env, home=self.home, rules=self.rules, exposed=own
        )

    def confined(self, argv: Sequence[str], env: Mapping[str, str]) -> Launch:
        """Return what starts a command in the working folder under the policy.

        Raises:
            SandboxUnavailable: nothing here can hold it to the policy.
            LaunchError: it cannot be started so.
        """
        return launch(
            self.policy,
            self.backend,
            argv,
            self.cwd,
            env,
            home=self.home,
            rules=self.rules,
            exposed=(self.own_folder,),
        )


class Prepared(msgspec.Struct, frozen=True):
    """A call whose arguments have been checked.

    `timeout` 0 means no limit. `question` is what a person is asked, for a tool that is a question.
    """

    run: Callable[[CallId], Awaitable[object]]
    timeout: float = 0.0
    question: bytes = b""


class AnyTool(ABC):
    """A tool, whatever its arguments are."""

    name: ClassVar[str]
    description: ClassVar[str]
    risk: ClassVar[Risk] = "read"
    parallel: ClassVar[bool] = False

    @abstractmethod
    def prepare(self, args: JsonObject, around: Surroundings) -> Prepared | Failed:
        """Check arguments; return the call, or how it fails."""

    @abstractmethod
    def schema(self) -> bytes:
        """Return the JSON Schema of the arguments."""

    def refusal(self, around: Surroundings) -> Failed | None:
        """Return why no call of this tool can run here, or None."""
        del around
        return None


class Tool(AnyTool, Generic[A]):
    """One tool. It caps its own result."""

    arguments: type[A]

    @abstractmethod
    async def run(self, call_id: CallId, arguments: A, around: Surroundings) -> object:
        """Do it and return a JSON value. Cancelled, nothing that was started goes on.

        Raises:
            ToolFailed: it cannot be done.
        """

    def timeout(self, arguments: A, limits: Tools) -> float:
        """Return the time limit in seconds; 0 means none."""
        del arguments
        return limits.timeout

    def question(self, arguments: A) -> bytes:
        """Return what a person is asked; empty for a tool that is no question."""
        del arguments
        return b""

    def read(self, args: JsonObject) -> A | Failed:
        """Return the checked arguments, or how the call fails."""
        try:
            found: A = msgspec.convert(args, self.arguments)
        except msgspec.ValidationError as error:
            return invalid_arguments(str(error))
        return found

    def prepare(self, args: JsonObject, around: Surroundings) -> Prepared | Failed:
        """Check arguments; return the call, or how it fails."""
        arguments = self.read(args)
        if isinstance(arguments, Failed):
            return arguments

        async def run(call_id: CallId) -> object:
            return await self.run(call_id, arguments, around)

        return Prepared(run, self.timeout(arguments, around.limits), self.question(arguments))

    def schema(self) -> bytes:
        """Return the JSON Schema of the arguments; it refers to nothing, since it becomes a part of others."""
        _, components = msgspec.json.schema_components([self.arguments], ref_template="{name}")
        schema = components.pop(self.arguments.__name__)
        schema.pop("title", None)
        schema.pop("description", None)
        return msgspec.json.encode(_without_references(schema, components))


def _without_references(schema: object, components: Mapping[str, object]) -> object:
    """Return a schema with each reference replaced by what it refers to; ours do not refer to themselves."""
    if isinstance(schema, list):
        return [_without_references(item, components) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast("dict[str, object]", schema)
    if "$ref" in members:
        return _without_references(components[str(members["$ref"])], components)
    return {name: _without_references(item, components) for name, item in members.items()}


def invalid_arguments(text: str, path: str = "") -> Failed:
    """Return the end of a call whose arguments do not fit; the place is read from a msgspec message."""
    place = _PLACE.search(text)
    if place is not None:
        path = "".join(f"/{name or index}" for name, index in _STEP.findall(place[1]))
        text = text[: place.start()]
    missing = _MISSING.search(text)
    if missing is not None:
        path += f"/{missing[1]}"
    return Failed(f"Invalid arguments: {text}"[:200], "INVALID_TOOL_ARGUMENTS", path=path or "/")
