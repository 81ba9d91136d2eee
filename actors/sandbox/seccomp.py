"""The filter of system calls that holds in every sandbox, as the kernel's program for it; pure.

Calls that make names reachable which the file rules do not cover (Unix sockets, other namespaces, mounts), that reach
into the kernel, or that get round the filter itself are refused with an ordinary error. Under Landlock, which lets
them through, so are the calls that change modes, owners, times and attributes, and those that reach other processes.
"""

from __future__ import annotations

import functools
import struct
from errno import EACCES, ENOSYS, EPERM
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Machine = Literal["x86_64", "aarch64"]

_ARCHITECTURES: Final[Mapping[str, int]] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x4000_0000

# name: (x86_64, aarch64); what one of them does not have is None.
_CALLS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "utimensat": (280, 88),
    "futimesat": (261, None),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "creat": (85, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "io_uring_setup": (425, 425),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "open_by_handle_at": (304, 265),
    "vhangup": (153, 58),
    "syslog": (103, 116),
    "pidfd_getfd": (438, 438),
    "fanotify_init": (300, 262),
    "modify_ldt": (154, None),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "prlimit64": (302, 261),
    "setrlimit": (160, 164),
}
_KERNEL = (
    *("setns", "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsmount", "move_mount"),
    *("open_tree", "open_tree_attr", "fspick", "mount_setattr", "bpf", "perf_event_open"),
    *("userfaultfd", "keyctl", "add_key", "request_key", "kexec_load", "kexec_file_load"),
    *("init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "quotactl"),
    *("quotactl_fd", "acct", "settimeofday", "clock_settime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "open_by_handle_at", "vhangup", "syslog", "pidfd_getfd"),
    *("fanotify_init", "modify_ldt"),
)
# With a pointer to their arguments they cannot be judged; programs fall back to the older calls.
_UNREADABLE = ("clone3", "openat2", "io_uring_setup")
_ATTRIBUTES = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr"),
    *("setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
    "file_setattr",
)
# Without namespaces these reach what the user's other processes have.
_SHARED = ("shmget", "semget", "msgget", "mq_open")
# By this limit a command's processes are known (`command/leftovers.py`); in a namespace they cannot get away anyhow.
_RLIMIT_LOCKS = 10
_NEW_NAMESPACES = 0x7E02_0000
_NEW_TIME = 0x80
_SETUID_BITS = 0o6000
_CREATE, _TEMPORARY = 0o100, 0o20000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FS_SETFLAGS, _FS_SETXATTR = 0x4008_6602, 0x401C_5820
_AF_INET, _AF_INET6, _AF_NETLINK = 2, 10, 16
_STREAM, _SEQPACKET, _TYPE_MASK = 1, 5, 0xF
_ALL = 0xFFFF_FFFF

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_ALLOWED, _REFUSED = 0x7FFF_0000, 0x0005_0000
_STEP_BYTES = 8


class _If(msgspec.Struct, frozen=True):
    """A condition on the lower (or upper) half of an argument: masked it has this value, or any bit if that is None."""

    argument: int
    mask: int
    value: int | None = None
    upper: bool = False


class _Rule(msgspec.Struct, frozen=True):
    """The call gets this answer if all conditions hold; 0 lets it through."""

    call: str
    error: int
    conditions: tuple[_If, ...] = ()


def is_known(machine: str) -> bool:
    """Return whether there is a filter for this kind of machine."""
    return machine in _ARCHITECTURES


@functools.cache
def make_filter(machine: Machine, *, sockets: bool, namespaces: bool) -> bytes:
    """Return the program.

    `sockets` allows those of the internet. With `namespaces` of its own a command may change modes and the like, for
    all that it must not change is mounted read-only, and it sees no process and no shared memory but its own.
    """
    column = 0 if machine == "x86_64" else 1
    parts = [
        _step(_LOAD, 4),
        _step(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _answer(EPERM),
        _step(_LOAD, 0),
    ]
    if machine == "x86_64":
        parts += [_step(_AT_LEAST, _X32, 0, 1), _answer(ENOSYS)]
    for rule in _rules(sockets=sockets, namespaces=namespaces):
        number = _CALLS[rule.call][column]
        if number is not None:
            parts.append(_assemble(number, rule))
    return b"".join([*parts, _step(_RETURN, _ALLOWED)])


def _rules(*, sockets: bool, namespaces: bool) -> Iterator[_Rule]:
    yield from (_Rule(call, EPERM) for call in _KERNEL)
    yield from (_Rule(call, ENOSYS) for call in _UNREADABLE)
    if not namespaces:
        yield from (_Rule(call, EPERM) for call in (*_ATTRIBUTES, *_SHARED))
        yield from _limit_rules()
        yield _Rule("ioctl", EPERM, (_If(1, _ALL, _FS_SETFLAGS),))
        yield _Rule("ioctl", EPERM, (_If(1, _ALL, _FS_SETXATTR),))
    yield from _socket_rules(sockets)
    yield _Rule("ioctl", EPERM, (_If(1, _ALL, _TIOCSTI),))
    yield _Rule("ioctl", EPERM, (_If(1, _ALL, _TIOCLINUX),))
    yield _Rule("clone", EPERM, (_If(0, _NEW_NAMESPACES),))
    yield _Rule("unshare", EPERM, (_If(0, _NEW_NAMESPACES | _NEW_TIME),))
    yield from _setuid_rules()


def _limit_rules() -> Iterator[_Rule]:
    """A process sees and sets limits of its own only, and does not set the one by which it is known."""
    own, mark = _If(0, _ALL, 0), _If(1, _ALL, _RLIMIT_LOCKS)
    yield _Rule("prlimit64", EPERM, (own, mark, _If(2, _ALL)))
    yield _Rule("prlimit64", EPERM, (own, mark, _If(2, _ALL, upper=True)))
    yield _Rule("prlimit64", 0, (own,))
    yield _Rule("prlimit64", EPERM)
    yield _Rule("setrlimit", EPERM, (_If(0, _ALL, _RLIMIT_LOCKS),))


def _socket_rules(sockets: bool) -> Iterator[_Rule]:
    """A Unix socket reaches whoever listens, whatever the file rules are; a pair without a name reaches nobody."""
    for family in (_AF_INET, _AF_INET6, _AF_NETLINK) if sockets else ():
        yield _Rule("socket", 0, (_If(0, _ALL, family),))
    yield _Rule("socket", EACCES)
    for kind in (_STREAM, _SEQPACKET):
        yield _Rule("socketpair", 0, (_If(1, _TYPE_MASK, kind),))
    yield _Rule("socketpair", EACCES)


def _setuid_rules() -> Iterator[_Rule]:
    """Nobody may get the rights of this user by running a file that was made here."""
    for call, mode in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
        yield _Rule(call, EPERM, (_If(mode, _SETUID_BITS),))
    for call, mode in (("creat", 1), ("mknod", 1), ("mknodat", 2)):
        yield _Rule(call, EPERM, (_If(mode, _SETUID_BITS),))
    for call, flags in (("open", 1), ("openat", 2)):
        for flag in (_CREATE, _TEMPORARY):
            yield _Rule(call, EPERM, (_If(flags, flag), _If(flags + 1, _SETUID_BITS)))


def _assemble(number: int, rule: _Rule) -> bytes:
    """Return the steps of one rule; whichever way it does not fit, the next one begins with the call's number."""
    inside = _step(_RETURN, _ALLOWED) if rule.error == 0 else _answer(rule.error)
    for condition in reversed(rule.conditions):
        inside = _judge(condition, len(inside) // _STEP_BYTES) + inside
    return _step(_LOAD, 0) + _step(_EQUAL, number, 0, len(inside) // _STEP_BYTES) + inside


def _judge(condition: _If, following: int) -> bytes:
    """Return the steps that pass over the following ones unless the condition holds."""
    load = _step(_LOAD, 16 + 8 * condition.argument + 4 * condition.upper)
    if condition.value is None:
        return load + _step(_ANY_BIT, condition.mask, 0, following)
    return load + _step(_AND, condition.mask) + _step(_EQUAL, condition.value, 0, following)


def _answer(error: int) -> bytes:
    return _step(_RETURN, _REFUSED | error)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
