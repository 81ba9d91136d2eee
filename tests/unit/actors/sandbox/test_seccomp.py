from __future__ import annotations

import struct
from errno import EACCES, ENOSYS, EPERM
from typing import TYPE_CHECKING

import pytest

from roost.actors.sandbox.seccomp import is_known, make_filter

if TYPE_CHECKING:
    from roost.actors.sandbox.seccomp import Machine

ARCHITECTURE: dict[Machine, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS: dict[Machine, dict[str, int]] = {
    "x86_64": {
        "read": 0,
        "open": 2,
        "openat": 257,
        "socket": 41,
        "socketpair": 53,
        "ioctl": 16,
        "clone": 56,
        "clone3": 435,
        "unshare": 272,
        "fchmod": 91,
        "fchmodat": 268,
        "mount": 165,
        "prlimit64": 302,
        "setrlimit": 160,
        "shmget": 29,
        "openat2": 437,
    },
    "aarch64": {
        "read": 63,
        "openat": 56,
        "socket": 198,
        "socketpair": 199,
        "ioctl": 29,
        "clone": 220,
        "clone3": 435,
        "unshare": 97,
        "fchmod": 52,
        "fchmodat": 53,
        "mount": 40,
        "prlimit64": 261,
        "setrlimit": 164,
        "shmget": 194,
        "openat2": 437,
    },
}
MACHINES: tuple[Machine, ...] = ("x86_64", "aarch64")
INSIDE = {"sockets": True, "namespaces": True}
ALONE = {"sockets": False, "namespaces": False}


def run(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Run a filter as the kernel does; return the error that the call gets, 0 for none."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture, 0, *padded)
    steps = list(struct.iter_unpack("<HBBI", program))
    value = at = 0
    while True:
        code, if_true, if_false, constant = steps[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                value &= constant
            case 0x15:
                at += if_true if value == constant else if_false
            case 0x35:
                at += if_true if value >= constant else if_false
            case 0x45:
                at += if_true if value & constant else if_false
            case 0x06:
                return 0 if constant == 0x7FFF0000 else constant & 0xFFFF
            case _:
                raise AssertionError(code)


CASES: list[tuple[dict[str, bool], str, tuple[int, ...], int]] = [
    (INSIDE, "read", (3,), 0),
    (INSIDE, "mount", (), EPERM),
    (INSIDE, "socket", (2, 1), 0),
    (INSIDE, "socket", (10, 2), 0),
    (INSIDE, "socket", (16, 3), 0),
    (INSIDE, "socket", (1, 1), EACCES),
    (INSIDE, "socket", (17, 3), EACCES),
    (ALONE, "socket", (2, 1), EACCES),
    (ALONE, "socket", (1, 1), EACCES),
    (ALONE, "socketpair", (1, 1 | 0o2000000), 0),
    (ALONE, "socketpair", (1, 5), 0),
    (ALONE, "socketpair", (1, 2), EACCES),
    (INSIDE, "ioctl", (0, 0x5401), 0),
    (INSIDE, "ioctl", (0, 0x5412), EPERM),
    (INSIDE, "ioctl", (0, 0x1_0000_5412), EPERM),
    (INSIDE, "ioctl", (3, 0x40086602), 0),
    (ALONE, "ioctl", (3, 0x40086602), EPERM),
    (INSIDE, "clone", (0x1200011,), 0),
    (INSIDE, "clone", (0x10000011,), EPERM),
    (INSIDE, "clone3", (), ENOSYS),
    (INSIDE, "openat2", (), ENOSYS),
    (INSIDE, "unshare", (0x400,), 0),
    (INSIDE, "unshare", (0x20000,), EPERM),
    (INSIDE, "unshare", (0x80,), EPERM),
    (INSIDE, "fchmod", (3, 0o755), 0),
    (INSIDE, "fchmod", (3, 0o4755), EPERM),
    (INSIDE, "fchmodat", (3, 0, 0o2755), EPERM),
    (ALONE, "fchmod", (3, 0o755), EPERM),
    (INSIDE, "openat", (3, 0, 0o101, 0o644), 0),
    (INSIDE, "openat", (3, 0, 0o101, 0o4644), EPERM),
    (INSIDE, "openat", (3, 0, 0o20000002, 0o4644), EPERM),
    (INSIDE, "openat", (3, 0, 0o2, 0o4644), 0),
    (INSIDE, "shmget", (), 0),
    (ALONE, "shmget", (), EPERM),
    (INSIDE, "prlimit64", (77,), 0),
    (ALONE, "prlimit64", (0,), 0),
    (ALONE, "prlimit64", (77,), EPERM),
    (ALONE, "prlimit64", (0, 10, 0, 0x7F00_0000_1000), 0),
    (ALONE, "prlimit64", (0, 10, 0x1000), EPERM),
    (ALONE, "prlimit64", (0, 10, 0x7F00_0000_0000), EPERM),
    (ALONE, "prlimit64", (0, 0x1_0000_000A, 0x1000), EPERM),
    (ALONE, "prlimit64", (0, 7, 0x1000), 0),
    (ALONE, "prlimit64", (77, 10, 0), EPERM),
    (ALONE, "setrlimit", (7,), 0),
    (ALONE, "setrlimit", (10,), EPERM),
    (INSIDE, "setrlimit", (10,), 0),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("options", "call", "arguments", "error"), CASES)
def test_a_call_is_let_through_or_refused(
    machine: Machine, options: dict[str, bool], call: str, arguments: tuple[int, ...], error: int
) -> None:
    program = make_filter(machine, sockets=options["sockets"], namespaces=options["namespaces"])
    number = NUMBERS[machine][call]
    assert run(program, ARCHITECTURE[machine], number, *arguments) == error


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_of_another_architecture_is_refused(machine: Machine) -> None:
    program = make_filter(machine, sockets=True, namespaces=True)
    assert run(program, 0x40000003, 0) == EPERM


def test_the_second_interface_of_a_machine_is_closed() -> None:
    program = make_filter("x86_64", sockets=True, namespaces=True)
    assert run(program, ARCHITECTURE["x86_64"], 0x40000000) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_a_filter_is_within_the_kernels_limit(machine: Machine) -> None:
    assert len(make_filter(machine, sockets=True, namespaces=False)) // 8 <= 4096


def test_only_machines_with_known_numbers_have_a_filter() -> None:
    assert is_known("x86_64")
    assert not is_known("riscv64")
