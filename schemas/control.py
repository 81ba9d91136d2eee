"""What root and its child processes say to each other over their control link, and root to the zygote."""

from __future__ import annotations

from typing import Literal

from roost.schemas.base import Done, Message, Refused


class Start(Message, frozen=True, kw_only=True, tag="control.start"):
    """First message to a child: who it is and what it needs; nothing of this is on its command line."""

    child_id: str
    kind: str
    generation: int
    payload: bytes = b""
    env: dict[str, str] = {}


class Handle(Message, frozen=True, kw_only=True, tag="control.handle"):
    """An end of a link, or a listener; exactly one file descriptor travels with it.

    `name` says who is at the other end (`store`, `agent:<id>`) or which listener it is (`listener.unix`).
    """

    name: str
    generation: int


class Ping(Message, frozen=True, kw_only=True, tag="control.ping"):
    """Root asks a working child for a sign of life; the child answers `Pong` from its event loop."""


class Pong(Message, frozen=True, kw_only=True, tag="control.pong"):
    """The answer to `Ping`."""


class Stop(Message, frozen=True, kw_only=True, tag="control.stop"):
    """Asks the child to end by itself within `grace` seconds."""

    reason: str = ""
    grace: float = 5.0


class Drain(Message, frozen=True, kw_only=True, tag="control.drain"):
    """Tells a service that the daemon is about to stop: take nothing new, let what runs come to its end."""

    reason: str = ""


class Ready(Message, frozen=True, kw_only=True, tag="control.ready"):
    """The child can do its work from now on."""


class Failed(Message, frozen=True, kw_only=True, tag="control.failed"):
    """The child cannot start, and why; `final` says that a restart would not help (a refused configuration)."""

    error: str
    final: bool = True


class Busy(Message, frozen=True, kw_only=True, tag="control.busy"):
    """The child has begun to have work (and wants to be watched for hangs), or has none left."""

    working: bool


class StartChild(Message, frozen=True, kw_only=True, tag="control.start_child"):
    """Make sure that a child of the dynamic supervisor runs; a child already there is left alone.

    `fresh` empties its restart budget, so that one that had been given up starts again.
    """

    child_id: str
    fresh: bool = False


class StartService(Message, frozen=True, kw_only=True, tag="control.start_service"):
    """Make sure that a service runs which is started at its first use; one that runs is left alone."""

    name: str


class StopChild(Message, frozen=True, kw_only=True, tag="control.stop_child"):
    """Call: stop a child of the dynamic supervisor for good; answered with `Done` when it is reaped or was not there."""

    child_id: str
    reason: str = ""
    grace: float = 5.0


class KillChild(Message, frozen=True, kw_only=True, tag="control.kill_child"):
    """Kill one incarnation of a child (it does not unwind); it is restarted by its restart type."""

    child_id: str
    generation: int
    reason: str = ""


class Remember(Message, frozen=True, kw_only=True, tag="control.remember"):
    """Call: keep the environment of a child in root's memory for every later start of it; answered with `Done`."""

    child_id: str
    env: dict[str, str]


class ChildReport(Message, frozen=True, kw_only=True, tag="control.child_report"):
    """What happened to a child of the dynamic supervisor, told to the processes that watch it.

    `gave_up` and `ended` are final: no process of this child runs or will be started by itself.
    """

    child_id: str
    generation: int
    event: Literal["started", "ready", "crashed", "ended", "gave_up"]
    reason: str = ""


class Relink(Message, frozen=True, kw_only=True, tag="control.relink"):
    """The child has lost its link to a process that may well live: make a new one if it does."""

    name: str


class AskTree(Message, frozen=True, kw_only=True, tag="control.ask_tree"):
    """Call: what runs now; answered with `Tree`."""


class TreeNode(Message, frozen=True, kw_only=True, tag="control.tree_node"):
    """One process of the tree. Times in seconds; `silent` is for how long it has not answered a ping."""

    child_id: str
    parent: str
    kind: str
    state: str
    pid: int
    generation: int
    restarts: int
    uptime: float
    working: bool = False
    last_error: str = ""
    silent: float = 0.0


class Tree(Message, frozen=True, kw_only=True, tag="control.tree"):
    """The answer to `AskTree`."""

    nodes: tuple[TreeNode, ...]


class Configure(Message, frozen=True, kw_only=True, tag="control.configure"):
    """Call: take over new settings, as the application has encoded them.

    Answered with `Done`; with `Refused` if that failed, and the old settings follow.
    """

    payload: bytes


class Reload(Message, frozen=True, kw_only=True, tag="control.reload"):
    """Call: read the configuration again; answered with `Reloaded`, or `Refused` and nothing has changed."""


class Reloaded(Message, frozen=True, kw_only=True, tag="control.reloaded"):
    """The answer to `Reload`: which keys have changed, and which wait for a restart of the daemon.

    `at` is the time, in milliseconds since 1970. `late` are processes that have not confirmed yet: they take over the
    settings as soon as they look, or with their next start.
    """

    at: int
    changed: tuple[str, ...] = ()
    need_restart: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


class Preload(Message, frozen=True, kw_only=True, tag="zygote.preload"):
    """First message to the zygote: what to import before the first fork, and the entry of every child.

    `entry` is `module:function`; the function gets the child's end of its control link (a file descriptor) and does
    not return.
    """

    modules: tuple[str, ...]
    entry: str
    warm_up: str = ""


class Fork(Message, frozen=True, kw_only=True, tag="zygote.fork"):
    """Fork one child. Two file descriptors travel with it: its control link and its standard error."""

    number: int
    root_pid: int


class Forked(Message, frozen=True, kw_only=True, tag="zygote.forked"):
    """The pid of the child of the same number, or 0 and why there is none."""

    number: int
    pid: int
    error: str = ""


ToChild = (
    Start
    | Handle
    | Ping
    | Stop
    | Drain
    | Configure
    | ChildReport
    | Done
    | Refused
    | Tree
    | Reloaded
)
ToRoot = (
    Ready
    | Pong
    | Failed
    | Busy
    | StartChild
    | StartService
    | StopChild
    | KillChild
    | Remember
    | AskTree
    | Relink
    | Reload
    | Done
    | Refused
)
ToZygote = Preload | Fork
