"""What the commands of one process share: names, what may be kept, and the sandbox."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from roost.actors.commands.texts import Budget
from roost.actors.errors import DaemonError
from roost.actors.sandbox.launch import Launch, LaunchError, SandboxUnavailable, launch
from roost.actors.sandbox.policy import read_setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.actors.command.leftovers import Leftovers
    from roost.config.model import Settings
    from roost.schemas.boot import Boot
    from roost.schemas.commands import StartCommand

KEPT_BYTES = 128 * 1024 * 1024
"""What all commands together keep of outputs that are not streamed."""


class Shared:
    """What the commands of this process share."""

    def __init__(self, boot: Boot, settings: Settings, leftovers: Leftovers) -> None:
        self.leftovers = leftovers
        self.budget = Budget(KEPT_BYTES)
        self.settings = settings
        self._home = boot.home
        self._backend = boot.backend
        self._last_id = 0

    def next_id(self) -> str:
        """Return the name of a new command, which no other one of this process has had."""
        self._last_id += 1
        return f"client-{self._last_id}"

    def confine(self, start: StartCommand, env: Mapping[str, str]) -> tuple[Launch, str]:
        """Return what is started for a command, and the name of the sandbox that it runs in, empty if it runs in none.

        Raises:
            DaemonError: there is no sandbox for it, or it cannot be started in it.
        """
        policy = read_setting(start.policy)
        scratch = os.path.realpath(os.path.join(self._home, "workspaces"))
        folder = os.path.realpath(start.cwd)
        exposed = (folder,) if folder.startswith(scratch + os.sep) else ()
        try:
            found = launch(
                policy,
                self._backend,
                start.argv,
                start.cwd,
                env,
                home=self._home,
                rules=self.settings.sandbox,
                exposed=exposed,
            )
        except SandboxUnavailable as error:
            text = f"[sandbox_required_unavailable] {error}"
            raise DaemonError("SANDBOX_UNAVAILABLE", text) from error
        except LaunchError as error:
            raise cannot_start(str(error)) from error
        return found, f"{self._backend.name}: {policy.label}" if policy.is_confined else ""


def cannot_start(reason: str) -> DaemonError:
    """Return the error for a command of which no process has come."""
    return DaemonError("INTERNAL", f"failed to spawn command: {reason}")


def signal_name(number: int | None) -> str:
    """Return what a signal is called; empty for none."""
    if number is None:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the nameless ones for programs' own use
        return f"SIG{number}"
