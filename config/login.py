"""The local login: `auth.json` in the home, which says that somebody has logged in here. Its token goes nowhere.

A file that cannot be understood counts as no login and stays where it is, or is put aside by the next login. All of this
may block for as long as the disk does.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
import uuid
from typing import TYPE_CHECKING

import msgspec

from roost.config.errors import HomeError
from roost.config.files import MAX_SMALL_FILE
from roost.config.paths import FILE_MODE

if TYPE_CHECKING:
    from pathlib import Path

    from roost.config.paths import Home

PROVIDER = "local"
DAMAGED = "damaged"

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What may be told of who is logged in."""

    account_id: str = ""
    email: str = ""
    handle: str = ""
    display_name: str = ""
    plan: str = ""


class Login(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `auth.json` holds; the token never shows in a `repr`."""

    version: int
    token: str
    created_at: str
    provider: str
    identity: Identity = Identity()

    def __repr__(self) -> str:
        return f"Login(provider={self.provider!r}, created_at={self.created_at!r})"


_decode = msgspec.json.Decoder(Login).decode
_one_at_a_time = threading.Lock()


def read_login(home: Home) -> Login | None:
    """Return the login of a home, or None.

    Raises:
        HomeError: the file is a link, no regular file, another user's, or cannot be read.
    """
    data = _read(home.login)
    if data is None:
        return None
    try:
        login = _decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return login if login.version == 1 and login.token and login.provider == PROVIDER else None


def log_in(home: Home, now: str) -> Login:
    """Return the login of a home; make one if there is none.

    Raises:
        HomeError: as for `read_login`, or it cannot be written.
    """
    with _one_at_a_time:
        found = read_login(home)
        if found is not None:
            return found
        login = Login(
            version=1,
            token=str(uuid.uuid4()),
            created_at=now,
            provider=PROVIDER,
            identity=Identity(account_id="local", display_name="Local user"),
        )
        try:
            _put_aside(home.login)
            _write(home.login, msgspec.json.encode(login) + b"\n")
        except OSError as error:
            raise HomeError(f"cannot write {home.login}: {error.strerror}") from None
        return login


def log_out(home: Home) -> None:
    """Remove the login of a home, if there is one.

    Raises:
        HomeError: as for `read_login`, or it cannot be removed.
    """
    with _one_at_a_time:
        if read_login(home) is None:
            return
        try:
            home.login.unlink(missing_ok=True)
            _sync_folder(home.login)
        except OSError as error:
            raise HomeError(f"cannot remove {home.login}: {error.strerror}") from None


def _read(path: Path) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.is_symlink():
            raise HomeError(f"{path} is a link; move it away") from None
        raise HomeError(f"cannot read {path}: {error.strerror}") from None
    try:
        _check(path, os.fstat(fd))
        if stat.S_IMODE(os.fstat(fd).st_mode) != FILE_MODE:
            os.fchmod(fd, FILE_MODE)
        # A longer one cannot be ours: what is cut off makes it unreadable.
        return os.read(fd, MAX_SMALL_FILE)
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}") from None
    finally:
        os.close(fd)


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise HomeError(f"{path} is not a regular file; move it away")
    if found.st_uid != os.getuid():
        raise HomeError(f"{path} belongs to user {found.st_uid}, not to {os.getuid()}")


def _put_aside(path: Path) -> None:
    """Give a file that is no login another name; it may be of use to who knows what it was."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.{DAMAGED}-{secrets.token_hex(4)}"))


def _write(path: Path, data: bytes) -> None:
    """Replace a file as a whole; after a power cut it is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, FILE_MODE)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path)


def _sync_folder(path: Path) -> None:
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
