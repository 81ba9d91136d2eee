"""From a policy and a command to what has to be started so that the system holds the command to the policy.

Nothing here starts a process, but the process that calls `launch` is the one that has to. It returns the command line of the launcher, a small program that confines itself
and then becomes the command: no Python runs between a fork of this process and its exec.
"""

from __future__ import annotations

import errno
import marshal
import os
import platform
import resource
import sys
from binascii import b2a_base64
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from roost.actors.sandbox.bubblewrap import bubblewrap_options
from roost.actors.sandbox.places import PlaceError, Places, find_places, hidden_paths
from roost.actors.sandbox.seccomp import is_known, make_filter
from roost.config.paths import resolve_home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.sandbox.launcher import Plan
    from roost.actors.sandbox.policy import Policy
    from roost.actors.sandbox.seccomp import Machine
    from roost.config.model import Sandbox
    from roost.schemas.boot import Backend

# Imported, unlike a program in a file, it need not be compiled; its folder comes last, behind the standard library.
_CODE = (
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import launcher; launcher.main()"
)
START = (sys.executable, "-I", "-S", "-X", "utf8", "-c", _CODE)
PYTHON_RESET = (*START, "reset")
MARKS = "ROOST_"


class LaunchError(Exception):
    """The command cannot be started like this; the text says why."""


class SandboxUnavailable(LaunchError):
    """Nothing on this machine can hold a command to this policy."""


class Launch(msgspec.Struct, frozen=True):
    """What is to be started in place of the command."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


def launch(
    policy: Policy,
    backend: Backend,
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    *,
    home: str,
    rules: Sandbox,
    exposed: Sequence[str] = (),
) -> Launch:
    """Return what starts this command under this policy; a policy that confines nothing leaves it as it is.

    `exposed` are parts of the daemon's home that this command may see all the same.

    Raises:
        SandboxUnavailable: the policy confines and there is no backend.
        LaunchError: there is no such program, or the policy cannot hold in this folder.
    """
    if not policy.is_confined:
        return Launch(tuple(argv), cwd, env)
    if not backend.name:
        raise SandboxUnavailable(f"No sandbox for {policy.type} is available: {backend.detail}")
    try:
        places = places_for(policy, cwd=cwd, env=env, home=home, rules=rules, exposed=exposed)
    except PlaceError as error:
        raise LaunchError(str(error)) from error
    program = _find(argv[0], cwd, env)
    plan = _plan(policy, backend, places, rules, program=program, cwd=os.path.realpath(cwd))
    given = b2a_base64(marshal.dumps(cast("dict[str, bytes]", plan)), newline=False).decode()
    marked = {name: value for name, value in env.items() if name.startswith(MARKS)}
    kept = {f"+{name}": value for name, value in env.items()}
    return Launch((*START, given, *argv), cwd, {**marked, **kept})


def places_for(
    policy: Policy,
    *,
    cwd: str,
    env: Mapping[str, str],
    home: str,
    rules: Sandbox,
    exposed: Sequence[str] = (),
) -> Places:
    """Return what a command under this policy may see and change.

    Raises:
        PlaceError: the policy cannot hold in this folder.
    """
    runtime = str(resolve_home(home, os.environ).runtime)
    hidden = hidden_paths(home, runtime, rules.hidden)
    return find_places(policy, cwd=cwd, env=env, hidden=hidden, exposed=exposed)


def machine() -> Machine | None:
    """Return the kind of this machine if there is a filter of system calls for it."""
    found = platform.machine()
    return cast("Machine", found) if is_known(found) and sys.byteorder == "little" else None


def _plan(
    policy: Policy, backend: Backend, places: Places, rules: Sandbox, *, program: str, cwd: str
) -> Plan:
    kind = machine()
    if kind is None:
        raise SandboxUnavailable("No filter of system calls is known for this kind of machine")
    inside = backend.name == "bubblewrap"
    options: list[str] = []
    if inside:
        folders = frozenset(path for path in places.hidden if os.path.isdir(path))
        options = bubblewrap_options(places, folders, cwd=cwd, network=policy.network)
    return {
        "program": program,
        "limits": _limits(rules),
        "tasks": rules.tasks,
        # In a network namespace of its own a command reaches nobody but itself.
        "filter": make_filter(kind, sockets=inside or policy.network, namespaces=inside),
        "bubblewrap": backend.program if inside else "",
        "options": options,
        "prefix": list(backend.prefix),
        "cwd": cwd,
        "parent": os.getpid(),
        "hidden": list(places.hidden),
        "exposed": list(places.exposed),
        "writable": list(places.writable),
    }


def _limits(rules: Sandbox) -> list[tuple[int, int]]:
    wanted = (
        (resource.RLIMIT_DATA, rules.data_bytes),
        (resource.RLIMIT_AS, rules.address_bytes),
        (resource.RLIMIT_FSIZE, rules.file_bytes),
        (resource.RLIMIT_NOFILE, rules.open_files),
    )
    return [(number, most) for number, most in wanted if most] + [(resource.RLIMIT_CORE, 0)]


def _find(program: str, cwd: str, env: Mapping[str, str]) -> str:
    """Return the absolute path of a program, looked up in the command's own `PATH`.

    Raises:
        LaunchError: there is none, or it cannot be run.
    """
    if "/" in program:
        candidates = [os.path.join(cwd, program)]
    else:
        candidates = [os.path.join(cwd, folder, program) for folder in os.get_exec_path(env)]
    found = errno.ENOENT
    for path in candidates:
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if os.path.exists(path):
            found = errno.EACCES
    raise LaunchError(os.strerror(found))
