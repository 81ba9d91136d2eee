"""The tool `shell`."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, ClassVar

import msgspec

from roost.actors.agent.calls import Failed
from roost.actors.agent.tools.results import clip
from roost.actors.agent.tools.tool import Arguments, Surroundings, Tool, ToolFailed
from roost.actors.command.actor import CommandActor, CommandSpec
from roost.actors.command.output import HeadTail
from roost.actors.command.spawn import StartFailed
from roost.actors.sandbox.environment import looks_secret
from roost.actors.sandbox.launch import LaunchError, SandboxUnavailable

if TYPE_CHECKING:
    from roost.config.model import Tools
    from roost.schemas.base import CallId
    from roost.schemas.event import Risk

SHELL = ("/bin/bash", "/bin/sh")
GRACE = 2.0
KEY_VARIABLE = "ROOST_IDEMPOTENCY_KEY"
MAX_REASON = 500
MAX_OUTPUT_FILE = 64 * 1024 * 1024


class ShellArguments(Arguments, frozen=True, kw_only=True):
    """`timeout_s` 0 means the default."""

    command: Annotated[str, msgspec.Meta(min_length=1, max_length=60_000)]
    timeout_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0


class Shell(Tool[ShellArguments]):
    """Runs a shell command in the working folder."""

    name = "shell"
    description = (
        "Run a shell command in the working folder and return its output and exit code. "
        "timeout_s is its time limit in seconds (default 120, at most 3600)."
    )
    risk: ClassVar[Risk] = "external_effect"
    arguments = ShellArguments

    def timeout(self, arguments: ShellArguments, limits: Tools) -> float:
        """Return the limit that the call asks for, within what is allowed."""
        return min(arguments.timeout_s or limits.shell_timeout, limits.shell_timeout_max)

    def refusal(self, around: Surroundings) -> Failed | None:
        """Commands need something that holds them to the policy, unless they may do everything."""
        policy = around.policy
        if not policy.is_confined or around.backend.name:
            return None
        text = (
            f"No sandbox for {policy.type} is available here ({around.backend.detail}); "
            "only dangerFullAccess runs commands"
        )
        return Failed(text[:MAX_REASON], "SANDBOX_UNAVAILABLE")

    async def run(self, call_id: CallId, arguments: ShellArguments, around: Surroundings) -> object:
        """Return output and exit code. Cancelled, the command and all that it started are gone."""
        shell = next((path for path in SHELL if os.access(path, os.X_OK)), SHELL[-1])
        env = {**around.env, KEY_VARIABLE: around.idempotency_key(call_id)}
        if around.policy.is_confined:
            env = {name: value for name, value in env.items() if not looks_secret(name)}
        try:
            start = around.confined((shell, "-c", arguments.command), env)
        except SandboxUnavailable as error:
            raise ToolFailed("SANDBOX_UNAVAILABLE", str(error)[:MAX_REASON]) from error
        except LaunchError as error:
            raise ToolFailed("COMMAND_NOT_STARTED", str(error)) from error
        spec = CommandSpec(
            command_id=call_id,
            argv=start.argv,
            cwd=start.cwd,
            env=start.env,
            merge=True,
            grace=GRACE,
        )
        output = _Output(_output_path(call_id, around), around.limits.result_bytes)
        try:
            ended = await CommandActor(spec, around.leftovers, output.feed).run()
        except StartFailed as error:
            raise ToolFailed("COMMAND_NOT_STARTED", str(error)) from error
        finally:
            output.close()
        result = output.result() | {"exit_code": ended.exit_code}
        if ended.signal is not None:
            result["signal"] = signal.Signals(ended.signal).name
        return result


def _output_path(call_id: CallId, around: Surroundings) -> Path:
    return Path(around.own_folder) / "output" / call_id


def _create(path: Path) -> BinaryIO:
    """Make a new file in the folder of outputs, which commands may have put links into: none is followed."""
    own, folder = path.parents[1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as stack:
        top = os.open(own, folder)
        stack.callback(os.close, top)
        with suppress(FileExistsError):
            os.mkdir(path.parent.name, 0o700, dir_fd=top)
        outputs = os.open(path.parent.name, folder, dir_fd=top)
        stack.callback(os.close, outputs)
        with suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=outputs)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return open(os.open(path.name, flags, 0o600, dir_fd=outputs), "wb", buffering=0)


class _Output:
    """Head and tail in memory; the whole of a longer output in a file."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._kept = HeadTail(limit)
        self._file: BinaryIO | None = None
        self._written = 0
        self._failed = False

    def feed(self, stream: int, data: bytes) -> None:
        """Take output; never raises."""
        del stream
        if self._kept.total + len(data) > self._limit and not self._failed:
            try:
                self._spill(data)
            except OSError:
                self._failed = True
        self._kept.feed(data)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()

    def result(self) -> dict[str, object]:
        """Return what the model gets to see."""
        kept = self._kept
        head, tail = kept.head(), kept.tail()
        text, truncated = clip(head, tail, kept.total - len(head) - len(tail))
        result: dict[str, object] = {"output": text, "truncated": truncated}
        if truncated:
            result["bytes"] = kept.total
        if self._file is not None and not self._failed:
            result["output_file"] = str(self._path)
        return result

    def _spill(self, data: bytes) -> None:
        if self._file is None:
            self._file = _create(self._path)
            self._write(self._kept.head() + self._kept.tail())
        self._write(data)

    def _write(self, data: bytes) -> None:
        data = data[: MAX_OUTPUT_FILE - self._written]
        if data and self._file is not None:
            self._written += self._file.write(data)
