"""Which folders and files a policy opens, closes and hides on this machine. Looks at the file system, and changes nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from roost.actors.sandbox.policy import Policy

PROTECTED = ".git"
MAX_STEPS = 256


class PlaceError(Exception):
    """The policy cannot hold in this working folder; the text says why."""


class Places(msgspec.Struct, frozen=True):
    """Real paths, links followed; what is not there is in none of them.

    Everything may be read but what is `hidden`, which in turn has `exposed` parts. `writable` folders may be changed but
    for what is `protected` in them.
    """

    hidden: tuple[str, ...]
    exposed: tuple[str, ...]
    writable: tuple[str, ...]
    protected: tuple[str, ...]

    def hides(self, path: str) -> bool:
        """Return whether a real path cannot be seen."""
        return is_inside(path, self.hidden) and not is_inside(path, self.exposed)

    def lets_write(self, path: str) -> bool:
        """Return whether a real path may be changed or made."""
        if self.hides(path) or is_inside(path, self.protected):
            return False
        return is_inside(path, self.writable)


def find_places(
    policy: Policy,
    *,
    cwd: str,
    env: Mapping[str, str],
    hidden: Iterable[str],
    exposed: Iterable[str] = (),
) -> Places:
    """Return what a command in this folder, with this environment, may see and change.

    Raises:
        PlaceError: the folder is itself hidden, or all files would be writable.
    """
    covers = _outermost(_existing(hidden))
    shown = tuple(path for path in _existing(exposed) if is_inside(path, covers))
    where = os.path.realpath(cwd)
    if is_inside(where, covers) and not is_inside(where, shown):
        raise PlaceError("The working folder is hidden from commands in a sandbox")
    roots = _trusted(cwd, _roots(policy, cwd, env), env)
    if "/" in roots:
        raise PlaceError("Everything would be writable: that is dangerFullAccess")
    open_ones = [root for root in roots if not is_inside(root, covers)]
    inner = [root for root in roots if is_inside(root, covers) and is_inside(root, shown)]
    protected = (os.path.join(root, PROTECTED) for root in (*open_ones, *inner))
    return Places(
        hidden=covers,
        exposed=shown,
        writable=tuple(sorted(open_ones)) + tuple(sorted(inner)),
        protected=tuple(sorted(path for path in protected if _is_plain(path))),
    )


def hidden_paths(home: str, runtime: str, more: Iterable[str]) -> tuple[str, ...]:
    """Return what no confined command sees: the daemon's own folders, the user's runtime folder, and `more`."""
    named = [home, runtime, f"/run/user/{os.getuid()}"]
    return tuple(named) + tuple(os.path.expanduser(path) for path in more)


def is_inside(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of these or lies below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _roots(policy: Policy, cwd: str, env: Mapping[str, str]) -> list[str]:
    if policy.type != "workspaceWrite":
        return []
    roots = [cwd, *(os.path.join(cwd, root) for root in policy.writable_roots)]
    scratch = env.get("TMPDIR", "")
    if os.path.isabs(scratch) and not policy.exclude_tmpdir:
        roots.append(scratch)
    if not policy.exclude_slash_tmp:
        roots.append("/tmp")
    return roots


def _trusted(cwd: str, roots: Iterable[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders that may be written, without those behind a link that a command may have made itself.

    Raises:
        PlaceError: the working folder is one of those.
    """
    named = dict.fromkeys(os.path.normpath(root) for root in roots)
    scratch = ("/tmp", env.get("TMPDIR") or "/tmp")
    areas = {name: os.path.realpath(name) for name in (cwd, *named, *scratch)}
    kept: list[str] = []
    for name in named:
        others = [real for other, real in areas.items() if other != name]
        if any(is_inside(link, others) for link in _links(name)):
            if name == os.path.normpath(cwd):
                raise PlaceError("The working folder is behind a link that commands can change")
        elif os.path.lexists(areas[name]):
            kept.append(areas[name])
    return tuple(dict.fromkeys(kept))


def _links(path: str) -> Iterator[str]:
    """Yield where the links lie that are followed on the way to a path."""
    done = "/"
    rest = path.strip("/").split("/")
    for _ in range(MAX_STEPS):
        if not rest:
            return
        part = rest.pop(0)
        done = os.path.normpath(os.path.join(done, part))
        if os.path.islink(done):
            yield done
            target = os.readlink(done)
            rest = target.strip("/").split("/") + rest
            done = "/" if target.startswith("/") else os.path.dirname(done)
    yield path


def _existing(paths: Iterable[str]) -> tuple[str, ...]:
    real = dict.fromkeys(os.path.realpath(path) for path in paths if os.path.isabs(path))
    return tuple(path for path in real if os.path.lexists(path))


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths without those below another one, in order of their names."""
    kept: list[str] = []
    for path in sorted(paths):
        if not is_inside(path, kept):
            kept.append(path)
    return tuple(kept)


def _is_plain(path: str) -> bool:
    return os.path.lexists(path) and not os.path.islink(path)
