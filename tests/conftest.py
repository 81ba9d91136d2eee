"""Fixtures that every test may use; `no_process_left_behind` applies by itself.

Loopback only, port 0, `autojump_clock` only without real processes and sockets, `trio.fail_after` with them.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checked import check_message
from tests.support.left_behind import none_left_behind
from tests.support.micro_model import model_server

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["model_server"]

PR_SET_CHILD_SUBREAPER = 36


def pytest_configure() -> None:
    """Make this process a subreaper, so that a daemon which detached itself is seen here; find `bench`.

    What a daemon sends to its client is checked from here on.
    """
    # A background job of a shell has these ignored, and so would all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # Last, so that an installed daemon comes before the checkout.
    sys.path.append(str(Path(__file__).parents[1]))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    from bench.daemon import Client

    Client.check = check_message


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail the test that leaves a child process running or a zombie unreaped."""
    with none_left_behind():
        yield


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty folder for a daemon; its path is short, since a socket's address is."""
    with tempfile.TemporaryDirectory(prefix="roost-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Path]:
    """One for the daemon of a module."""
    with tempfile.TemporaryDirectory(prefix="roost-", ignore_cleanup_errors=True) as path:
        yield Path(path)
