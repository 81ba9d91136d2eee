"""File systems in which the kernel shows itself: no search goes into them from outside, as they are never done changing."""

from __future__ import annotations

import os
import re

TABLE = "/proc/self/mountinfo"

_KINDS = frozenset(
    [
        "autofs",
        "binder",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "efivarfs",
        "fusectl",
        "mqueue",
        "nfsd",
        "proc",
        "pstore",
        "resctrl",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "smackfs",
        "sysfs",
        "tracefs",
    ]
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mounts:
    """Where such file systems are mounted, and their devices."""

    __slots__ = ("_devices", "_places")

    def __init__(self, table: str) -> None:
        self._devices: set[int] = set()
        self._places: set[str] = set()
        for line in table.splitlines():
            before, _, after = line.partition(" - ")
            fields = before.split(" ")
            if len(fields) > 4 and after.partition(" ")[0] in _KINDS:
                major, _, minor = fields[2].partition(":")
                self._devices.add(os.makedev(int(major), int(minor)))
                self._places.add(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]))

    def has_at(self, directory: str) -> bool:
        """Return whether one is mounted at a directory."""
        return directory in self._places

    def has_device(self, device: int) -> bool:
        """Return whether a file of this device is in one."""
        return device in self._devices

    def allow(self, device: int) -> None:
        """Let the file system with this device be searched: the search began there."""
        self._devices.discard(device)


def read_mounts() -> Mounts:
    """Return what is mounted now; nothing if that cannot be read."""
    try:
        with open(TABLE, encoding="utf-8", errors="surrogateescape") as file:
            return Mounts(file.read())
    except (OSError, ValueError):
        return Mounts("")
