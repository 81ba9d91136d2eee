"""Run as a program of its own: puts this process into a sandbox and becomes the command.

It is started as `python -I -S -c … PLAN PROGRAM ARGUMENT…`, since nothing may run between the daemon's fork and
exec, and imports as little as it can: its start is the cost of every command in a sandbox. What the command is to have
in its environment comes with a `+` before each name, so that nothing of it has an effect on this program or on bubblewrap.
"""

from __future__ import annotations

import marshal
import os
import resource
import sys
from binascii import a2b_base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import TypedDict

    class Plan(TypedDict):
        """What is to be done; only types that `marshal` knows."""

        program: str
        limits: list[tuple[int, int]]
        tasks: int
        filter: bytes
        bubblewrap: str
        options: list[str]
        prefix: list[str]
        cwd: str
        parent: int
        hidden: list[str]
        exposed: list[str]
        writable: list[str]


else:
    # What `signal` is made of: the module itself would cost as much as all the rest of this program.
    import _signal as signal

NOT_CONFINED, NOT_STARTED = 125, 126
MOST_ARGUMENTS = 8900
"""Bubblewrap takes 9,000: its own options, three for each variable, and those of the command together."""
OOM_FIRST = "1000"
GROUPS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
GROUP = "roost-"
TRIES = 3
# Python ignores these itself.
IGNORED_BY_PYTHON = ("PIPE", "XFSZ")
# Bubblewrap has to stay while the command, to whose group it belongs, deals with these.
FOR_THE_COMMAND = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "TSTP")


def main() -> None:
    """Become the command; where something fails, say so on standard error and exit with 125 or 126."""
    if sys.argv[1] == "reset":
        _exec(sys.argv[2], sys.argv[2:], dict(os.environ))
    if sys.argv[1] == "become":
        _become_handed_over(int(sys.argv[2]))
    plan: Plan = marshal.loads(a2b_base64(sys.argv[1]))
    env = _environment()
    try:
        _bound(plan)
        if plan["bubblewrap"]:
            _become_bubblewrap(plan, env)
        _confine(plan)
        _stop_if_orphaned(plan)
    except OSError as error:
        _give_up(NOT_CONFINED, f"the sandbox cannot be set up: {error}")
    _exec(plan["program"], sys.argv[2:], env)


def _confine(plan: Plan) -> None:
    if TYPE_CHECKING:
        from roost.actors.sandbox.landlock import confine
    else:
        from landlock import confine
    confine(plan)


def _environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name.startswith("ROOST_")}
    if "TERM" in os.environ:
        env["TERM"] = os.environ["TERM"]
    env.update({name[1:]: value for name, value in os.environ.items() if name.startswith("+")})
    return env


def _bound(plan: Plan) -> None:
    """Set the limits that hold for this process and all that it starts."""
    if plan["tasks"]:
        if os.getuid() == 0:
            _join_group(plan["tasks"])
        _limit(resource.RLIMIT_NPROC, plan["tasks"] + _count_tasks())
    for number, most in plan["limits"]:
        _limit(number, most)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(OOM_FIRST)
    except OSError:
        pass


def _limit(number: int, most: int) -> None:
    _, hard = resource.getrlimit(number)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(number, (most, most))


def _count_tasks() -> int:
    """Count what this user runs already, since the limit is on all of that together."""
    uid, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid == uid:
                count += os.stat(f"/proc/{name}/task").st_nlink - 2
        except OSError:
            pass
    return count


def _join_group(most: int) -> None:
    """Join a control group of this command's own: the other limit does not hold for root.

    What is left of commands that have ended is removed by the way: the system refuses it for those that still run.
    """
    for base in GROUPS:
        joined = any(_join(f"{base}/{GROUP}{os.getpid()}", most) for _ in range(TRIES))
        if joined:
            _remove_empty(base)
            return


def _join(folder: str, most: int) -> bool:
    """Return whether that was possible; another command's start may just have removed the empty group."""
    try:
        os.makedirs(folder, exist_ok=True)
        for file, text in (("pids.max", str(most)), ("cgroup.procs", "0")):
            with open(f"{folder}/{file}", "w") as target:
                target.write(text)
    except OSError:
        return False
    return True


def _remove_empty(base: str) -> None:
    for name in os.listdir(base):
        if name.startswith(GROUP):
            try:  # noqa: SIM105 - contextlib would cost every start its import
                os.rmdir(f"{base}/{name}")
            except OSError:
                pass


def _become_bubblewrap(plan: Plan, env: dict[str, str]) -> None:
    options = [*plan["options"], "--clearenv"]
    program = [*plan["prefix"], plan["program"], *sys.argv[3:]]
    if len(options) + 3 * len(env) + len(program) > MOST_ARGUMENTS:
        program = _hand_over(program[len(plan["prefix"]) :], env)
    else:
        for name, value in env.items():
            options += ["--setenv", name, value]
    given = _in_memory(b"".join(os.fsencode(option) + b"\0" for option in options))
    rules = _in_memory(plan["filter"])
    for name in FOR_THE_COMMAND:
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
    _stop_if_orphaned(plan)
    own = [plan["bubblewrap"], "--args", str(given), "--seccomp", str(rules), "--"]
    marks = {name: value for name, value in os.environ.items() if name.startswith("ROOST_")}
    _reset_ignored()
    os.execve(plan["bubblewrap"], [*own, *program], marks)


def _hand_over(argv: list[str], env: dict[str, str]) -> list[str]:
    """Return the command line of this program as the one that becomes a command, in bubblewrap and past its bounds."""
    handed = _in_memory(marshal.dumps((argv, env)))
    start = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    return [*start, "become", str(handed)]


def _become_handed_over(descriptor: int) -> None:
    with open(descriptor, "rb") as file:
        argv, env = marshal.load(file)
    _exec(argv[0], argv, {**env, "PWD": os.environ["PWD"]} if "PWD" in os.environ else env)


def _in_memory(data: bytes) -> int:
    """Return a descriptor, kept over exec, from which these bytes can be read."""
    descriptor = os.memfd_create("roost", 0)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _reset_ignored() -> None:
    for name in IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)


def _exec(program: str, argv: list[str], env: dict[str, str]) -> None:
    _reset_ignored()
    for name in FOR_THE_COMMAND:
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
    try:
        os.execve(program, argv, env)
    except OSError as error:
        _give_up(NOT_STARTED, f"{argv[0]}: {error.strerror}")


def _stop_if_orphaned(plan: Plan) -> None:
    """End here if who started this has ended already: the kernel's signal for that would never come."""
    if os.getppid() != plan["parent"]:
        _give_up(NOT_CONFINED, "what started this command has ended")


def _give_up(code: int, text: str) -> None:
    os.write(2, f"roost: {text}\n".encode(errors="replace"))
    os._exit(code)
