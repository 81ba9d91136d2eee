"""The commands of the daemon door: params of `commandExec.*` and of its notification (P 6.32 to 6.35, 7.1)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from roost.schemas.daemon import Given, JsonObject, Limit, Name, Params
from roost.schemas.results import Result

Argv = Annotated[
    list[str],
    Meta(
        min_length=1,
        extra_json_schema={
            "type": "array",
            "minItems": 1,
            "items": [{"type": "string", "minLength": 1}],
            "additionalItems": {"type": "string"},
        },
    ),
]
"""A program with its arguments; only these may be empty."""
Count = Annotated[int, Meta(ge=0)]


class TerminalSize(Params, frozen=True, kw_only=True):
    """The size of a terminal in characters."""

    rows: Limit
    cols: Limit


class CommandStart(Params, frozen=True, kw_only=True):
    """`commandExec.start`."""

    command: Argv
    process_id: Given | None = None
    tty: bool = False
    stream_stdin: bool = False
    stream_stdout_stderr: bool = False
    output_bytes_cap: Count | None = None
    disable_output_cap: bool = False
    disable_timeout: bool = False
    timeout_ms: Count | None = None
    cwd: str | None = None
    env: dict[str, str | None] | None = None
    size: TerminalSize | None = None
    sandbox_policy: JsonObject | None = None
    permission_profile: JsonObject | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if there is no program."""
        if not self.command[0]:
            raise ValueError("param 'command' must not start with an empty string")


class CommandWrite(Params, frozen=True, kw_only=True):
    """`commandExec.write`."""

    process_id: Name
    delta_base64: str | None = None
    close_stdin: bool = False


class CommandResize(Params, frozen=True, kw_only=True):
    """`commandExec.resize`."""

    process_id: Name
    size: TerminalSize


class CommandTerminate(Params, frozen=True, kw_only=True):
    """`commandExec.terminate`."""

    process_id: Name


class CommandFacts(Result, frozen=True, kw_only=True):
    """What is said of an ended command besides its exit code and its output, each only where there is something to say.

    `dropped_env` names what was to be set and was not, because it looks secret; `sandbox` is what the command ran in.
    """

    signal: str = ""
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    dropped_env: tuple[str, ...] = ()
    sandbox: str = ""


class CommandResult(CommandFacts, frozen=True, kw_only=True):
    """The result of `commandExec.start`; of streamed output the texts are empty."""

    exit_code: int
    stdout: str
    stderr: str


class CommandTold(Result, frozen=True, kw_only=True):
    """The result of `commandExec.write`, `resize` and `terminate`: nothing."""


class OutputDelta(Result, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`commandExec.outputDelta`."""

    process_id: Given
    stream: Literal["stdout", "stderr"]
    delta_base64: str
    cap_reached: bool
