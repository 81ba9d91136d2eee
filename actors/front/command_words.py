"""What may be wrong with the params of `commandExec.*`, in the order and in the words of P 9.1; pure.

What the decoder refuses is said by `explain_start` and `explain_resize`, what it lets through and is wrong all the same by
`check_start`. Both look in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from roost.actors.errors import InvalidArgument
from roost.actors.front.params import WORDS
from roost.schemas.command_exec import CommandResize, CommandStart

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

START, RESIZE = "commandExec.start", "commandExec.resize"
MAX_SIDE = 65_535
FLAGS = ("tty", "streamStdin", "streamStdoutStderr", "disableOutputCap", "disableTimeout")


def explain_start(members: Mapping[str, object]) -> InvalidArgument | None:
    """Return what is wrong with params of `commandExec.start`, if it is a matter of types or of a single member."""
    return next(_faults(members), None)


def explain_resize(members: Mapping[str, object]) -> InvalidArgument | None:
    """Return what is wrong with params of `commandExec.resize`."""
    process_id = members.get("processId")
    if not isinstance(process_id, str) or not process_id.strip():
        return wrong(f"{RESIZE} requires processId", "processId")
    return next(_size_faults(RESIZE, members.get("size")), None)


def check_start(params: CommandStart, *, hears: bool) -> None:
    """Refuse what the decoder let through; `hears` says whether notifications reach the client.

    Raises:
        InvalidArgument: by the first rule that is broken.
    """
    _check_texts(params)
    streams = params.tty or params.stream_stdout_stderr
    if params.process_id is None and (streams or params.stream_stdin):
        text = "tty or streaming requires a client-supplied processId"
        raise wrong(f"{START} {text}", "processId")
    if streams and not hears:
        raise wrong(f"{START} streaming requires daemon connection notifications", "")
    if params.size is not None and not params.tty:
        raise wrong(f"{START} param 'size' requires tty true", "size")
    if params.output_bytes_cap is not None and params.disable_output_cap:
        text = "cannot combine outputBytesCap with disableOutputCap"
        raise wrong(f"{START} {text}", "outputBytesCap")
    if params.timeout_ms is not None and params.disable_timeout:
        raise wrong(f"{START} cannot combine timeoutMs with disableTimeout", "timeoutMs")
    if params.sandbox_policy is not None and params.permission_profile is not None:
        text = "cannot combine sandboxPolicy with permissionProfile"
        raise wrong(f"{START} {text}", "sandboxPolicy")


def wrong(text: str, *path: str) -> InvalidArgument:
    """Return the error for a member, named by the steps to it."""
    steps = [step.replace("~", "~0").replace("/", "~1")[:64] for step in path if step]
    return InvalidArgument(text, {"path": "".join(f"/{step}" for step in steps)})


def shown(text: str) -> str:
    """Return a client's text as far as it is repeated to it."""
    return text if len(text) <= 64 else text[:64] + "…"


def _check_texts(params: CommandStart) -> None:
    for at, argument in enumerate(params.command):
        if "\0" in argument:
            raise wrong(f"{START} param 'command[{at}]' must be a string", "command", str(at))
    for fault in _faults(
        {
            "command": params.command,
            "processId": params.process_id,
            "sandboxPolicy": params.sandbox_policy,
            "permissionProfile": params.permission_profile,
        }
    ):
        raise fault
    if params.cwd is not None and "\0" in params.cwd:
        raise wrong(f"{START} param 'cwd' must be a string or null", "cwd")
    for name, value in (params.env or {}).items():
        if not name or "=" in name or "\0" in name + (value or ""):
            cleaned = shown(name.replace("\0", ""))
            raise wrong(f"{START} param 'env.{cleaned}' must be a string or null", "env", cleaned)
    if params.size is not None:
        size = {"rows": params.size.rows, "cols": params.size.cols}
        for fault in _size_faults(START, size):
            raise fault


def _faults(members: Mapping[str, object]) -> Generator[InvalidArgument]:
    yield from _command_faults(members.get("command"))
    process_id = members.get("processId")
    if process_id is not None and not (isinstance(process_id, str) and process_id.strip()):
        yield wrong(f"{START} requires processId", "processId")
    for name in FLAGS:
        if not isinstance(members.get(name, False), bool):
            yield wrong(f"{START} param '{name}' must be a boolean", name)
    for name in ("outputBytesCap", "timeoutMs"):
        value = members.get(name)
        if value is not None and not (type(value) is int and value >= 0):
            yield wrong(f"{START} param '{name}' must be a non-negative integer or null", name)
    yield from _surrounding_faults(members)
    if members.get("size") is not None:
        yield from _size_faults(START, members["size"])
    yield from _policy_faults(members)


def _command_faults(command: object) -> Generator[InvalidArgument]:
    if not isinstance(command, list) or not command:
        yield wrong(f"{START} requires command", "command")
        return
    entries = cast("list[object]", command)
    for at, entry in enumerate(entries):
        if not isinstance(entry, str):
            yield wrong(f"{START} param 'command[{at}]' must be a string", "command", str(at))
    if isinstance(entries[0], str) and not entries[0].strip():
        yield wrong(f"{START} param 'command[0]' must be a non-empty string", "command", "0")


def _surrounding_faults(members: Mapping[str, object]) -> Generator[InvalidArgument]:
    if not isinstance(members.get("cwd"), str | None):
        yield wrong(f"{START} param 'cwd' must be a string or null", "cwd")
    env = members.get("env")
    if not isinstance(env, dict | None):
        yield wrong(f"{START} param 'env' must be an object or null", "env")
        return
    for name, value in cast("dict[str, object]", env or {}).items():
        if not isinstance(value, str | None):
            yield wrong(f"{START} param 'env.{shown(name)}' must be a string or null", "env", name)


def _size_faults(method: str, size: object) -> Generator[InvalidArgument]:
    if not isinstance(size, dict):
        yield wrong(f"{method} param 'size' must be an object", "size")
        return
    sides = cast("dict[str, object]", size)
    for name in ("rows", "cols"):
        value = sides.get(name)
        if not (type(value) is int and value >= 1):
            yield wrong(f"{method} param 'size.{name}' must be a positive integer", "size", name)
        elif value > MAX_SIDE:
            text = f"{method} param 'size.{name}' must be at most {MAX_SIDE}"
            yield wrong(text, "size", name)


def _policy_faults(members: Mapping[str, object]) -> Generator[InvalidArgument]:
    for name, member in (("sandboxPolicy", "type"), ("permissionProfile", "id")):
        value = members.get(name)
        if value is None:
            continue
        if not isinstance(value, dict):
            yield wrong(f"{START} param '{name}' must be an object or null", name)
            continue
        found = name_of(cast("dict[str, object]", value), member)
        if not isinstance(found, str) or not found.strip():
            text = f"{START} param '{name}.{member}' must be a non-empty string"
            yield wrong(text, name, member)


def name_of(value: Mapping[str, object], member: str) -> object:
    """Return what a policy (`type`, by older clients `kind` or `value`) or a profile (`id`) is called."""
    if member == "id":
        return value.get("id")
    return next((value[key] for key in ("type", "kind", "value") if key in value), None)


WORDS[CommandStart] = explain_start
WORDS[CommandResize] = explain_resize
