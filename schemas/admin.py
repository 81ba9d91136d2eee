"""The daemon door: results of the methods by which the daemon itself is looked after (P 6.38 to 6.42)."""

from __future__ import annotations

import msgspec


class ReloadResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of `daemon.reload`; the last three members are ours."""

    reloaded: bool
    config_reloaded_at: str
    mcp_server: dict[str, str]
    changed: tuple[str, ...]
    need_restart: tuple[str, ...]
    late: tuple[str, ...]


class LoginResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of `auth.login`, `auth.whoami` and `auth.logout`."""

    authenticated: bool
    provider: str = ""
    identity: dict[str, object] = {}
