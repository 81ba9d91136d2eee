"""The command line of bubblewrap for a set of places; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roost.actors.sandbox.places import Places

SHARED_MEMORY = 256 * 1024 * 1024
EMPTY = 4096


def bubblewrap_options(
    places: Places, folders: frozenset[str], *, cwd: str, network: bool
) -> list[str]:
    """Return the options, in the order in which bubblewrap carries them out.

    `folders` are those of the hidden places that are folders. No new session: a terminal's size and Ctrl-C would not
    arrive, and what a shared session lets a program do to a terminal is kept from it by the filter.
    """
    options = ["--die-with-parent", "--unshare-user", "--unshare-ipc", "--unshare-pid"]
    options += ["--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]
    if not network:
        options.append("--unshare-net")
    options += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    options += ["--size", str(SHARED_MEMORY), "--perms", "1777", "--tmpfs", "/dev/shm"]
    # Root may otherwise set what holds for the whole machine, without any capability.
    options += ["--remount-ro", "/proc", "--remount-ro", "/dev"]
    for folder in _fixed(places):
        options += ["--bind", folder, folder]
    for path in places.protected:
        options += ["--ro-bind", path, path]
    options += _covers(places, folders)
    return [*options, "--chdir", cwd]


def _fixed(places: Places) -> list[str]:
    """Return the writable folders, and those in them that lead to something special, parents first.

    A mount point cannot be renamed. Otherwise a command could move away the folder above a repository or above the
    daemon's home, and put another in its place.
    """
    found = set(places.writable)
    special = (*places.hidden, *places.protected, *places.writable)
    for root in places.writable:
        for path in special:
            if path.startswith(root + "/"):
                parts = path[len(root) + 1 :].split("/")[:-1]
                found.update("/".join((root, *parts[: n + 1])) for n in range(len(parts)))
    return sorted(found)


def _covers(places: Places, folders: frozenset[str]) -> Iterator[str]:
    """Cover what is hidden; what is exposed is put in before the cover becomes read-only."""
    for path in places.hidden:
        if path not in folders:
            yield from ("--ro-bind", "/dev/null", path)
            continue
        yield from ("--size", str(EMPTY), "--perms", "0555", "--tmpfs", path)
        for part in places.exposed:
            if part.startswith(path + "/"):
                yield from _show(places, part)
        yield from ("--remount-ro", path)


def _show(places: Places, part: str) -> Iterator[str]:
    yield from ("--ro-bind", part, part)
    inner = [root for root in places.writable if root == part or root.startswith(part + "/")]
    for root in inner:
        yield from ("--bind", root, root)
    for path in places.protected:
        if any(path.startswith(root + "/") for root in inner):
            yield from ("--ro-bind", path, path)
