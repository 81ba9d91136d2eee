"""Reads the configuration of a running daemon again: one time after the other, all of it or nothing.

Who asks while one reload is under way shares the next one, which reads the file after they have asked.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import trio

from roost.actors.errors import DaemonError, Overloaded, WrongState
from roost.config.errors import ConfigError
from roost.config.reload import settle
from roost.schemas.control import Reloaded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roost.config.model import Settings
    from roost.config.reload import Change
    from roost.schemas.base import Message
    from roost.supervisor.reconfigure import Outcome

CONFIG_INVALID = "CONFIG_INVALID"
MAX_NAMED = 32
MAX_WAITING = 64
RETRY_AFTER_MS = 1_000
# A file on a disk that answers is read in much less.
LOAD_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Reloader:
    """`load` reads all the layers of the configuration; `apply` gives settings to every process."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        apply: Callable[[Settings], Awaitable[Outcome]],
    ) -> None:
        self.settings = settings
        self._load = load
        self._apply = apply
        self._waiting: list[Callable[[Message], None]] = []
        self._wanted = trio.Event()
        self._closed = False
        # A read that hangs keeps its thread: the next one waits for it, and is given up with it.
        self._threads = trio.CapacityLimiter(1)

    def ask(self, answer: Callable[[Message], None]) -> None:
        """Have the configuration read again; `answer` gets `Reloaded` or `Refused`."""
        if self._closed:
            answer(_stopping().refused())
            return
        if len(self._waiting) >= MAX_WAITING:
            answer(_overloaded("too many reloads are waited for").refused())
            return
        self._waiting.append(answer)
        self._wanted.set()

    def close(self) -> None:
        """Refuse what waits and what is asked from now on: the daemon stops. A reload under way goes on."""
        self._closed = True
        for answer in self._take():
            answer(_stopping().refused())

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            answers = self._take()
            message = await self._reload()
            for answer in answers:
                answer(message)

    def _take(self) -> list[Callable[[Message], None]]:
        answers, self._waiting = self._waiting, []
        return answers

    async def _reload(self) -> Message:
        try:
            change = settle(self.settings, await self._read())
            late = await self._take_over(change) if change.changed else ()
        except (ConfigError, DaemonError) as error:
            _log.warning("the configuration is not taken over: %s", error)
            return _refusal(error).refused()
        except Exception:  # noqa: BLE001 # a bug must not end root; no process has been told anything
            _log.exception("the configuration stays as it was")
            return DaemonError("INTERNAL", "the configuration could not be read again").refused()
        self._tell(change, late)
        return Reloaded(
            at=time.time_ns() // 1_000_000,
            changed=change.changed,
            need_restart=change.need_restart,
            late=late[:MAX_NAMED],
        )

    async def _read(self) -> Settings:
        """Read the configuration off the loop: the file may be long, and its disk slow, or dead."""
        with trio.move_on_after(LOAD_SECONDS):
            return await trio.to_thread.run_sync(
                self._load, abandon_on_cancel=True, limiter=self._threads
            )
        raise _overloaded("the configuration cannot be read: the file system does not answer")

    async def _take_over(self, change: Change) -> tuple[str, ...]:
        """Give the settings to every process; one that refuses them brings the old ones back everywhere."""
        before, self.settings = self.settings, change.settings
        try:
            outcome = await self._apply(change.settings)
        except Exception:  # noqa: BLE001 # a bug must not end root; some processes may have been told
            _log.exception("the new settings could not be given to every process")
            text = "the new settings could not be given to every process"
        else:
            if not outcome.refused:
                return outcome.late
            name, why = next(iter(outcome.refused.items()))
            text = f"{name} could not take over the new settings: {why}"
        raise DaemonError("INTERNAL", text + await self._bring_back(before))

    async def _bring_back(self, before: Settings) -> str:
        """Give the old settings to every process again; return what is to be said of those that may not have them."""
        self.settings = before
        try:
            back = await self._apply(before)
        except Exception:  # noqa: BLE001 # see above
            _log.exception("the old settings could not be given back to every process")
            return "; some processes may have them nevertheless"
        if not back.refused:
            return ""
        names = ", ".join(back.refused)
        _log.error("%s do not take the old settings back", names)
        return f"; {names} may have them nevertheless"

    def _tell(self, change: Change, late: tuple[str, ...]) -> None:
        """Write a line to the log; it names keys and never a value."""
        text = f"configuration reloaded; changed: {', '.join(change.changed) or 'nothing'}"
        if change.need_restart:
            text += f"; need a restart: {', '.join(change.need_restart)}"
        if late:
            text += f"; not confirmed yet: {', '.join(late[:MAX_NAMED])}"
        # Past the level, which may have changed just now: when settings changed is worth a line in any case.
        _log.handle(_log.makeRecord(_log.name, logging.INFO, __file__, 0, text, (), None))


def _stopping() -> DaemonError:
    return WrongState("SHUTTING_DOWN", "the daemon is shutting down")


def _overloaded(text: str) -> Overloaded:
    return Overloaded("OVERLOADED", text, {"retryAfterMs": RETRY_AFTER_MS})


def _refusal(error: ConfigError | DaemonError) -> DaemonError:
    if isinstance(error, DaemonError):
        return error
    key: str = getattr(error, "key", "")
    return DaemonError(CONFIG_INVALID, str(error), {"key": key} if key else None)
