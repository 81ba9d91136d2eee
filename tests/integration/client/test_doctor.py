from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

from roost.actors.client import doctor
from roost.actors.client.doctor import examine
from roost.config.files import DaemonFile, ensure_cookie, write_daemon_file
from roost.config.paths import Home, prepare_home
from roost.config.sockets import bind_unix
from roost.schemas.boot import Backend

if TYPE_CHECKING:
    from pathlib import Path

    from roost.actors.client.doctor_files import Finding

GONE = 2**22 - 3


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", explicit=True)
    prepare_home(home)
    ensure_cookie(home)
    return home


def problems(home: Home) -> dict[str, Finding]:
    return {f.what: f for f in examine(home, answers=False) if f.level == "problem"}


def write_file(home: Home, pid: int, *, created_at: str = "2026-03-01T09:30:00.000Z") -> None:
    daemon = DaemonFile(pid=pid, created_at=created_at, version="0.1.0", socket=str(home.socket))
    write_daemon_file(home, daemon)


def test_a_sound_home_has_no_problem(home: Home) -> None:
    assert problems(home) == {}


def test_a_home_that_is_not_there_is_no_problem(tmp_path: Path) -> None:
    assert problems(Home(tmp_path / "nowhere", explicit=True)) == {}


def test_a_stale_pid_is_found(home: Home) -> None:
    write_file(home, GONE)
    assert f"process {GONE}, which is gone" in problems(home)["pid"].text


def test_a_pid_that_belongs_to_somebody_else_by_now_is_found(home: Home) -> None:
    write_file(home, os.getpid())
    assert "is not the daemon" in problems(home)["pid"].text


def test_a_stale_socket_is_found(home: Home) -> None:
    bind_unix(home.socket).close()
    finding = problems(home)["socket"]
    assert "is left from a daemon that is gone" in finding.text
    assert finding.advice


def test_a_file_in_the_place_of_the_socket_is_found(home: Home) -> None:
    home.socket.write_text("")
    home.socket.chmod(0o600)
    assert "not a socket" in problems(home)["socket"].text


def test_files_that_others_may_read_are_found(home: Home) -> None:
    home.cookie.chmod(0o644)
    finding = problems(home)["modes"]
    assert str(home.cookie) in finding.text
    assert finding.advice == f"chmod 600 {home.cookie}"


@pytest.mark.parametrize("name", ["daemon.cookie", "store.db", "logs"])
def test_a_link_is_named_and_what_it_leads_to_is_left_alone(
    home: Home, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "target"
    target.write_text("")
    path = home.path / name
    if path.is_dir():
        for folder in (home.agent_logs, home.logs):
            folder.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    found = [f for f in examine(home, answers=False) if f.level == "problem"]
    assert [f.text for f in found] == [f"{path} is a link"]
    assert "chmod" not in found[0].advice


@pytest.mark.parametrize(
    ("text", "mode", "named"),
    [
        ('[providers.x]\nbase_url = "http://h"\nkey = "k"\n', 0o644, True),
        ('[providers.x]\nbase_url = "http://h"\nkey = "k"\n', 0o600, False),
        ('[providers.x]\nbase_url = "http://h"\nkey_env = "K"\n', 0o644, False),
        ("", 0o644, False),
    ],
)
def test_a_configuration_with_a_key_that_others_may_read_is_found(
    home: Home, text: str, mode: int, named: bool
) -> None:
    home.config.write_text(text)
    home.config.chmod(mode)
    found = problems(home)
    if named:
        assert "holds a key and has mode 0644" in found["config"].text
        assert f"chmod 600 {home.config}" in found["config"].advice
    else:
        assert found == {}


def _database(home: Home) -> None:
    with contextlib.closing(sqlite3.connect(home.store)) as connection:
        connection.execute("create table t (id integer primary key, text text)")
        connection.executemany("insert into t (text) values (?)", [("x" * 3000,)] * 200)
        connection.commit()
    home.store.chmod(0o600)


def test_a_sound_store_is_no_problem(home: Home) -> None:
    _database(home)
    assert problems(home) == {}


def test_a_store_that_is_no_database_is_found(home: Home) -> None:
    home.store.write_text("this is a text, and no database at all")
    home.store.chmod(0o600)
    assert "is no database" in problems(home)["store"].text


def test_a_damaged_store_is_found(home: Home) -> None:
    _database(home)
    with home.store.open("r+b") as file:
        file.seek(home.store.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 8192)
    before = sorted(home.path.iterdir())
    assert "damaged" in problems(home)["store"].text
    assert sorted(home.path.iterdir()) == before


def test_a_store_in_use_is_not_searched_for_damage(home: Home) -> None:
    _database(home)
    with home.store.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    home.store.with_name("store.db-wal").write_bytes(b"x")
    assert "store" not in problems(home)


def test_a_home_that_everyone_may_write_to_is_found(home: Home) -> None:
    home.path.chmod(0o777)
    assert "writable for everyone" in problems(home)["home"].text


def test_a_broken_configuration_is_found(home: Home) -> None:
    home.config.write_text("[limits]\nconections = 3\n")
    assert "limits.connections" in problems(home)["config"].text


def test_a_port_in_use_is_found(home: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        home.config.write_text(f"[websocket]\nport = {port}\n")
        finding = problems(home)["port"]
    assert str(port) in finding.text
    assert "websocket.port" in finding.advice


def test_a_full_disk_is_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LOW_DISK", 1 << 62)
    assert "MiB are free" in problems(home)["disk"].text


def test_less_room_than_the_store_insists_on_is_found(home: Home) -> None:
    home.config.write_text("[store]\nmin_free_mib = 1_000_000_000\n")
    assert "1000000000 are wanted" in problems(home)["disk"].text


@pytest.mark.parametrize("name", ["store.db", "daemon.json"])
def test_a_clock_that_is_behind_is_found(home: Home, name: str) -> None:
    path = home.path / name
    path.touch(mode=0o600)
    if name == "daemon.json":
        write_file(home, GONE, created_at="2999-01-01T00:00:00.000Z")
    else:
        later = time.time() + 3600
        os.utime(path, (later, later))
    assert "behind" in problems(home)["clock"].text


@pytest.mark.parametrize(
    ("backend", "level", "text"),
    [
        (Backend(detail="bubblewrap (bwrap) is not installed"), "note", "not installed"),
        (Backend(name="landlock", detail="Landlock 7"), "note", "Landlock 7"),
        (Backend(name="bubblewrap", detail="bubblewrap"), "ok", "bubblewrap"),
    ],
)
def test_what_confines_commands_is_named_and_what_to_do_without(
    home: Home, monkeypatch: pytest.MonkeyPatch, backend: Backend, level: str, text: str
) -> None:
    def found(_: object) -> Backend:
        return backend

    monkeypatch.setattr(doctor, "find_backend", found)
    (finding,) = [f for f in examine(home, answers=False) if f.what == "sandbox"]
    assert finding.level == level
    assert text in finding.text
    assert ("dangerFullAccess" in finding.advice) is (not backend.name)


def test_a_daemon_that_does_not_answer_is_found(home: Home) -> None:
    from roost.config.files import take_lock

    lock = take_lock(home)
    finding = problems(home)["daemon"]
    os.close(lock)
    assert "does not answer" in finding.text
    assert "roost down" in finding.advice
