"""Where the daemon's files lie, and that nobody else can touch them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from roost.config.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SOCKET_PATH = 107
FOLDER_MODE = 0o700
FILE_MODE = 0o600


class Home:
    """The state folder of a daemon and what lies in it; nothing is touched by making one.

    `explicit` says that the user named it, as opposed to the default.
    """

    def __init__(self, path: Path, *, explicit: bool, runtime_base: Path | None = None) -> None:
        self.path = path
        self.explicit = explicit
        self._runtime_base = runtime_base
        self.config = path / "config.toml"
        self.cookie = path / "daemon.cookie"
        self.daemon_file = path / "daemon.json"
        self.lock = path / "daemon.lock"
        self.pid_file = path / "daemon.pid"
        self.store = path / "store.db"
        self.login = path / "auth.json"
        self.logs = path / "logs"
        self.daemon_log = self.logs / "daemon.jsonl"
        self.daemon_stderr = self.logs / "daemon-stderr.log"
        self.agent_logs = self.logs / "agents"
        self.workspaces = path / "workspaces"

    @property
    def instance(self) -> str:
        """A short name of the home that its processes carry in `ROOST_INSTANCE`."""
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]

    @property
    def socket(self) -> Path:
        """The Unix socket: in the home, or in the runtime folder if that path is too long for an address."""
        path = self.path / "daemon.sock"
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
            return path
        return self.runtime / "daemon.sock"

    @property
    def runtime(self) -> Path:
        """The folder for the socket when the home's path is too long."""
        if self._runtime_base is not None:
            return self._runtime_base / f"roost-{self.instance}"
        return Path(tempfile.gettempdir()) / f"roost-{os.getuid()}-{self.instance}"

    def agent_log(self, agent_id: str) -> Path:
        """Return the file with what the process of an agent said on standard error."""
        return self.agent_logs / f"{agent_id}.log"


def resolve_home(option: str | None, environ: Mapping[str, str]) -> Home:
    """Return the home that an option, `ROOST_HOME` or the XDG state folder names, in this order."""
    runtime = environ.get("XDG_RUNTIME_DIR") or ""
    base = Path(runtime) if runtime.startswith("/") else None
    named = option or environ.get("ROOST_HOME")
    if named:
        path = Path(os.path.abspath(Path(named).expanduser()))
        return Home(path, explicit=True, runtime_base=base)
    state = environ.get("XDG_STATE_HOME") or ""
    folder = Path(state) if state.startswith("/") else Path("~/.local/state").expanduser()
    return Home(folder / "roost", explicit=False, runtime_base=base)


def prepare_home(home: Home) -> None:
    """Make the home and its folders; take away rights that others have on them.

    Raises:
        HomeError: the home is a link, no folder, another user's, writable for everyone, or cannot be made.
    """
    try:
        home.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        if not home.path.is_symlink() and not home.path.exists():
            raise HomeError(f"cannot make {home.path}: {error.strerror}") from None
    check_home(home)
    folders = [home.path, home.logs, home.agent_logs, home.workspaces]
    if home.socket.parent != home.path:
        folders.append(home.runtime)
    for folder in folders:
        _prepare_folder(folder)


def check_home(home: Home) -> None:
    """Look at the home without changing it.

    Raises:
        HomeError: it is not there, a link, no folder, another user's, or writable for everyone.
    """
    check_folder(home.path, "the home")


def check_folder(path: Path, what: str) -> None:
    """Look at one folder without changing it.

    Raises:
        HomeError: it is not there, a link, no folder, another user's, or writable for everyone.
    """
    try:
        found = path.lstat()
    except OSError as error:
        raise HomeError(f"{what} {path} cannot be used: {error.strerror}") from None
    if stat.S_ISLNK(found.st_mode):
        raise HomeError(f"{what} {path} is a link; name the folder it leads to")
    if not stat.S_ISDIR(found.st_mode):
        raise HomeError(f"{what} {path} is not a folder; move it away")
    if found.st_uid != os.getuid():
        raise HomeError(f"{what} {path} belongs to user {found.st_uid}, not to {os.getuid()}")
    if found.st_mode & stat.S_IWOTH:
        raise HomeError(
            f"{what} {path} is writable for everyone, so its content cannot be trusted; "
            f"look through it, then: chmod 700 {path}"
        )


def _prepare_folder(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=FOLDER_MODE)
    check_folder(path, "the folder")
    if stat.S_IMODE(path.lstat().st_mode) != FOLDER_MODE:
        path.chmod(FOLDER_MODE)


def read_regular(path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a regular file; whatever else has its name is not waited for.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(fd)


def repair_file(path: Path) -> bool:
    """Give a file mode 0600; return whether it is there.

    Raises:
        HomeError: it is no regular file, or another user's.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):
        raise HomeError(f"{path} is not a regular file; move it away")
    if found.st_uid != os.getuid():
        raise HomeError(f"{path} belongs to user {found.st_uid}, not to {os.getuid()}")
    if stat.S_IMODE(found.st_mode) != FILE_MODE:
        path.chmod(FILE_MODE)
    return True
