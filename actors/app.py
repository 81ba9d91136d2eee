"""Root: builds the tree from its parts and keeps it until a signal; the only file that knows them all.

Root takes the home's lock, binds the listeners, starts the services in order and says that it is ready. It decodes no
client's message, runs no SQL and no agent code.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, cast

import msgspec
import trio

from roost.actors.listeners import Listeners, open_listeners
from roost.actors.logs import adjust_log, open_log
from roost.actors.reload import Reloader
from roost.actors.sandbox.probe import find_backend
from roost.actors.worker import PRELOAD
from roost.config.errors import ConfigError
from roost.config.files import (
    DaemonFile,
    ensure_cookie,
    remove_daemon_files,
    take_lock,
    write_daemon_file,
)
from roost.config.load import load_settings, parse_daemon_options
from roost.config.model import VERSION, Settings, encode_settings, encode_without_keys
from roost.config.paths import Home, prepare_home
from roost.schemas import control
from roost.schemas.base import iso_time
from roost.schemas.boot import Boot
from roost.supervisor import identity, kernel
from roost.supervisor.errors import RestartLimitReached, StartError
from roost.supervisor.intensity import Intensity
from roost.supervisor.process import ProcessSpec
from roost.supervisor.signals import serve_stop_signals
from roost.supervisor.spec import Grace, Restart
from roost.supervisor.starter import Starting
from roost.supervisor.tree import Dynamic, ProcessTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.config.load import DaemonOptions
    from roost.schemas.boot import Backend
    from roost.supervisor.reconfigure import Outcome
    from roost.supervisor.reports import Report

INSTANCE = "ROOST_INSTANCE"
ENTRY = "roost.actors.worker:main"
LINKS = (
    ("front", "store"),
    ("front", "providers"),
    ("front", "search"),
    ("front", "commands"),
    ("agent:*", "store"),
    ("agent:*", "providers"),
)
OK, FAILED, INTERRUPTED = 0, 1, 130
MAX_TEXT = 700
# How long a reload waits for processes to take over their settings; one that hangs does so later.
TAKE_OVER_SECONDS = 3.0
# A damaged store is built anew at its start, some 30 s for a million events.
REBUILD_SECONDS = 600.0

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode


class Root:
    """What root holds while the daemon runs."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        listeners: Listeners,
        load: Callable[[], Settings],
        backend: Backend,
    ) -> None:
        self._home = home
        self._backend = backend
        self.reloader = Reloader(settings, load, self._configure)
        self._listeners = listeners
        self._started_at = time.time_ns() // 1_000_000
        self._cold = True
        self.stopped_by = ""
        self.tree = self._build()

    @property
    def settings(self) -> Settings:
        """Return the settings in force; a reload changes them."""
        return self.reloader.settings

    def _services(self) -> tuple[ProcessSpec, ...]:
        store = self._service("store", payload=self._store_payload)
        providers = self._service("providers", payload=lambda: self._payload(keys=True))
        return store, providers, self._service("front", handles=self._listeners.handles)

    def _on_demand(self) -> tuple[ProcessSpec, ...]:
        return (self._service("search"), self._service("commands"))

    def _build(self) -> ProcessTree:
        settings = self.settings
        processes = settings.processes
        return ProcessTree(
            starting=Starting(
                mode=processes.start,
                entry=ENTRY,
                preload=PRELOAD,
                warm_up="roost.actors.worker:warm_up",
                spawn_module="roost.actors.worker",
                log=self._home.logs / "zygote.log",
            ),
            services=self._services(),
            on_demand=self._on_demand(),
            intensity=Intensity(processes.max_restarts, processes.restart_period),
            dynamic=Dynamic(
                name="agents",
                prefix="agent:",
                make=self._agent,
                budget=Intensity(settings.agents.max_restarts, settings.agents.restart_period),
                max_children=settings.limits.agent_processes,
                watchers=("store",),
            ),
            links=LINKS,
            on_report=_log_report,
            on_reload=self.reloader.ask,
        )

    async def _configure(self, settings: Settings) -> Outcome:
        """Give settings, which are in force already for what is started from now on, to all that runs."""
        plain, whole = encode_without_keys(settings), encode_settings(settings)
        log = settings.log
        adjust_log(level=log.level, rotate_bytes=log.rotate_bytes, keep=log.keep)
        return await self.tree.configure(
            (*self._services(), *self._on_demand()),
            settings.limits.agent_processes,
            lambda kind: whole if kind == "providers" else plain,
            TAKE_OVER_SECONDS,
        )

    def _service(
        self,
        name: str,
        *,
        payload: Callable[[], bytes] | None = None,
        handles: Callable[[], Sequence[tuple[str, int]]] = tuple,
    ) -> ProcessSpec:
        limit = self.settings.processes.start_timeout
        return ProcessSpec(
            id=name,
            kind=name,
            payload=payload or self._payload,
            log=self._home.logs / f"{name}.log",
            restart=Restart.PERMANENT,
            shutdown=Grace(self.settings.timeouts.agent_stop),
            ready_timeout=max(limit, REBUILD_SECONDS) if name == "store" else limit,
            hang_timeout=self.settings.agents.hang_timeout or None,
            handles=handles,
            commands=name in {"store", "front"},
            sweeps=name == "commands",
        )

    def _agent(self, agent_id: str) -> ProcessSpec:
        agents = self.settings.agents
        return ProcessSpec(
            id=agent_id,
            kind="agent",
            payload=self._payload,
            log=self._home.agent_log(agent_id),
            restart=Restart.TRANSIENT,
            shutdown=Grace(self.settings.timeouts.agent_stop),
            ready_timeout=self.settings.processes.start_timeout,
            hang_timeout=agents.hang_timeout or None,
            memory_limit=agents.memory_limit,
            sweeps=True,
        )

    def _payload(self, *, keys: bool = False, cold: bool = False) -> bytes:
        encode = encode_settings if keys else encode_without_keys
        boot = Boot(
            home=str(self._home.path),
            settings=encode(self.settings),
            root_pid=os.getpid(),
            started_at=self._started_at,
            version=VERSION,
            cold=cold,
            websocket_url=self._listeners.websocket_url,
            backend=self._backend,
        )
        return _encode(boot)

    def _store_payload(self) -> bytes:
        """The first store of this daemon finds no agent process alive; a later one does."""
        cold, self._cold = self._cold, False
        return self._payload(cold=cold)

    def publish_addresses(self) -> None:
        """Write where this daemon is to be reached; clients that wait for it may find it ready at any moment."""
        me = identity.identify(os.getpid())
        write_daemon_file(
            self._home,
            DaemonFile(
                pid=os.getpid(),
                created_at=iso_time(self._started_at),
                version=VERSION,
                socket=str(self._home.socket),
                websocket=self._listeners.websocket_url or None,
                process_start=me.created if me else 0.0,
            ),
        )

    def announce(self) -> None:
        """Tell the terminal and the service manager that the daemon is ready."""
        url = self._listeners.websocket_url
        where = f" and {url}" if url else ""
        sys.stdout.write(f"roost ready (pid {os.getpid()}) on {self._home.socket}{where}\n")
        sys.stdout.flush()
        notify_service_manager("READY=1")


