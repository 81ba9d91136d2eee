"""The steps of the `script` runner: read from a message's metadata, or from its text; pure."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from roost.actors.agent.runner import RunnerFailed
from roost.schemas.event import JsonObject

MAX_STEPS = 10_000
MAX_CHUNKS = 1_000_000
MAX_MIB = 65_536

HELP = """\
This agent runs on the embedded script runner: there is no language model behind it. It does what lines like these say:
  $ COMMAND     run a shell command
  read PATH     show a file
  write PATH    write the lines that follow into a file
  find QUERY    list the files whose name contains QUERY
"""


class Say(msgspec.Struct, frozen=True):
    """Stream a text in pieces."""

    text: str
    chunks: int = 1
    interval: float = 0.0


class UseTool(msgspec.Struct, frozen=True):
    """Call a tool; `report` says its result afterwards."""

    name: str
    args: JsonObject
    report: bool = False


class Sleep(msgspec.Struct, frozen=True):
    """Wait."""

    seconds: float


class Fail(msgspec.Struct, frozen=True):
    """End the turn as failed."""

    message: str


class Hang(msgspec.Struct, frozen=True):
    """Wait until interrupted, or block the event loop."""

    hard: bool


class Crash(msgspec.Struct, frozen=True):
    """End the process: with an exit code, or by SIGKILL."""

    code: int | None


class Allocate(msgspec.Struct, frozen=True):
    """Take memory until the turn ends."""

    mib: int


Step = Say | UseTool | Sleep | Fail | Hang | Crash | Allocate


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    say: str | UnsetType = UNSET
    stream: str | UnsetType = UNSET
    tool: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    ask: list[JsonObject] | UnsetType = UNSET
    sleep_ms: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    fail: str | UnsetType = UNSET
    hang: Literal[True, "hard"] | UnsetType = UNSET
    crash: bool | Annotated[int, Meta(ge=0, le=255)] | UnsetType = UNSET
    allocate_mib: Annotated[int, Meta(ge=1, le=MAX_MIB)] | UnsetType = UNSET
    chunks: Annotated[int, Meta(ge=1, le=MAX_CHUNKS)] = 1
    interval_ms: Annotated[float, Meta(ge=0)] = 0
    args: JsonObject = {}


class _Metadata(msgspec.Struct, frozen=True):
    script: msgspec.Raw | UnsetType = UNSET


_metadata = msgspec.json.Decoder(_Metadata)
_list = msgspec.json.Decoder(list[msgspec.Raw])
_step = msgspec.json.Decoder(_Written)


def read_steps(metadata: bytes, text: str) -> list[Step]:
    """Return the steps of a message: `metadata.script`, or else what its text asks for.

    Raises:
        RunnerFailed: a step is wrong; the text says which, and why.
    """
    try:
        script = _metadata.decode(metadata).script
        if script is UNSET:
            return text_steps(text)
        raw = _list.decode(script)
    except msgspec.DecodeError as error:
        raise _invalid(f"metadata.script: {error}") from error
    if len(raw) > MAX_STEPS:
        raise _invalid(f"metadata.script: more than {MAX_STEPS} steps")
    return [_read_step(number, step) for number, step in enumerate(raw)]


def text_steps(text: str) -> list[Step]:
    """Return what the lines of a message ask for."""
    steps: list[Step] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if not rest:
            continue
        match word:
            case "$":
                steps.append(UseTool("shell", {"command": rest}, report=True))
            case "read":
                steps.append(UseTool("read_file", {"path": rest}, report=True))
            case "find":
                steps.append(UseTool("list_files", {"pattern": _containing(rest)}, report=True))
            case "write":
                content = "".join(f"{below}\n" for below in lines[number + 1 :])
                steps.append(UseTool("write_file", {"path": rest, "content": content}, report=True))
                break
            case _:
                pass
    return steps or [Say(HELP)]


def _read_step(number: int, raw: msgspec.Raw) -> Step:
    try:
        step = _step.decode(raw)
    except msgspec.DecodeError as error:
        raise _invalid(f"metadata.script[{number}]: {error}") from error
    found: list[Step] = []
    texts = (text for text in (step.say, step.stream) if text is not UNSET)
    found += [Say(text, step.chunks, step.interval_ms / 1000) for text in texts]
    if step.tool is not UNSET:
        found.append(UseTool(step.tool, step.args))
    if step.ask is not UNSET:
        found.append(UseTool("ask_user", {"questions": step.ask}))
    if step.sleep_ms is not UNSET:
        found.append(Sleep(step.sleep_ms / 1000))
    if step.fail is not UNSET:
        found.append(Fail(step.fail))
    if step.hang is not UNSET:
        found.append(Hang(hard=step.hang == "hard"))
    if step.crash is not UNSET and step.crash is not False:
        found.append(Crash(None if step.crash is True else step.crash))
    if step.allocate_mib is not UNSET:
        found.append(Allocate(step.allocate_mib))
    if len(found) != 1:
        raise _invalid(f"metadata.script[{number}]: one step must do exactly one thing")
    return found[0]


def _containing(query: str) -> str:
    """Return the pattern of names that contain a text, which itself is no pattern."""
    escaped = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in query)
    return f"*{escaped}*"


def _invalid(text: str) -> RunnerFailed:
    return RunnerFailed(text[:200], code="INVALID_SCRIPT")
