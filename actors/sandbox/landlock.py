"""Puts the calling process under Landlock, without any privilege of before and under a filter of system calls.

A part of the launcher: it imports nothing but the standard library. Landlock has no rule that takes away, so what is
hidden is left out: everything beside it and beside the folders above it is opened.
"""

from __future__ import annotations

import ctypes
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from roost.actors.sandbox.launcher import Plan

OLDEST_ABI = 3
SCOPE_ABI = 6
MAX_RULES = 50_000

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_FIFO, _MAKE_SYM, _REFER, _TRUNCATE, _IOCTL = 1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_MAKE = _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _MAKE_SYM
_CHANGE = _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE | _REFER
_DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
_SCOPES = 3

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 22, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 38, 47, 4
_KILL, _FILTER = 9, 2
_CAPABILITY_VERSION = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def find_abi() -> int:
    """Return the version of Landlock in this kernel; 0 or less if there is none."""
    return int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def confine(plan: Plan) -> None:
    """Restrict this process and all that it starts, for good.

    Raises:
        OSError: the kernel refuses a part of it.
    """
    rules = Rules(find_abi(), plan["hidden"])
    rules.open_for_reading(plan["exposed"])
    rules.open_for_writing(plan["writable"])
    if plan["cwd"] in plan["writable"]:
        rules.let_list(plan["cwd"])
    _check(_libc.prctl(_PR_SET_PDEATHSIG, _KILL, 0, 0, 0))
    _drop_capabilities()
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    rules.restrict()
    steps = plan["filter"]
    program = _Program(len(steps) // 8, steps)
    _check(_libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0))


class Rules:
    """A set of Landlock rules that is not in force yet."""

    def __init__(self, abi: int, hidden: Iterable[str]) -> None:
        self._hidden = tuple(hidden)
        self._count = 0
        self._all = (1 << 14) - 1 | _TRUNCATE | (_IOCTL if abi >= 5 else 0)
        sizes = self._all.to_bytes(8, "little") + bytes(8)
        if abi >= SCOPE_ABI:
            sizes += _SCOPES.to_bytes(8, "little")
        elif abi < 4:
            sizes = sizes[:8]
        self._set = _check(_libc.syscall(_CREATE_RULESET, sizes, ctypes.c_size_t(len(sizes)), 0))

    def open_for_reading(self, exposed: Iterable[str]) -> None:
        """Let everything be read that is not hidden, what is exposed in it, and the harmless devices be used."""
        self._grant("/", _READ, (*self._hidden, "/dev"))
        for path in exposed:
            self._add(path, _READ)
        for name in _DEVICES:
            self._add(f"/dev/{name}", _DEVICE)
        if os.isatty(0):
            self._add(os.ttyname(0), _DEVICE)

    def open_for_writing(self, writable: Iterable[str]) -> None:
        """Let these folders be changed, but for what is hidden in them and the folders above that."""
        for root in writable:
            if any(root == path or root.startswith(path + "/") for path in self._hidden):
                self._add(root, _CHANGE)
            else:
                self._grant(root, _CHANGE, self._hidden)

    def let_list(self, folder: str) -> None:
        """Let a folder and all below it be listed, names of what is hidden included."""
        self._add(folder, _READ_DIR)

    def restrict(self) -> None:
        """Put the rules in force."""
        _check(_libc.syscall(_RESTRICT_SELF, self._set, 0))
        os.close(self._set)

    def _grant(self, path: str, rights: int, hidden: tuple[str, ...]) -> None:
        if path in hidden:
            return
        above = path.rstrip("/") + "/"
        if not any(place.startswith(above) for place in hidden):
            self._add(path, rights)
            return
        try:
            with os.scandir(path) as entries:
                inside = [entry.path for entry in entries if not entry.is_symlink()]
        except OSError:
            return
        for name in inside:
            self._grant(name, rights, hidden)

    def _add(self, path: str, rights: int) -> None:
        """Add a rule; a path that has gone, or one past the bound, stays closed."""
        self._count += 1
        if self._count > MAX_RULES:
            return
        try:
            place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= _OF_FILES
            rule = (rights & self._all).to_bytes(8, "little") + place.to_bytes(4, "little")
            _check(_libc.syscall(_ADD_RULE, self._set, _PATH_BENEATH, rule, 0))
        finally:
            os.close(place)


def _drop_capabilities() -> None:
    """Give up what root may do; the limits and the files of root are still its own."""
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = _CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4)
    _check(_libc.capset(header, bytes(24)))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