def _log_report(report: Report) -> None:
    """Log a report; of long texts the end counts, and the line must stay short."""
    short = msgspec.structs.replace(
        report, reason=report.reason[-MAX_TEXT:], last_words=report.last_words[-MAX_TEXT:]
    )
    _log.info("%s %s", report.child_id, report.event, extra={"report": msgspec.to_builtins(short)})


def notify_service_manager(state: str) -> None:
    """Send one sd_notify message, if a service manager asked for them."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect("\0" + address[1:] if address.startswith("@") else address)
            sender.send(state.encode())
    except OSError as error:
        _log.warning("cannot tell the service manager %s: %s", state, error)


async def run_root(root: Root) -> int:
    """Keep the daemon until SIGTERM, SIGINT or SIGHUP; return the exit status.

    A second signal cuts every wait short. A service that crashes too often ends the daemon with status 1.
    """
    tree = root.tree
    async with trio.open_nursery() as nursery:

        def stop(name: str) -> None:
            root.stopped_by = name
            notify_service_manager("STOPPING=1")
            root.reloader.close()
            nursery.start_soon(_stop, tree, name, root.settings.daemon.stop_timeout)

        def hurry(_: str) -> None:
            tree.hurry()

        await nursery.start(serve_stop_signals, stop, hurry)
        ended = trio.Event()
        root.publish_addresses()
        await nursery.start(_keep, tree, ended)
        nursery.start_soon(root.reloader.run)
        root.announce()
        await ended.wait()
        nursery.cancel_scope.cancel()
    return _status_of(root.stopped_by)


def _status_of(stopped_by: str) -> int:
    return OK if stopped_by in {"", signal.SIGTERM.name} else INTERRUPTED


async def _keep(
    tree: ProcessTree,
    ended: trio.Event,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    await tree.run(task_status=task_status)
    ended.set()


async def _stop(tree: ProcessTree, reason: str, stop_timeout: float) -> None:
    tree.tell("front", control.Drain(reason=reason))
    with trio.move_on_after(stop_timeout) as scope:
        await tree.stop(reason)
    if scope.cancelled_caught:
        tree.hurry()
        await tree.stop(reason)


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the errors in a group, at any depth, or the error itself."""
    inside = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ()))
    if not inside:
        return [error]
    return [leaf for one in inside for leaf in _leaves(one)]


