"""The tool `shell`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, ClassVar

import msgspec

from roost.actors.agent.calls import Failed
from roost.actors.agent.tools.results import clip
from roost.actors.agent.tools.tool import Arguments, Surroundings, Tool, ToolFailed
from roost.actors.command.actor import CommandActor, CommandSpec
from roost.actors.command.output import HeadTail
from roost.actors.command.spawn import StartFailed

if TYPE_CHECKING:
    from roost.config.model import Tools
    from roost.schemas.base import CallId
    from roost.schemas.event import Risk

SHELL = ("/bin/bash", "/bin/sh")
GRACE = 2.0
KEY_VARIABLE = "ROOST_IDEMPOTENCY_KEY"
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
        """Commands need a sandbox, unless they may do everything."""
        if around.has_full_access:
            return None
        text = f"No sandbox is available for {around.sandbox}; only dangerFullAccess runs commands"
        return Failed(text, "SANDBOX_UNAVAILABLE")

    async def run(self, call_id: CallId, arguments: ShellArguments, around: Surroundings) -> object:
        """Return output and exit code. Cancelled, the command and all that it started are gone."""
        shell = next((path for path in SHELL if os.access(path, os.X_OK)), SHELL[-1])
        spec = CommandSpec(
            command_id=call_id,
            argv=(shell, "-c", arguments.command),
            cwd=around.cwd,
            env={**around.env, KEY_VARIABLE: around.idempotency_key(call_id)},
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
    return Path(around.home) / "workspaces" / around.agent_id / "output" / call_id


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
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = self._path.open("wb", buffering=0)
            self._write(self._kept.head() + self._kept.tail())
        self._write(data)

    def _write(self, data: bytes) -> None:
        data = data[: MAX_OUTPUT_FILE - self._written]
        if data and self._file is not None:
            self._written += self._file.write(data)
