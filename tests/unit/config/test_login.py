from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from roost.config.errors import HomeError
from roost.config.login import log_in, log_out, read_login
from roost.config.paths import Home

if TYPE_CHECKING:
    from pathlib import Path

NOW = "2026-03-01T09:30:00.000Z"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, explicit=True)


def test_a_login_is_made_once_and_kept(home: Home) -> None:
    assert read_login(home) is None
    first = log_in(home, NOW)
    assert log_in(home, "later") == first
    assert read_login(home) == first
    assert stat.S_IMODE(home.login.stat().st_mode) == 0o600
    assert [path.name for path in home.path.iterdir()] == ["auth.json"]
    assert first.token not in repr(first)


def test_a_logout_removes_it_and_may_be_repeated(home: Home) -> None:
    log_in(home, NOW)
    log_out(home)
    log_out(home)
    assert list(home.path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"version":2,"token":"t","createdAt":"n","provider":"local"}',
        b'{"version":1,"token":"","createdAt":"n","provider":"local"}',
        b'{"version":1,"token":"t","createdAt":"n","provider":"elsewhere"}',
        b"[" * 100_000,
    ],
)
def test_what_cannot_be_understood_is_no_login_and_stays(home: Home, content: bytes) -> None:
    home.login.write_bytes(content)
    assert read_login(home) is None
    log_out(home)
    assert home.login.read_bytes() == content
    log_in(home, NOW)
    (aside,) = home.path.glob("auth.json.damaged-*")
    assert aside.read_bytes() == content


def test_others_lose_the_rights_that_they_have_on_it(home: Home) -> None:
    log_in(home, NOW)
    home.login.chmod(0o644)
    assert read_login(home) is not None
    assert stat.S_IMODE(home.login.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe"])
def test_what_is_no_regular_file_is_refused(home: Home, kind: str) -> None:
    other = home.path / "other"
    if kind == "link":
        other.write_text("{}")
    if kind in {"link", "dangling"}:
        home.login.symlink_to(other)
    elif kind == "folder":
        home.login.mkdir()
    else:
        os.mkfifo(home.login)
    with pytest.raises(HomeError, match="move it away"):
        read_login(home)
    with pytest.raises(HomeError, match="move it away"):
        log_out(home)
    with pytest.raises(HomeError, match="move it away"):
        log_in(home, NOW)


def test_a_home_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="cannot write"):
        log_in(Home(tmp_path / "gone", explicit=True), NOW)
