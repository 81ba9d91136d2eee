"""The errors of the configuration, sorted by what the user can do.

ConfigError
├── SettingsError      a configuration file, variable or option is wrong; says where
├── HomeError          the home, or a file in it, is not as it must be; says what to do
├── SocketInUse        something answers at the daemon's socket
└── AlreadyRunning     another daemon holds the home
"""

from __future__ import annotations


class ConfigError(Exception):
    """Base of the family; the text is for the user."""


class SettingsError(ConfigError):
    """A setting is unknown or has a value that it cannot have; `key` says which one, if it is one."""

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(text)
        self.key = key


class HomeError(ConfigError):
    """The home folder, or a file in it, cannot be used as it is."""


class SocketInUse(ConfigError):
    """Something accepts connections at the daemon's socket."""


class AlreadyRunning(ConfigError):
    """Another daemon holds the lock of the home."""

    def __init__(self, path: str, pid: int | None) -> None:
        who = f"process {pid}" if pid else "another process"
        super().__init__(f"a daemon already runs in {path} ({who}); stop it with `roost down`")
        self.pid = pid
