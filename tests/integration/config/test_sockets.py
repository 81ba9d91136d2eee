from __future__ import annotations

import socket
import stat
from typing import TYPE_CHECKING

import pytest

from roost.config.errors import HomeError, SocketInUse
from roost.config.sockets import bind_unix, probe_socket, remove_socket, socket_identity

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_socket_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    assert probe_socket(path) == "absent"
    with bind_unix(path):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert probe_socket(path) == "alive"


def test_a_socket_that_answers_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    with bind_unix(path), pytest.raises(SocketInUse):
        bind_unix(path)


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    bind_unix(path).close()
    assert probe_socket(path) == "stale"
    with bind_unix(path):
        assert probe_socket(path) == "alive"


def test_a_file_in_the_place_of_the_socket_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    path.write_text("mine")
    with pytest.raises(HomeError, match="not a socket"):
        bind_unix(path)
    assert path.read_text() == "mine"


def test_a_full_backlog_counts_as_alive(tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    with bind_unix(path, backlog=0):
        waiting: list[socket.socket] = []
        while len(waiting) < 8:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            waiting.append(client)
            if client.connect_ex(str(path)) != 0:
                break
        assert probe_socket(path) == "alive"
        for client in waiting:
            client.close()


def test_the_socket_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    with bind_unix(path):
        mine = socket_identity(path)
    with bind_unix(path):
        remove_socket(path, mine)
        assert path.exists()
        remove_socket(path, socket_identity(path))
        assert not path.exists()
    remove_socket(path, mine)
