from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from roost.actors.client import backup_commands
from roost.actors.client.cli import cli
from roost.actors.store.replacing import resume
from tests.support.log_files import fill_store, log, parsed

if TYPE_CHECKING:
    from click.testing import Result

OLD = "20260101T000000Z"


def roost(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *arguments])


def sessions(home: Path) -> set[object]:
    found = parsed(roost(home, "events", "export", "--all").stdout_bytes)
    return {one["session_id"] for one in found}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    fill_store(home / "store.db", log("s-old", 5))
    return home


@pytest.fixture
def cut_short(home: Path, tmp_path: Path) -> Path:
    """A backup of s-new, and a home in which a rescue of s-old was cut short."""
    other = tmp_path / "other"
    other.mkdir()
    fill_store(other / "store.db", log("s-new", 5))
    copy = tmp_path / "copy.db"
    assert roost(other, "backup", str(copy)).exit_code == 0
    folder = home / "damaged" / OLD
    folder.mkdir(parents=True)
    shutil.copyfile(home / "store.db", folder / "store.db")
    (home / "store.db.replacing").write_text(f"{OLD}\n")
    (home / "store.db.suspect").touch()
    return copy


def test_a_rescue_cut_short_is_not_gone_on_with_after_a_restore(
    home: Path, cut_short: Path
) -> None:
    ended = roost(home, "restore", str(cut_short))
    assert ended.exit_code == 0
    assert f"copies of what was found damaged are in {home / 'damaged' / OLD}" in ended.stderr
    assert not list(home.glob("store.db.*"))
    resume(home / "store.db")
    assert sessions(home) == {"s-new"}


@pytest.mark.parametrize("step", ["put_in_place", "settle"])
def test_a_restore_that_is_cut_short_leaves_the_rescue_to_be_gone_on_with(
    home: Path, cut_short: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def killed(*_: object) -> None:
        raise SystemExit(143)

    (home / "store.db").write_bytes(b"half")
    monkeypatch.setattr(backup_commands, step, killed)
    assert roost(home, "restore", str(cut_short)).exit_code == 143
    assert (home / "store.db.suspect").exists()
    resume(home / "store.db")
    assert sessions(home) == {"s-old"}


def test_what_lies_where_copies_are_put_back_is_kept(home: Path, cut_short: Path) -> None:
    store = home / "store.db"
    for text in (b"put there by hand", b"and again"):
        (home / "store.db.replacing").write_text(OLD)
        store.write_bytes(text)
        resume(store)
        assert sessions(home) == {"s-old"}
    folder = home / "damaged" / OLD
    assert (folder / "replaced" / "store.db").read_bytes() == b"put there by hand"
    assert (folder / "replaced-2" / "store.db").read_bytes() == b"and again"
    assert not list(home.glob("store.db*.back"))


def test_copies_that_have_no_room_change_nothing(
    home: Path, cut_short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("roost.actors.store.replacing.shutil.copyfile", full)
    before = (home / "store.db").read_bytes()
    with pytest.raises(OSError, match="No space"):
        resume(home / "store.db")
    assert (home / "store.db").read_bytes() == before
    assert (home / "store.db.replacing").exists()
    assert not list(home.glob("*.back"))


def test_a_log_whose_database_was_missing_is_put_back_too(home: Path) -> None:
    folder = home / "damaged" / OLD
    folder.mkdir(parents=True)
    (folder / "store.db-wal").write_bytes(b"log")
    (home / "store.db.replacing").write_text(OLD)
    resume(home / "store.db")
    assert (home / "store.db-wal").read_bytes() == b"log"
    assert not (home / "store.db").exists()


def test_a_mark_without_a_name_moves_nothing(home: Path) -> None:
    (home / "damaged").mkdir()
    (home / "store.db.replacing").touch()
    resume(home / "store.db")
    assert sessions(home) == {"s-old"}
    assert not (home / "store.db.replacing").exists()


@pytest.mark.parametrize("kind", ["directory", "pipe", "socket", "device", "link to a pipe"])
def test_a_backup_replaces_regular_files_only(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    target = named = Path("target")
    if kind == "directory":
        target.mkdir()
    elif kind == "device":
        # One of its own: were the refusal missing, the system's would be replaced.
        try:
            os.mknod(target, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    elif kind.endswith("pipe"):
        os.mkfifo(target)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(target))
    if kind.startswith("link"):
        named = Path("link")
        named.symlink_to(target)
    before = target.lstat()
    ended = roost(home, "backup", "--force", str(named))
    assert ended.exit_code == 1
    assert f"{named} is a {kind.split()[-1]}, which is not replaced" in ended.stderr
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_a_backup_follows_a_link_to_a_file(home: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "copy.db", tmp_path / "link"
    target.write_bytes(b"")
    link.symlink_to(target)
    assert roost(home, "backup", str(link)).exit_code == 1
    assert roost(home, "backup", "--force", str(link)).exit_code == 0
    assert link.is_symlink()
    assert target.stat().st_size > 0


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_restore_over_what_is_no_file_is_refused(home: Path, tmp_path: Path, kind: str) -> None:
    copy = tmp_path / "copy.db"
    assert roost(home, "backup", str(copy)).exit_code == 0
    store = home / "store.db"
    store.rename(tmp_path / "elsewhere")
    if kind == "directory":
        store.mkdir()
    else:
        store.symlink_to(tmp_path / "elsewhere")
    ended = roost(home, "restore", str(copy))
    assert ended.exit_code == 1
    assert ended.stderr == f"roost: {store} is a {kind}, not a file; move it away\n"
    assert not list(home.glob("store-before*"))


def test_a_restore_from_a_pipe_is_refused(home: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ended = roost(home, "restore", str(pipe))
    assert ended.exit_code == 1
    assert "named pipe" in ended.stderr
