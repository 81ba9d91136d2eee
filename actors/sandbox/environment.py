"""The environment of a client's command: the daemon's without what looks secret, and what the client puts over it; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LISTED = frozenset(
    (
        "AGENC_DAEMON_COOKIE",
        "ALL_INPUTS",
        "ANTHROPIC_CUSTOM_HEADERS",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AZURE_CREDENTIALS",
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CREDENTIALS",
        "HF_TOKEN",
        "MYSQL_PWD",
        "NPM_CONFIG__AUTH",
        "OPENAI_KEY",
        "PGPASSFILE",
        "PGPASSWORD",
        "REDISCLI_AUTH",
        "SSH_SIGNING_KEY",
    )
)
_PLAIN = frozenset(
    (
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "LC_ALL",
        "TERM",
        "SHELL",
        "PWD",
        "TMPDIR",
        "TMP",
        "TEMP",
        "COLORTERM",
        "DISPLAY",
    )
)
_PLAIN_STARTS = ("XDG_", "LC_")
_SECRET = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS|PRIVATE)[_-]?KEY|SECRET|TOKEN|PASSWORD|PASSWD|AUTH|CREDENTIAL|BEARER|COOKIE)(?:_|$)"
)
_INPUT = "INPUT_"


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name is kept from commands."""
    upper = name.upper()
    if upper in _LISTED:
        return True
    while upper.startswith(_INPUT):
        upper = upper.removeprefix(_INPUT)
        if upper in _LISTED:
            return True
    if upper in _PLAIN or upper.startswith(_PLAIN_STARTS):
        return False
    return _SECRET.search(upper) is not None


def make_environment(
    own: Mapping[str, str], wanted: Mapping[str, str | None]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return a command's environment, and the names among `wanted` that were left out because they look secret."""
    env = {name: value for name, value in own.items() if not looks_secret(name)}
    dropped: list[str] = []
    for name, value in wanted.items():
        if value is None:
            env.pop(name, None)
        elif looks_secret(name):
            dropped.append(name)
        else:
            env[name] = value
    return env, tuple(dropped)
