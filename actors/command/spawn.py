"""Starts the process of a command: a session of its own, on pipes or on a terminal that controls it."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from roost.actors.command.terminal import open_terminal
from roost.supervisor import kernel

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from roost.actors.command.terminal import Size

MARK = "ROOST_COMMAND"
"""The environment variable by which everything that a command starts is known."""

INSTANCE = "ROOST_INSTANCE"
"""The one by which everything of a daemon is known; no command goes without it."""

TERM = "xterm-256color"
PLAIN_DESCRIPTORS = 1024
PIPE_BYTES = 256 * 1024
_DEFAULT_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGXFSZ,
)


class StartFailed(Exception):
    """The command cannot be started; the text says why."""


class Started(msgspec.Struct, frozen=True):
    """A running command: its process, the reading ends of its output (one when it is merged), the end that feeds it.

    On a terminal these are two descriptors of its master. None of them blocks.
    """

    pid: int
    pidfd: int
    outputs: tuple[int, ...]
    stdin: int | None


def start_on_pipes(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    *,
    stdin: bool,
    merge: bool,
    inherit: Sequence[int] = (),
) -> Started:
    """Start a command in the main thread; its input is empty unless `stdin`.

    No function runs between fork and exec, so that Popen takes its vfork path whatever the size of this process.

    Raises:
        StartFailed: no such program or folder, not allowed, or the system is out of processes or descriptors.
    """
    with _failures(), ExitStack() as theirs, ExitStack() as ours:
        output, output_end = _pipe(ours, theirs)
        _widen(output)
        outputs: tuple[int, ...] = (output,)
        error_end = subprocess.STDOUT
        if not merge:
            errors, error_end = _pipe(ours, theirs)
            _widen(errors)
            outputs = (output, errors)
        feed, input_end = None, subprocess.DEVNULL
        if stdin:
            input_end, feed = _pipe(theirs, ours)
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=input_end,
            stdout=output_end,
            stderr=error_end,
            start_new_session=True,
            pass_fds=inherit,
        )
        process.returncode = 0  # the status is taken through the pidfd, and not by Popen
        for descriptor in outputs if feed is None else (*outputs, feed):
            os.set_blocking(descriptor, False)
        started = Started(process.pid, _watch(process.pid), outputs, feed)
        ours.pop_all()
        return started
    raise AssertionError  # nothing above is suppressed


def start_on_terminal(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    *,
    size: Size,
    inherit: Sequence[int] = (),
) -> Started:
    """Start a command in the main thread as the leader of a session that a new terminal controls.

    The terminal becomes the controlling one because the leader of the session opens it, as its first descriptor.

    Raises:
        StartFailed: as for `start_on_pipes`.
    """
    with _failures(), ExitStack() as ours:
        kernel.keep_descriptors()  # posix_spawn itself, unlike Popen, closes none
        master, slave = open_terminal(size)
        ours.callback(os.close, master)
        try:
            actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
                (os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
                *((os.POSIX_SPAWN_DUP2, number, number) for number in inherit),
            ]
            with _working_folder(cwd):
                pid = os.posix_spawn(
                    _find(argv[0], env),
                    list(argv),
                    {"TERM": TERM, **env},
                    file_actions=actions,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=_DEFAULT_SIGNALS,
                )
        finally:
            os.close(slave)
        pidfd = _watch(pid)
        ours.callback(os.close, pidfd)
        started = Started(pid, pidfd, (master,), os.dup(master))
        ours.pop_all()
        return started
    raise AssertionError  # nothing above is suppressed


@contextmanager
def _failures() -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise StartFailed(text or "cannot start") from error


def _pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    """Return the two ends of a pipe, each to be closed by its stack."""
    reader, writer = os.pipe()
    reading.callback(os.close, reader)
    writing.callback(os.close, writer)
    return reader, writer


def _widen(pipe: int) -> None:
    """Let a program write more before it is stopped, so that it and who reads take turns less often."""
    with suppress(
        OSError
    ):  # of what the system allows all pipes of a user together, nothing is left
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _watch(pid: int) -> int:
    """Return a descriptor that becomes readable at the end of a process just started; end it if there is none."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    _lower_limit(pid)
    return pidfd


def _lower_limit(pid: int) -> None:
    """Give the command the usual soft limit of open files; the daemon's own is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= PLAIN_DESCRIPTORS:
        return
    with suppress(OSError):  # it may have ended already
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (PLAIN_DESCRIPTORS, hard))


@contextmanager
def _working_folder(path: str) -> Generator[None]:
    """Work in a folder, for a start that looks things up there. Other threads keep theirs."""
    kernel.own_folder()
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(path)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def _find(program: str, env: Mapping[str, str]) -> str:
    """Return the path of a program, looked up as Popen does: in the command's own `PATH`, seen from its folder."""
    if "/" in program:
        return program
    found = errno.ENOENT
    for folder in os.get_exec_path(env):
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if os.path.exists(path):
            found = errno.EACCES
    raise OSError(found, os.strerror(found), program)
