"""What every child process does before its own work begins, whichever way it was started."""

from __future__ import annotations

import faulthandler
import importlib
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, cast

from roost.supervisor import kernel

CRASHED = 70
_RESET = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

Entry = Callable[[int], None]


def find_entry(text: str) -> Entry:
    """Return the function that `module:function` names.

    Raises:
        ImportError: there is no such module or function.
    """
    module, _, name = text.partition(":")
    found: object = getattr(importlib.import_module(module), name, None)
    if not callable(found):
        raise ImportError(f"{text} is not a function")  # noqa: TRY004 - one error for all that is wrong with it
    return cast("Entry", found)


def run_spawned(entry: str) -> NoReturn:
    """Run the entry in a fresh interpreter whose only argument is the descriptor of its control link."""
    control_fd = int(sys.argv[1])
    control = socket.socket(fileno=control_fd)
    root_pid = kernel.socket_maker(control)
    control.detach()
    os.set_inheritable(control_fd, False)
    os.environ.pop("PYTHONPATH", None)
    _settle(root_pid)
    _run(find_entry(entry), control_fd)


def run_forked(entry: Entry, control_fd: int, stderr_fd: int, root_pid: int) -> NoReturn:
    """Run the entry in a forked child that root has adopted already."""
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stderr_fd, 1)
    os.dup2(stderr_fd, 2)
    os.close(null)
    os.close(stderr_fd)
    os.set_inheritable(control_fd, False)
    random.seed()
    _settle(root_pid)
    _run(entry, control_fd)


def _settle(root_pid: int) -> None:
    kernel.die_with_parent(signal.SIGKILL)
    if root_pid and os.getppid() != root_pid:  # root ended before it could take us along
        os._exit(0)
    kernel.forbid_core_files()
    faulthandler.enable()


def _run(entry: Entry, control_fd: int) -> NoReturn:
    status = 0
    try:
        entry(control_fd)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of the process
        traceback.print_exc()
        status = CRASHED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    # A forked child must not run what the zygote has registered for its own end.
    os._exit(status)
