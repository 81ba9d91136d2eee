"""A real store and a real agent in processes of their own, which a test kills; it plays root and the front."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.schemas import control
from roost.supervisor.link import ControlLink
from roost.supervisor.poller import Poller
from tests.support.store import Front, Root, boot_payload
from tests.support.store_process import StoreProcess

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from roost.config.model import Settings
    from roost.schemas.base import Message

PROGRAM = """
import sys, trio
from roost.actors.agent.actor import AgentActor
from roost.supervisor.actor import serve_process
trio.run(serve_process, int(sys.argv[1]), {"agent": AgentActor})
"""
_to_root: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToRoot)


class Engine:
    """One store, one agent and one front; each of the two processes can be killed and started again."""

    def __init__(self, home: Path, poller: Poller, settings: Settings) -> None:
        self.store = StoreProcess(home, poller, settings)
        self.front = Front()
        self.agent_id = ""
        self.kills = 0
        self._home = home
        self._poller = poller
        self._settings = settings
        self._generation = 0
        self._agent: subprocess.Popen[bytes] | None = None
        self._root = Root()

    async def start_agent(self) -> None:
        """Start the agent's process and link it to the store."""
        self._generation += 1
        self._root = Root()
        ours, theirs = socket.socketpair()
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())]
        self._agent = _spawn(command, theirs.fileno(), env)
        theirs.close()
        self._root.link = ControlLink(
            ours, self._poller, name="agent", decoder=_to_root, handler=self._root
        )
        start = control.Start(
            child_id=self.agent_id,
            kind="agent",
            generation=self._generation,
            payload=boot_payload(self._home, self._settings, cold=False),
        )
        self._root.link.cast(start)
        await self._root.until(lambda: bool(self._root.of(control.Ready)))
        self.link_agent()

    def link_agent(self) -> None:
        """Give store and agent the two ends of a new link."""
        ours, theirs = socket.socketpair()
        at_store = control.Handle(name=f"agent:{self.agent_id}", generation=self._generation)
        self.store.root.link.pass_handle(at_store, ours)
        at_agent = control.Handle(name="store", generation=self.store.generation)
        self._root.link.pass_handle(at_agent, theirs)

    async def kill_agent(self) -> None:
        """End the agent by SIGKILL and start it again."""
        await self._end_agent()
        self.kills += 1
        await self.start_agent()

    async def kill_store(self) -> None:
        """End the store by SIGKILL, start it again beside the living agent, and link everybody to it."""
        await self.store.kill()
        self.kills += 1
        await self.store.start()
        self.store.join(self.front)
        self.link_agent()

    async def kill_both(self) -> None:
        """End both by SIGKILL, as with the whole daemon; the store starts cold."""
        await self._end_agent()
        await self.store.kill()
        self.kills += 1
        await self.store.start(cold=True)
        self.store.join(self.front)
        await self.start_agent()

    async def stop(self) -> None:
        """End both and reap them."""
        await self._end_agent()
        await self.store.stop()

    async def _end_agent(self) -> None:
        if self._agent is not None:
            self._agent.send_signal(signal.SIGKILL)
            await trio.to_thread.run_sync(self._agent.wait)
            self._agent = None
            self._root.link.close()


def _spawn(command: list[str], fd: int, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, pass_fds=[fd], env=env)


@asynccontextmanager
async def running_engine(
    home: Path, settings: Settings, session_id: str, *, seconds: float = 60
) -> AsyncGenerator[Engine, None]:
    """Run a store and an agent with one session; everything ends with the block."""
    poller = Poller()
    engine = Engine(home, poller, settings)
    with trio.fail_after(seconds):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            try:
                await engine.store.start(cold=True)
                engine.store.join(engine.front)
                engine.agent_id, _ = await engine.front.create(session_id=session_id)
                await engine.start_agent()
                yield engine
            finally:
                with trio.CancelScope(shield=True):
                    await engine.stop()
            nursery.cancel_scope.cancel()
    poller.close()
