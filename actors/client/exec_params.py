"""What `roost exec` asks for: its options as the parameters of `commandExec.start`, and how a result becomes an exit status."""

from __future__ import annotations

import math
import os
import signal
from typing import TYPE_CHECKING, Final

import click
import msgspec

from roost.actors.client.errors import ClientError
from roost.actors.client.replies import Reply
from roost.actors.sandbox.policy import TYPES, PolicyError, read_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roost.actors.client.errors import RpcError
    from roost.actors.client.exec_terminal import Size

# The only command of its connection.
PROCESS_ID: Final = "exec"
PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "VIRTUAL_ENV")
OF_A_TERMINAL: Final = ("TERM", "COLORTERM")

BY_SIGNAL: Final = 128
ENDED: Final = (BY_SIGNAL + signal.SIGTERM, BY_SIGNAL + signal.SIGKILL)
TIMED_OUT: Final = 124
CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
_ALLOWED: Final = f"allowed are {', '.join(TYPES)}, or a JSON object whose type is one of them"
SPAWN_FAILED: Final = "failed to spawn command"


class CommandResult(Reply, frozen=True, kw_only=True):
    """Answer to `commandExec.start`, which comes when the command has ended; its texts are not used."""

    exit_code: int
    signal: str | int = ""
    timed_out: bool = False
    dropped_env: tuple[str, ...] = ()


class OutputDelta(Reply, frozen=True, kw_only=True):
    """A piece of a command's output."""

    stream: str
    delta_base64: bytes


def start_params(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str | None],
    policy: Mapping[str, object],
    timeout: float | None,
) -> dict[str, object]:
    """Return the parameters for a command whose output is streamed without a bound.

    Raises:
        click.UsageError: the command has no name, something in it is not UTF-8, which no request can carry, or the time
            is no number.
    """
    if not argv[0]:
        raise click.UsageError("the command is empty; it is the name of a program or a path")
    if timeout is not None and math.isnan(timeout):
        raise click.UsageError("--timeout is a number of seconds")
    for text in (*argv, cwd, *environment, *(value or "" for value in environment.values())):
        check_text(text)
    limit: dict[str, object] = (
        {"disableTimeout": True}
        if timeout is None
        else {"timeoutMs": max(1, round(timeout * 1000))}
    )
    return {
        "command": list(argv),
        "processId": PROCESS_ID,
        "streamStdoutStderr": True,
        "disableOutputCap": True,
        "cwd": cwd,
        "env": dict(environment),
        "sandboxPolicy": dict(policy),
        **limit,
    }


def with_terminal(params: Mapping[str, object], size: Size | None) -> dict[str, object]:
    """Return the parameters of the same command at a terminal of its own."""
    sized = {} if size is None else {"size": {"rows": size.rows, "cols": size.cols}}
    return {**params, "tty": True, "streamStdin": True, **sized}


def is_text(text: str) -> bool:
    """Return whether it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(text: str) -> None:
    """Raise a usage error for text that cannot be written as UTF-8."""
    if not is_text(text):
        shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise click.UsageError(f"{shown!r} is not UTF-8")


def environment_for(
    given: Iterable[str], here: Mapping[str, str], *, tty: bool
) -> dict[str, str | None]:
    """Return what the command's environment has other than the daemon's; None takes a variable away.

    `given` are texts NAME=VALUE, or NAME for what it is here.

    Raises:
        click.UsageError: one has no name.
    """
    names = (*PASSED_ON, *OF_A_TERMINAL) if tty else PASSED_ON
    environment: dict[str, str | None] = {
        name: here[name] for name in names if here.get(name) and is_text(here[name])
    }
    for text in given:
        name, equals, value = text.partition("=")
        if not name:
            raise click.UsageError(f"--env {text!r} has no name; it is NAME=VALUE, or NAME")
        environment[name] = value if equals else here.get(name)
    return environment


def policy_for(text: str) -> dict[str, object]:
    """Return the sandbox policy that a name or a JSON object means, as the daemon takes it.

    Raises:
        click.UsageError: it is neither, or an object that is no policy.
    """
    check_text(text)
    if not text.lstrip().startswith("{"):
        return {"type": _policy_type(text)}
    try:
        policy = msgspec.json.decode(text, type=dict[str, object])
        read_policy(policy)
    except PolicyError as error:
        raise click.UsageError(f"--sandbox: {error}; {_ALLOWED}") from None
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--sandbox is no JSON: {error}") from None
    return policy


def _policy_type(text: str) -> str:
    for kind in TYPES:
        if _plain(kind) == _plain(text):
            return kind
    raise click.UsageError(f"--sandbox: there is no policy {text!r}; {_ALLOWED}")


def _plain(name: str) -> str:
    """Return a name as it is compared: `read-only` and `read_only` are `readOnly`."""
    return name.replace("-", "").replace("_", "").lower()


def exit_status(result: CommandResult, passed_on: int | None) -> int:
    """Return the exit status for how a command ended; `passed_on` is the signal that we got meanwhile.

    Who sent it meant the command: that it was SIGTERM or SIGKILL which reached it is an affair of the daemon.
    """
    if result.timed_out:
        return TIMED_OUT
    if passed_on is not None and _was_ended(result):
        return BY_SIGNAL + passed_on
    if not result.signal and result.exit_code >= 0:
        return result.exit_code & 0xFF
    return _by_signal(result)


def _was_ended(result: CommandResult) -> bool:
    """Return whether a signal ended it, which in some sandboxes shows in the exit code alone, as behind a shell."""
    return bool(result.signal) or result.exit_code < 0 or result.exit_code in ENDED


def _by_signal(result: CommandResult) -> int:
    name = str(result.signal).removeprefix("SIG")
    if name.isdecimal():
        return BY_SIGNAL + int(name)
    try:
        return BY_SIGNAL + signal.Signals[f"SIG{name}"]
    except KeyError:
        # A daemon that does not tell it.
        return result.exit_code & 0xFF


def spawn_status(error: RpcError) -> int | None:
    """Return the exit status that shells have for a program which cannot be started, or None for another refusal."""
    if not error.message.startswith(SPAWN_FAILED):
        return None
    return NOT_FOUND if os.strerror(2) in error.message else CANNOT_RUN


def read_delta(params: msgspec.Raw) -> OutputDelta:
    """Return a piece of output.

    Raises:
        ClientError: it is none.
    """
    try:
        return msgspec.json.decode(params, type=OutputDelta)
    except msgspec.MsgspecError as error:
        raise ClientError(f"cannot read what the daemon tells of the output: {error}") from None


class _Delay(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_ms: float = 0


TRY_LATER: Final = frozenset(
    {"RATE_LIMITED", "OVERLOADED", "TOO_MANY_QUEUED_REQUESTS", "TOO_MANY_IN_FLIGHT_REQUESTS"}
)
RETRY_SECONDS: Final = 0.02
LONGEST_RETRY: Final = 1.0


def retry_delay(error: RpcError) -> float | None:
    """Return after how many seconds a refused request may be sent again, or None if that is of no use."""
    if error.code not in TRY_LATER:
        return None
    try:
        told = msgspec.json.decode(error.data, type=_Delay).retry_after_ms / 1000
    except msgspec.MsgspecError:
        told = 0.0
    return min(max(told, RETRY_SECONDS), LONGEST_RETRY)
