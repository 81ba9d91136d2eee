"""commandExec.start, write, resize and terminate: what a client asks is checked here, and done by the commands service."""

from __future__ import annotations

import binascii
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import DaemonError, InvalidArgument
from roost.actors.front.command_words import (
    START,
    check_start,
    shown,
    wrong,
)
from roost.actors.front.gateway import Lost
from roost.actors.front.workspace import check_folder, make_scratch
from roost.actors.sandbox.policy import (
    Policy,
    PolicyError,
    read_policy,
    read_profile,
    write_setting,
)
from roost.schemas.base import AgentId
from roost.schemas.command_exec import CommandTold
from roost.schemas.commands import StartCommand, WindowSize

if TYPE_CHECKING:
    from roost.actors.front.command_table import RunningCommand
    from roost.actors.front.promise import Promise
    from roost.actors.front.router import Call, Caller
    from roost.actors.front.services import Services
    from roost.config.model import Commands
    from roost.schemas.command_exec import (
        CommandResize,
        CommandStart,
        CommandTerminate,
        CommandWrite,
    )

FOLDER_SECONDS = 5.0
SCRATCH = AgentId("commands")
ROWS, COLS = 24, 80
MAX_CAP = 2**62
TOLD = CommandTold()
AT_END = "\0commands"
"""No import has this name, by which others ask to be called."""

_told = msgspec.json.encode(TOLD)


async def start_command(call: Call, params: CommandStart) -> msgspec.Raw:
    """Run a command; return how it ended, after all of its output.

    Whatever ends the request before that ends the command: a cancel, the end of the connection or of the daemon.
    """
    caller, services = call.caller, call.services
    check_start(params, hears=caller.peer.hears)
    table = services.commands
    if params.process_id is not None and table.find(caller.number, params.process_id) is not None:
        text = f'duplicate active commandExec process id: "{shown(params.process_id)}"'
        raise wrong(text, "processId")
    policy = _read_policy(params)
    caller.at_end[AT_END] = partial(table.leave, caller.number)
    command = table.add(caller.number, caller.peer, params.process_id)
    command.has_terminal = params.tty
    command.takes_input = params.tty or params.stream_stdin
    call.on_cancel = _given_up
    try:
        cwd = await _folder(services, params.cwd)
        await table.start(
            command, _request(command, params, services.settings.commands, policy, cwd)
        )
        call.release_order()
        return await command.ended
    finally:
        table.remove(command)


async def write_command(call: Call, params: CommandWrite) -> CommandTold:
    """Hand bytes over to a command's input, or end that; return when they are queued for the program."""
    data = _decode(params)
    command = _find(call.caller, params.process_id)
    if not command.takes_input:
        raise wrong("stdin streaming is not enabled for this commandExec session", "processId")
    if command.input_closed:
        if params.delta_base64 is None or (params.close_stdin and not data):
            return TOLD
        raise wrong("stdin is already closed", "processId")
    command.input_closed = params.close_stdin
    try:
        await call.services.commands.write(command, data, close=params.close_stdin)
    except DaemonError as error:
        # That the input is closed has been looked for above, so it is the command that has ended, or its service.
        if error.code == "INVALID_ARGUMENT" or isinstance(error, Lost):
            raise _unknown(params.process_id) from None
        raise
    return TOLD


def resize_command(caller: Caller, params: CommandResize) -> bytes:
    """Give a command's terminal another size; what is typed may wait for the program, and this must not."""
    for name, value in (("rows", params.size.rows), ("cols", params.size.cols)):
        if value > 65_535:
            text = f"commandExec.resize param 'size.{name}' must be at most 65535"
            raise wrong(text, "size", name)
    command = _find(caller, params.process_id)
    if not command.has_terminal:
        raise wrong("commandExec.resize requires a PTY-backed session", "processId")
    caller.services.commands.resize(command, params.size.rows, params.size.cols)
    return _told


def terminate_command(caller: Caller, params: CommandTerminate) -> bytes:
    """End a command; its start is answered when nothing of it is left."""
    caller.services.commands.end(_find(caller, params.process_id))
    return _told


def _request(
    command: RunningCommand, params: CommandStart, settings: Commands, policy: Policy, cwd: str
) -> StartCommand:
    cap = settings.output_bytes if params.output_bytes_cap is None else params.output_bytes_cap
    timeout = settings.timeout or None
    if params.timeout_ms is not None:
        timeout = params.timeout_ms / 1000
    size = None
    if params.tty:
        given = params.size
        size = WindowSize(rows=given.rows, cols=given.cols) if given else _default_size()
    return StartCommand(
        number=command.number,
        connection=command.meter.connection,
        process_id=command.process_id,
        argv=tuple(params.command),
        cwd=cwd,
        policy=write_setting(policy),
        env=params.env or {},
        stdin=command.takes_input,
        size=size,
        streaming=params.tty or params.stream_stdout_stderr,
        cap=None if params.disable_output_cap else min(cap, MAX_CAP),
        timeout=None if params.disable_timeout else timeout,
    )


def _default_size() -> WindowSize:
    return WindowSize(rows=ROWS, cols=COLS)


def _read_policy(params: CommandStart) -> Policy:
    """Return what the client lets the command touch; it has to say that in so many words."""
    try:
        if params.sandbox_policy is not None:
            return read_policy(params.sandbox_policy)
        if params.permission_profile is not None:
            return read_profile(params.permission_profile)
    except PolicyError as error:
        name = "permissionProfile" if params.sandbox_policy is None else "sandboxPolicy"
        raise wrong(f"{START} {error}", name) from None
    text = f"[sandbox_surface_uncovered] {START} requires an explicit permissionProfile or sandboxPolicy"
    raise wrong(text, "")


async def _folder(services: Services, cwd: str | None) -> str:
    """Return the folder that a command starts in: the client's, or one for all commands that name none."""
    work = (
        partial(make_scratch, services.boot.home, SCRATCH)
        if cwd is None
        else partial(check_folder, START, cwd)
    )
    found: Promise[str] = services.in_thread(work, FOLDER_SECONDS)
    return await found


def _decode(params: CommandWrite) -> bytes:
    if params.delta_base64 is None and not params.close_stdin:
        raise wrong("commandExec.write requires deltaBase64 or closeStdin", "")
    try:
        return binascii.a2b_base64(params.delta_base64 or "", strict_mode=True)
    except ValueError:
        raise wrong("invalid deltaBase64", "deltaBase64") from None


def _find(caller: Caller, process_id: str) -> RunningCommand:
    found = caller.services.commands.find(caller.number, process_id)
    if found is None or found.ended.done:
        raise _unknown(process_id)
    return found


def _unknown(process_id: str) -> InvalidArgument:
    text = f'no active commandExec session for process id "{shown(process_id)}"'
    return wrong(text, "processId")


def _given_up(_reason: str) -> None:
    """Do nothing: the handler is closed with its request, and that ends the command."""
