from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from roost.config.errors import AlreadyRunning, HomeError
from roost.config.files import (
    DaemonFile,
    ensure_cookie,
    lock_is_held,
    read_cookie,
    read_daemon_file,
    read_pid,
    remove_daemon_files,
    take_lock,
    write_daemon_file,
)
from roost.config.paths import Home, prepare_home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home", explicit=True)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def daemon_file(pid: int) -> DaemonFile:
    return DaemonFile(pid=pid, created_at="2026-03-01T09:30:00.000Z", version="1", socket="/s")


def test_a_new_home_is_for_its_owner_only(home: Home) -> None:
    prepare_home(home)
    for folder in (home.path, home.logs, home.agent_logs, home.workspaces):
        assert mode(folder) == 0o700


def test_rights_of_others_are_taken_away(home: Home) -> None:
    home.path.mkdir()
    home.path.chmod(0o755)
    prepare_home(home)
    assert mode(home.path) == 0o700


def test_a_home_that_everyone_may_write_to_is_refused(home: Home) -> None:
    home.path.mkdir()
    home.path.chmod(0o777)
    with pytest.raises(HomeError, match="writable for everyone"):
        prepare_home(home)


def test_a_home_that_is_a_link_is_refused(home: Home, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    home.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HomeError, match="is a link"):
        prepare_home(home)


def test_a_home_that_is_a_dangling_link_is_refused(home: Home, tmp_path: Path) -> None:
    home.path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(HomeError, match="is a link"):
        prepare_home(home)


def test_a_home_that_is_no_folder_is_refused(home: Home) -> None:
    home.path.write_text("")
    with pytest.raises(HomeError, match="not a folder"):
        prepare_home(home)


def test_a_home_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="cannot make"):
        prepare_home(Home(tmp_path / "file" / "home", explicit=True))


def test_a_cookie_is_made_once_and_kept(home: Home) -> None:
    prepare_home(home)
    cookie = ensure_cookie(home)
    assert len(cookie) == 64
    assert home.cookie.read_text() == f"{cookie}\n"
    assert mode(home.cookie) == 0o600
    assert ensure_cookie(home) == read_cookie(home) == cookie
    assert [path.name for path in home.path.glob(".*")] == []


def test_an_empty_cookie_is_replaced(home: Home) -> None:
    prepare_home(home)
    home.cookie.write_text("\n")
    assert ensure_cookie(home)


def test_a_cookie_that_others_may_read_is_repaired(home: Home) -> None:
    prepare_home(home)
    cookie = ensure_cookie(home)
    home.cookie.chmod(0o644)
    assert ensure_cookie(home) == cookie
    assert mode(home.cookie) == 0o600


def test_a_cookie_that_is_a_link_is_refused(home: Home, tmp_path: Path) -> None:
    prepare_home(home)
    (tmp_path / "other").write_text("known\n")
    home.cookie.symlink_to(tmp_path / "other")
    with pytest.raises(HomeError, match="not a regular file"):
        ensure_cookie(home)


def test_of_two_that_make_a_cookie_at_once_the_first_counts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_home(home)
    link = os.link

    def lose_the_race(source: Path, target: Path) -> None:
        home.cookie.write_text("of the other one\n")
        link(source, target)

    monkeypatch.setattr("os.link", lose_the_race)
    assert ensure_cookie(home) == "of the other one"


def test_only_one_holds_the_lock_of_a_home(home: Home) -> None:
    prepare_home(home)
    lock = take_lock(home)
    write_daemon_file(home, daemon_file(4321))
    assert lock_is_held(home)
    with pytest.raises(AlreadyRunning, match="process 4321"):
        take_lock(home)
    os.close(lock)
    assert not lock_is_held(home)
    os.close(take_lock(home))


def test_the_lock_is_not_inherited(home: Home) -> None:
    prepare_home(home)
    lock = take_lock(home)
    assert not os.get_inheritable(lock)
    os.close(lock)


def test_clients_find_the_daemon_by_its_file(home: Home) -> None:
    prepare_home(home)
    assert read_daemon_file(home) is None
    write_daemon_file(home, daemon_file(77))
    assert read_daemon_file(home) == daemon_file(77)
    assert read_pid(home) == 77
    assert (mode(home.daemon_file), mode(home.pid_file)) == (0o600, 0o600)


def test_the_files_of_a_successor_are_left_alone(home: Home) -> None:
    prepare_home(home)
    write_daemon_file(home, daemon_file(77))
    remove_daemon_files(home, 76)
    assert home.daemon_file.exists()
    remove_daemon_files(home, 77)
    assert not home.daemon_file.exists()
    assert not home.pid_file.exists()


def test_a_damaged_daemon_file_says_so(home: Home) -> None:
    prepare_home(home)
    home.daemon_file.write_text('{"pid":')
    with pytest.raises(HomeError, match="damaged"):
        read_daemon_file(home)
