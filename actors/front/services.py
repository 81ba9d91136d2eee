"""What the handlers of requests may use: the ways to the other processes, the followed sessions, the settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import trio

from roost.actors.errors import DaemonError, Internal
from roost.actors.front.attachments import Attachments
from roost.actors.front.clock import now_ms
from roost.actors.front.command_table import CommandTable
from roost.actors.front.fanout import Fanout
from roost.actors.front.gateway import Gateway
from roost.actors.front.promise import Places, Promise, start
from roost.actors.front.thread_tails import Threads
from roost.schemas.control import StartService

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from roost.actors.front.thread_feeds import ThreadClient
    from roost.actors.front.timers import Timers
    from roost.config.model import Settings
    from roost.schemas.boot import Boot
    from roost.schemas.session import SessionRow

T = TypeVar("T")

_log = logging.getLogger(__name__)

MAX_KNOWN_AGENTS = 65_536
READERS = 4


class Services:
    """One per front."""

    def __init__(
        self, boot: Boot, settings: Settings, timers: Timers, nursery: trio.Nursery
    ) -> None:
        self.boot = boot
        self.settings = settings
        self.timers = timers
        self.cookie = ""
        timeout = settings.timeouts.link_call
        self.store = Gateway("store", timers, timeout)
        self.root = Gateway("root", timers, timeout)
        self.search = Gateway("search", timers, timeout)
        self.searches: dict[tuple[int, str], Callable[[], None]] = {}
        """A connection's number and a token → what aborts the search under way."""
        self.to_commands = Gateway("commands", timers, timeout)
        self.commands = CommandTable(
            self.to_commands, lambda: self.root.cast(StartService(name="commands"))
        )
        self.providers = Gateway("providers", timers, timeout, waits=False)
        self.fanout = Fanout(
            self.store,
            timers,
            page_events=settings.store.page_events,
            queue_bytes=settings.limits.client_queue_bytes,
        )
        self.attachments = Attachments(
            self.fanout,
            clients=settings.limits.clients_per_connection,
            per_session=settings.limits.attachments_per_session,
        )
        self.threads = Threads(self.fanout)
        self.threads.wait_ms = round(settings.approvals.timeout * 1000)
        self.readers = Places(READERS)
        """For what reads much of the log: each keeps some MiB until it is answered."""
        self.agent_of: dict[str, str] = {}
        self.stopping = False
        self.connections = {"unix": 0, "websocket": 0}
        self.requests = 0
        self.requests_open: Callable[[], int] = int
        self._nursery = nursery
        self._empty = trio.Event()
        self._ending: set[str] = set()
        self._last_stamp = 0
        self._last_search = 0
        self._last_caller = 0

    def configure(self, settings: Settings) -> None:
        """Take over new settings, but for what connections keep of them."""
        self.settings = settings
        for gateway in (self.store, self.root, self.search, self.to_commands, self.providers):
            gateway.set_timeout(settings.timeouts.link_call)
        self.fanout.page_events = settings.store.page_events
        self.fanout.queue_bytes = settings.limits.client_queue_bytes
        self.attachments.clients = settings.limits.clients_per_connection
        self.attachments.per_session = settings.limits.attachments_per_session
        self.threads.wait_ms = round(settings.approvals.timeout * 1000)

    def announce(self, row: SessionRow, by: ThreadClient | None = None) -> None:
        """Tell thread clients of a new session, if the settings want that."""
        if self.settings.threads.announce:
            self.threads.announce(row, by)

    @property
    def ready(self) -> bool:
        """Whether requests can be served."""
        return not self.stopping and self.store.link is not None

    @property
    def uptime_ms(self) -> int:
        """How long the daemon has been running."""
        return max(0, now_ms() - self.boot.started_at)

    def count(self, transport: str, connections: int) -> None:
        """Note how many connections of a transport are open."""
        self.connections[transport] = connections
        if not any(self.connections.values()):
            self._empty.set()

    async def wait_empty(self) -> None:
        """Wait until no connection is open."""
        while any(self.connections.values()):
            self._empty = trio.Event()
            await self._empty.wait()

    def in_thread(self, function: Callable[[], T], seconds: float) -> Promise[T]:
        """Run something that may block for a while; it fails with `OVERLOADED` if it does so for longer."""
        promise: Promise[T] = Promise()

        async def run() -> None:
            with trio.move_on_after(seconds):
                outcome = await trio.to_thread.run_sync(_try, function, abandon_on_cancel=True)
                if isinstance(outcome, DaemonError):
                    promise.fail(outcome)
                else:
                    promise.resolve(outcome)
            promise.fail(DaemonError("OVERLOADED", "the file system does not answer"))

        self._nursery.start_soon(run)
        return promise

    def in_background(self, key: str, coroutine: Coroutine[Promise[object], None, None]) -> None:
        """Go on with something that no client waits for; of one key only one at a time."""
        if key in self._ending:
            coroutine.close()
            return
        self._ending.add(key)
        start(coroutine, lambda _: self._ending.discard(key))

    def next_search(self) -> int:
        """Return the number of a new search."""
        self._last_search += 1
        return self._last_search

    def next_caller(self) -> int:
        """Return the number of a new connection, which no other one has had."""
        self._last_caller += 1
        return self._last_caller

    def next_stamp(self) -> int:
        """Return the milliseconds since 1970, later than any this has returned before.

        A message is known again by its id and this time: two requests with one id must not share it.
        """
        self._last_stamp = max(now_ms(), self._last_stamp + 1)
        return self._last_stamp

    def remember_agent(self, session_id: str, agent_id: str) -> None:
        """Keep whose session this is, which never changes."""
        if len(self.agent_of) >= MAX_KNOWN_AGENTS:
            self.agent_of.clear()
        self.agent_of[session_id] = agent_id


def _try(function: Callable[[], T]) -> T | DaemonError:
    """Return the error as a value and without its frames: those above them in the thread hold what comes out of it."""
    try:
        return function()
    except DaemonError as error:
        return error.with_traceback(None)
    except OSError as error:
        return DaemonError("INTERNAL", f"the disk failed: {error.strerror}")
    except Exception:  # noqa: BLE001 - a fault of one request, whatever it is, must not end the front
        _log.exception("what was to be done in a thread crashed")
        return Internal()