def _sweep_left_over(home: Home) -> None:
    """Kill what an earlier daemon of this home left when it and its guard were killed, and mark our own children."""
    for process in identity.find_by_environment(INSTANCE, home.instance):
        identity.send_signal(process, signal.SIGKILL)
    os.environ[INSTANCE] = home.instance


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon in this process and return its exit status: 0 or 130 after a signal, 1 after a failure."""
    try:
        options = parse_daemon_options(sys.argv[1:] if argv is None else argv, os.environ)
        load = _loader(options)
        settings = load()
        prepare_home(options.home)
        lock = take_lock(options.home)
    except ConfigError as error:
        sys.stderr.write(f"roost: {error}\n")
        return FAILED
    try:
        return _run_locked(options.home, settings, load)
    finally:
        remove_daemon_files(options.home, os.getpid())
        os.close(lock)


def _loader(options: DaemonOptions) -> Callable[[], Settings]:
    """Return what reads the settings: the file as it is then, environment and command line as they are now."""
    environ = dict(os.environ)
    return lambda: load_settings(options.home, environ, options.overrides).settings


def _run_locked(home: Home, settings: Settings, load: Callable[[], Settings]) -> int:
    os.chdir(home.path)
    open_log(
        home.daemon_log,
        "root",
        level=settings.log.level,
        rotate_bytes=settings.log.rotate_bytes,
        keep=settings.log.keep,
    )
    _sweep_left_over(home)
    identity.set_title("roost: root")
    kernel.raise_descriptor_limit()
    try:
        ensure_cookie(home)
        listeners = open_listeners(home, settings)
    except ConfigError as error:
        sys.stderr.write(f"roost: {error}\n")
        return FAILED
    # Tried here because no loop runs yet, once for all processes of this daemon.
    backend = find_backend(settings.sandbox)
    _log.info("sandbox: %s", backend.detail)
    root = Root(home, settings, listeners, load, backend)
    try:
        return trio.run(run_root, root)
    except BaseExceptionGroup as group:
        expected, fault = group.split((StartError, RestartLimitReached))
        if expected is None or fault is not None:
            raise
        if root.stopped_by and group.subgroup(RestartLimitReached) is None:
            return _status_of(root.stopped_by)  # before everything was ready, which is no failure
        for failure in _leaves(expected):
            sys.stderr.write(f"roost: {failure}\n")
        _log.critical("the daemon ends", exc_info=expected)
        return FAILED
    finally:
        listeners.close()


if __name__ == "__main__":
    sys.exit(main())
