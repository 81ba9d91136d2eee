"""The tree of processes that the root process keeps: services in order, any number of dynamic children, their links.

The application gives data and a few callbacks; everything else is here:

    spec = ProcessSpec(
        id="store",                      # its name in the tree and at the ends of its links
        kind="store",                    # picks the actor in the child (`serve_process`)
        payload=boot_bytes,              # Callable[[], bytes]: called at each start, becomes `Start.payload`
        log=home / "logs/store.log",     # stdout and stderr of the child; its tail is its last words; None: root's own
        restart=Restart.PERMANENT,       # PERMANENT, TRANSIENT, TEMPORARY
        shutdown=Grace(5.0),             # Kill(), Grace(seconds), Wait()
        ready_timeout=30.0,
        hang_timeout=30.0,               # None: not watched; only while the child says `Busy(working=True)`
        memory_limit=1 << 30,            # None: no limit
        handles=lambda: [("listener.unix", fd)],  # listeners: a duplicate travels behind `Start` at every start
        env={},                          # becomes `Start.env`, under what `Remember` kept
        commands=True,                   # may send StartChild, StartService, StopChild, KillChild, Remember, AskTree (store, front)
        sweeps=False,                    # True: after its end, orphans that it left to root are killed (agents, commands)
    )
    tree = ProcessTree(
        starting=Starting(
            mode="zygote",               # or "spawn"
            entry="roost.actors.worker:main",     # main(control_fd: int) -> None, called in every child, both modes
            preload=("roost.actors.worker", ...), # zygote only
            warm_up="roost.actors.worker:warm_up",# zygote only, "" for none; a finished trio.run is allowed
            spawn_module="roost.actors.worker",   # spawn only: `python -P -m MODULE FD`; its __main__ part calls
                                                  # roost.supervisor.birth.run_spawned("roost.actors.worker:main")
            log=home / "logs/zygote.log",
        ),
        services=(store, providers, front),       # started in this order, each ready before the next; one_for_one, 10 in 60 s
        dynamic=Dynamic(
            name="agents",               # the parent in AskTree's answer
            prefix="agent:",             # name at links = prefix + child_id; child_id in every message is the bare id
            make=make_agent,             # Callable[[str], ProcessSpec]: the spec of a child by its child_id (id = child_id)
            budget=Intensity(5, 60.0),   # each child has its own
            max_children=1024,
            watchers=("store", "front"), # services told with ChildReport what happens to dynamic children
        ),
        on_demand=(search,),                      # services that are started when somebody first sends StartService
        links=(("front", "store"), ("agent:*", "store"), ("agent:*", "providers"), ...),
        on_report=sink,                  # Callable[[Report], None]: every start, ready, exit, restart, give-up
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.run)    # returns when all services are ready; StartError says who did not get ready and why
        ...
        await tree.stop("asked to", grace=5.0)    # dynamic children at once, then services in reverse; then tree.run returns

`tree.run` must run in the main thread of the process. It makes the process a subreaper and reaps every child of it.
It raises `RestartLimitReached` when a service crashes too often, after everything has been stopped, and `StartError` when
it is stopped before all services are ready. Cancelling it stops everything too. Other things to call, all from the same loop:

    tree.poller                          # root's one poller; its other sockets may use it
    tree.snapshot()                      # tuple[control.TreeNode, ...], what AskTree is answered with
    tree.ensure_child("abc", fresh=False)
    await tree.stop_child("abc", reason="stopped", grace=5.0)
    await tree.restart_service("store", reason="asked to")
    tree.kill_child("abc", generation, reason="memory")
    tree.tell("front", message)          # a cast to a service
    await tree.configure(services, 1024, payload, 5.0)   # new settings for all that runs, and for what is started later
    tree.hurry()                         # second SIGTERM: every stop goes straight to SIGKILL
    await tree.over.wait()               # everything has been stopped, for whatever reason

How messages are answered: StartChild is a cast (a call is answered with Done at once); StopChild, Remember: Done; AskTree:
Tree; a child without `commands=True` gets Refused. A StartChild that comes after a child got ready and before it ends by
itself starts it again when it is reaped. One without `fresh` for a child that was given up is answered to its sender
by the report `gave_up` again.
A watcher that (re)starts is told `gave_up` or `crashed` again for each dynamic child that does not run just then.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.schemas import control
from roost.schemas.base import Done, Message, Refused
from roost.supervisor import kernel
from roost.supervisor.environments import Environments
from roost.supervisor.errors import SpecError, StartError, SupervisorError, TooManyChildren
from roost.supervisor.intensity import Intensity
from roost.supervisor.poller import Poller
from roost.supervisor.process import ProcessSpec, RunningProcess
from roost.supervisor.reaper import Reaper
from roost.supervisor.reconfigure import Outcome, configure
from roost.supervisor.registry import Registry
from roost.supervisor.snapshot import child_node, root_node
from roost.supervisor.spec import ChildSpec, Kill, Restart, Run, Strategy, Wait
from roost.supervisor.starter import SpawnStarter, Starter, Starting, ZygoteStarter
from roost.supervisor.supervision import Supervisor
from roost.supervisor.switchboard import Switchboard
from roost.supervisor.watch import Watch
from roost.supervisor.watchers import Watchers

if TYPE_CHECKING:
    from roost.supervisor.kept import Kept
    from roost.supervisor.reports import Report

SERVICE_INTENSITY = Intensity(10, 60.0)
CHILD_INTENSITY = Intensity(5, 60.0)
ZYGOTE_TIMEOUT = 60.0

_log = logging.getLogger(__name__)


class Dynamic(msgspec.Struct, frozen=True, kw_only=True):
    """The dynamic children: how each is made, how often it may crash, who is told about it."""

    name: str
    prefix: str
    make: Callable[[str], ProcessSpec]
    budget: Intensity = CHILD_INTENSITY
    max_children: int = 1024
    watchers: tuple[str, ...] = ()


class ProcessTree:
    """Root's part of the tree; one per process, in its main thread."""

    def __init__(
        self,
        *,
        starting: Starting,
        services: Sequence[ProcessSpec],
        dynamic: Dynamic,
        links: Sequence[tuple[str, str]] = (),
        on_report: Callable[[Report], None],
        intensity: Intensity = SERVICE_INTENSITY,
        on_reload: Callable[[Callable[[Message], None]], None] | None = None,
        on_demand: Sequence[ProcessSpec] = (),
    ) -> None:
        self.poller = Poller()
        self.reaper = Reaper()
        self.watch = Watch()
        self.registry: Registry[RunningProcess] = Registry()
        self.starter: Starter
        self._dynamic = dynamic
        self._environments = Environments()
        self._processes: dict[str, RunningProcess] = {}
        # Bounded by the children that the application knows of; each is asked for once.
        self._waiting: dict[str, bool] = {}
        self._began = 0.0
        self._nursery: trio.Nursery | None = None
        self._switchboard = Switchboard(links, self.registry)
        self._watchers = Watchers(dynamic.watchers, self.registry, on_report)
        self._on_reload = on_reload
        self._specs = {spec.id: spec for spec in (*services, *on_demand)}
        self._on_demand = frozenset(spec.id for spec in on_demand)
        specs = [self._service_spec(spec.id) for spec in services]
        if starting.mode == "zygote":
            zygote = ZygoteStarter(starting, self.poller, self.reaper)
            self.starter = zygote
            specs.insert(0, _zygote_spec(zygote))
        else:
            self.starter = SpawnStarter(starting.spawn_module)
        self._services = Supervisor(
            "services", Strategy.ONE_FOR_ONE, specs, on_report=on_report, intensity=intensity
        )
        self._children = Supervisor(
            dynamic.name,
            Strategy.DYNAMIC,
            on_report=self._report_dynamic,
            intensity=dynamic.budget,
            max_children=dynamic.max_children,
        )
        self._watchers.watch(self._children)
        self._top = Supervisor(
            "root",
            Strategy.REST_FOR_ONE,
            [_supervisor_spec(self._services), _supervisor_spec(self._children)],
            on_report=lambda _: None,
            intensity=Intensity(0, 60.0),
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start everything and keep it; return when `stop` has stopped it. Cancelled, everything is stopped first.

        Raises:
            StartError: a service did not get ready at the first start.
            RestartLimitReached: a service crashed too often.
        """
        kernel.become_subreaper()
        kernel.keep_descriptors()
        self._began = trio.current_time()
        try:
            failure = await self._run(task_status)
        finally:
            self.poller.close()
        if failure is not None:
            raise failure

    async def stop(self, reason: str, grace: float | None = None) -> None:
        """Stop everything in order; return when it has been reaped. Cancelled, the stop goes on.

        `grace` takes the place of what the specs say.
        """
        for supervisor in (self._children, self._services):
            supervisor.grace = grace
        self._top.stop(reason)
        await self._top.over.wait()

    @property
    def over(self) -> trio.Event:
        """Return the event of the end: everything has been stopped, for whatever reason."""
        return self._top.over

    def hurry(self) -> None:
        """Stop everything by force, or go on so with a stop that is under way."""
        self._top.hurry("no more time")

    def ensure_child(self, child_id: str, *, fresh: bool = False) -> bool:
        """Make sure that a dynamic child runs; return False if it had been given up and stays so.

        `fresh` empties its restart budget. While there are as many children as there may be, and before the first may
        be started, it waits for its turn.
        """
        try:
            return self._children.ensure_child(self._dynamic_spec(child_id), fresh=fresh)
        except (TooManyChildren, StartError):
            self._waiting[child_id] = fresh or self._waiting.get(child_id, False)
            return True

    def _start_waiting(self) -> None:
        """Start children that wait for their turn, the first ones first, as far as there is room."""
        waiting, self._waiting = self._waiting, {}
        for child_id, fresh in waiting.items():
            try:
                self.ensure_child(child_id, fresh=fresh)
            except SpecError as error:
                _log.exception("%s is not started", child_id)
                self._tell_given_up(child_id, str(error))

    def _report_dynamic(self, report: Report) -> None:
        self._watchers.report(report)
        if self._waiting and report.event in {"exit", "give_up"}:
            # Not before the child that has ended is out of the books.
            trio.lowlevel.current_trio_token().run_sync_soon(self._start_waiting)

    async def stop_child(self, child_id: str, reason: str, grace: float | None = None) -> None:
        """Stop a dynamic child for good; return when it is reaped, at once if it does not run. Cancelled, it goes on."""
        self._waiting.pop(child_id, None)
        await self._children.stop_child(child_id, reason, grace)

    def kill_child(self, child_id: str, generation: int, reason: str) -> bool:
        """Kill one incarnation of a dynamic child; return False if it does not run any more."""
        return self._children.kill_child(child_id, generation, reason)

    async def restart_service(self, service_id: str, reason: str) -> None:
        """Stop a service and start it again; return when it is ready, or its first start has failed."""
        await self._services.restart_child(service_id, reason)

    async def configure(
        self,
        services: Sequence[ProcessSpec],
        max_children: int,
        payload: Callable[[str], bytes],
        seconds: float,
    ) -> Outcome:
        """Tell every process its settings (`payload` of its kind), and keep children by new specs.

        Whoever is started from now on is started by the new specs. Returns when all have answered, or in `seconds`.
        """
        self._specs.update({spec.id: spec for spec in services})
        for child in self._services:
            if child.id in self._specs:
                self._services.respec(self._service_spec(child.id))
        for child in self._children:
            self._children.respec(self._dynamic_spec(child.id))
        self._children.max_children = max_children
        self._start_waiting()
        running = list(self._processes.values())
        for process in running:
            spec = self._specs.get(process.name)
            process.respec(spec if spec is not None else self._dynamic.make(process.spec.id))
        return await configure(running, payload, seconds)

    def tell(self, service_id: str, message: Message) -> None:
        """Cast a message to a service; nothing is said if it does not run just then."""
        if service_id in self.registry:
            self.registry.find(service_id).target.send(message)

    def remember(self, child_id: str, env: dict[str, str]) -> bool:
        """Keep an environment for every later start of a dynamic child; return False if there is no room."""
        return self._environments.keep(child_id, env)

    def snapshot(self) -> tuple[control.TreeNode, ...]:
        """Return what runs now, root first."""
        name, prefix = self._dynamic.name, self._dynamic.prefix
        return (
            root_node(trio.current_time() - self._began),
            *(self._node(child, "services", child.id) for child in self._services),
            *(self._node(child, name, prefix + child.id) for child in self._children),
        )

    def env_of(self, spec: ProcessSpec) -> dict[str, str]:
        """Return the environment to be sent with `Start`: the spec's, and over it what `remember` kept."""
        return {**spec.env, **self._environments.of(spec.id)}

    def on_command(self, process: RunningProcess, ref: int, message: Message) -> None:
        """Carry out what a process asks of the tree; what cannot be carried out is refused and ends nobody."""
        if isinstance(message, control.Relink):
            self._switchboard.relink(process.name, message.name)
            return
        if not process.spec.commands:
            refusal = f"{process.name} may not command the tree"
            _log.error("%s: %s", refusal, type(message).__name__)
            process.reply(ref, Refused(code="INVALID_ARGUMENT", message=refusal))
            return
        try:
            self._carry_out(process, ref, message)
        except SupervisorError as error:
            text = f"{type(message).__name__} cannot be carried out: {error}"
            _log.exception("%s asks for what cannot be carried out", process.name)
            process.reply(ref, Refused(code="INTERNAL", message=text))
            if isinstance(message, control.StartChild):
                self._tell_given_up(message.child_id, text)

    def _tell_given_up(self, child_id: str, reason: str) -> None:
        """Tell the watchers that a child cannot be started, so that nobody waits for it."""
        if self._children.find(child_id) is None:
            self._watchers.tell(
                control.ChildReport(child_id=child_id, generation=0, event="gave_up", reason=reason)
            )

    def _carry_out(self, process: RunningProcess, ref: int, message: Message) -> None:
        match message:
            case control.StartChild(child_id=child_id, fresh=fresh):
                if not self.ensure_child(child_id, fresh=fresh):
                    self._watchers.tell_state(process, child_id)
                process.reply(ref, Done())
            case control.StartService(name=name) if name in self._on_demand:
                self._start_service(name)
                process.reply(ref, Done())
            case control.StopChild() if self._nursery is not None:
                self._nursery.start_soon(self._stop_and_answer, process, ref, message)
            case control.KillChild(child_id=child_id, generation=generation, reason=reason):
                self.kill_child(child_id, generation, reason)
                process.reply(ref, Done())
            case control.Remember(child_id=child_id, env=env):
                process.reply(ref, self._remember(child_id, env))
            case control.AskTree():
                process.reply(ref, control.Tree(nodes=self.snapshot()))
            case control.Reload() if self._on_reload is not None:
                self._on_reload(partial(process.reply, ref))
            case _:
                text = f"unexpected {type(message).__name__}"
                _log.error("%s from %s", text, process.name)
                process.reply(ref, Refused(code="INVALID_ARGUMENT", message=text))

    async def _run(self, task_status: trio.TaskStatus[None]) -> SupervisorError | None:
        failure: SupervisorError | None = None
        # What the stops need must live longer than a cancellation from outside.
        shields = [trio.CancelScope(shield=True) for _ in range(3)]
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                nursery.start_soon(self._run_shielded, shields[0], self.poller.run)
                nursery.start_soon(self._run_shielded, shields[1], self.watch.run)
                await nursery.start(self._run_reaper, shields[2])
                await self._top.run(task_status=_Then(self._start_waiting, task_status))
            except SupervisorError as error:
                failure = error
            finally:
                for scope in shields:
                    scope.cancel()
                nursery.cancel_scope.cancel()
        return failure

    async def _stop_and_answer(
        self, process: RunningProcess, ref: int, message: control.StopChild
    ) -> None:
        await self.stop_child(message.child_id, message.reason, message.grace)
        process.reply(ref, Done())

    def _start_service(self, name: str) -> None:
        """Start a service that is started at its first use; from then on it is kept as the others are."""
        try:
            self._services.ensure_child(self._service_spec(name))
        except StartError as error:  # everything is being stopped
            _log.info("%s is not started: %s", name, error)

    def _remember(self, child_id: str, env: dict[str, str]) -> Message:
        if self.remember(child_id, env):
            return Done()
        return Refused(code="OVERLOADED", message="too many environments are kept", retryable=True)

    def _service_spec(self, service_id: str) -> ChildSpec:
        return self._child_spec(lambda: self._specs[service_id], service_id)

    def _dynamic_spec(self, child_id: str) -> ChildSpec:
        make = partial(self._dynamic.make, child_id)
        return self._child_spec(make, self._dynamic.prefix + child_id)

    def _child_spec(self, make: Callable[[], ProcessSpec], name: str) -> ChildSpec:
        """Return the spec of a child whose process is started by what `make` returns at that time."""
        spec = make()
        return ChildSpec(
            id=spec.id,
            kind=spec.kind,
            start=partial(self._live, make, name),
            restart=spec.restart,
            shutdown=spec.shutdown,
            ready_timeout=None,
        )

    async def _live(self, make: Callable[[], ProcessSpec], name: str, run: Run) -> None:
        process = self._processes[name] = RunningProcess(make(), name, run, self)
        try:
            await process.live()
        finally:
            if self._processes.get(name) is process:
                del self._processes[name]

    def _node(self, child: Kept, parent: str, name: str) -> control.TreeNode:
        process = self._processes.get(name)
        liveness = process.liveness if process is not None else None
        return child_node(child, parent, liveness)

    async def _run_reaper(
        self,
        scope: trio.CancelScope,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        await self._run_shielded(scope, partial(self.reaper.run, task_status=task_status))

    async def _run_shielded(
        self, scope: trio.CancelScope, main: Callable[[], Awaitable[None]]
    ) -> None:
        """Run a part that every process needs; if it breaks, all are killed at once and nobody waits for them."""
        with scope:
            try:
                await main()
            except Exception:
                _log.critical("the tree cannot go on", exc_info=True)
                for process in list(self._processes.values()):
                    process.lose()
                raise


class _Then:
    """Does something, then passes `started` on."""

    def __init__(self, do: Callable[[], None], status: trio.TaskStatus[None]) -> None:
        self._do = do
        self._status = status

    def started(self, value: None = None) -> None:
        self._do()
        self._status.started(value)


def _zygote_spec(zygote: ZygoteStarter) -> ChildSpec:
    return ChildSpec(
        id="zygote",
        kind="zygote",
        start=zygote.run,
        shutdown=Kill(),
        ready_timeout=ZYGOTE_TIMEOUT,
    )


def _supervisor_spec(supervisor: Supervisor) -> ChildSpec:
    return ChildSpec(
        id=supervisor.name,
        kind="supervisor",
        start=supervisor.serve,
        restart=Restart.PERMANENT,
        shutdown=Wait(),
        ready_timeout=None,
    )
