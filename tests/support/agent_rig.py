"""An agent in the test's own event loop: the real actor and links, with a fake store, root and providers behind them."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.agent.actor import AgentActor
from roost.config.load import default_settings
from roost.config.model import Settings, encode_settings
from roost.schemas.agent import AgentSpec
from roost.schemas.boot import NO_BACKEND, Backend, Boot
from roost.schemas.control import Busy, KillChild, Ready, Start, ToRoot
from roost.supervisor.actor import Process
from roost.supervisor.link import Link
from roost.supervisor.poller import Poller
from tests.support.fake_store import AGENT, SESSION, FakeStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from roost.actors.session.actor import SessionActor
    from roost.schemas.base import Message

_root_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(ToRoot)


class FakeRoot:
    """Keeps what an agent says to root."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.changed = trio.Event()

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        self.said.append(message)
        self.changed.set()
        self.changed = trio.Event()

    def on_closed(self, link: Link) -> None:
        pass

    @property
    def working(self) -> bool:
        busy = [message for message in self.said if isinstance(message, Busy)]
        return bool(busy) and busy[-1].working

    @property
    def kills(self) -> list[KillChild]:
        return [message for message in self.said if isinstance(message, KillChild)]


class Rig:
    """One incarnation of the agent's process after another, on one store."""

    def __init__(self, home: Path, poller: Poller, spec: AgentSpec, settings: Settings) -> None:
        self.home = home
        self.store = FakeStore(poller, spec)
        self.root = FakeRoot()
        self.settings = settings
        self.backend = NO_BACKEND
        self.peers: list[Link] = []
        self._poller = poller
        self._generation = 0
        self._cancel = trio.CancelScope()
        self.process: Process
        self.actor: AgentActor
        self.stopped = trio.Event()

    async def start(self, nursery: trio.Nursery, *, env: dict[str, str] | None = None) -> None:
        """Start the agent and give it a link to the store."""
        self._generation += 1
        self.stopped = trio.Event()
        await nursery.start(self._live, env or {})
        self.link_store()

    async def crash(self) -> None:
        """End the agent as SIGKILL would: nothing of what it holds is written any more."""
        self.store.disconnect()
        self._cancel.cancel()
        await self.stopped.wait()

    def link_store(self) -> None:
        """Give the agent a new link to the store."""
        self.actor.link_up("store", self._generation, self.store.connect())

    def link_peer(self, name: str) -> socket.socket:
        """Give the agent a link of another name; return the other end."""
        mine, theirs = socket.socketpair()
        self.actor.link_up(name, 1, theirs.detach())
        return mine

    @property
    def session(self) -> SessionActor:
        """Return the actor of the store's session."""
        return self.actor._sessions[SESSION]  # pyright: ignore[reportPrivateUsage]

    def let_pass(self, seconds: float) -> None:
        """Let so much time count against the limit of the session's turns."""
        clock = self.session.clock
        clock.run(False)
        clock._counted += seconds  # pyright: ignore[reportPrivateUsage]
        clock.run(True)

    async def permits(self) -> trio.CapacityLimiter:
        """Return the permits of the agent's tool calls."""
        while (turns := self.actor._turns) is None:  # noqa: ASYNC110 # pyright: ignore[reportPrivateUsage]
            await trio.sleep(0.001)
        return turns._permits  # pyright: ignore[reportPrivateUsage]

    async def _live(
        self, env: dict[str, str], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        mine, theirs = socket.socketpair()
        far = Link(mine, self._poller, name="agent", decoder=_root_decoder, handler=self.root)
        near = Link(theirs, self._poller, name="root", decoder=_root_decoder, handler=self.root)
        boot = Boot(
            home=str(self.home),
            settings=encode_settings(self.settings),
            root_pid=1,
            started_at=0,
            version="0",
            backend=self.backend,
        )
        start = Start(
            child_id=AGENT,
            kind="agent",
            generation=self._generation,
            payload=msgspec.msgpack.encode(boot),
            env=env,
        )
        self._cancel = trio.CancelScope()
        try:
            with self._cancel:
                async with trio.open_nursery() as nursery:
                    self.process = Process(self._poller, near, start, nursery)
                    self.actor = AgentActor(self.process)
                    await self.actor.open()
                    near.cast(Ready())
                    task_status.started()
                    await self.process.wait_stop()
                    with trio.move_on_after(self.process.stop_grace):
                        await self.actor.wind_down(self.process.stop_reason, 5.0)
                    nursery.cancel_scope.cancel()
        finally:
            self.actor.close()
            self.store.disconnect()
            for peer in self.peers:
                peer.close()
            far.close()
            near.close()
            self.stopped.set()


def changed_settings(**tables: dict[str, object]) -> Settings:
    """Return the defaults with some keys changed: `changed_settings(agents={"idle_timeout": 1.0})`."""
    settings = default_settings()
    quiet = {"agents": {"nice": 0}} | tables
    quiet["agents"] = {"nice": 0} | quiet["agents"]
    for name, keys in quiet.items():
        table = msgspec.structs.replace(getattr(settings, name), **keys)
        settings = msgspec.structs.replace(settings, **{name: table})
    return settings


@asynccontextmanager
async def running_agent(
    home: Path,
    *,
    settings: Settings | None = None,
    provider: str = "",
    sandbox: str = "dangerFullAccess",
    unattended: bool = False,
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    backend: Backend = NO_BACKEND,
    cwd: Path | None = None,
) -> AsyncGenerator[tuple[Rig, trio.Nursery]]:
    """Run an agent with full access whose working folder is `home/work`; everything ends with the block."""
    work = cwd or home / "work"
    work.mkdir(exist_ok=True)
    spec = AgentSpec(
        agent_id=AGENT,
        created_at=1,
        cwd=str(work),
        provider=provider,
        sandbox=sandbox,
        unattended=unattended,
        unattended_allow=allow,
        unattended_deny=deny,
    )
    poller = Poller()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            rig = Rig(home, poller, spec, settings or changed_settings())
            rig.backend = backend
            await rig.start(nursery)
            yield rig, nursery
            nursery.cancel_scope.cancel()
    poller.close()
