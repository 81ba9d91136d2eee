"""A real store in a process of its own, with root, front and agents played by the test."""

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
from roost.schemas.unions import agent_from_store, front_from_store
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.poller import Poller
from tests.support.store import Agent, Front, Peer, Root, boot_payload, settings_with

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from roost.config.model import Settings
    from roost.schemas.base import Message

PROGRAM = """
import sys, trio
from roost.actors.store.actor import StoreActor
from roost.supervisor.actor import serve_process
trio.run(serve_process, int(sys.argv[1]), {"store": StoreActor})
"""
_to_root: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToRoot)


class StoreProcess:
    """Starts, kills and starts again one store, and hands it the links of the peers."""

    def __init__(self, home: Path, poller: Poller, settings: Settings | None = None) -> None:
        self.home = home
        self.poller = poller
        self.settings = settings or settings_with()
        self.generation = 0
        self.root = Root()
        self._process: subprocess.Popen[bytes] | None = None
        self._links: list[Link] = []

    async def start(self, *, cold: bool = False) -> None:
        self.generation += 1
        self.root = Root()
        ours, theirs = socket.socketpair()
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())]
        self._process = _spawn(command, theirs.fileno(), env)
        theirs.close()
        self.root.link = ControlLink(
            ours, self.poller, name="store", decoder=_to_root, handler=self.root
        )
        self._links.append(self.root.link)
        payload = boot_payload(self.home, self.settings, cold=cold)
        start = control.Start(
            child_id="store", kind="store", generation=self.generation, payload=payload
        )
        self.root.link.cast(start)
        await self.root.until(lambda: bool(self.root.of(control.Ready)) or self.root.closed)
        assert not self.root.closed

    def join(self, peer: Peer) -> None:
        if isinstance(peer, Agent):
            name, decoder = f"agent:{peer.agent_id}", agent_from_store
        else:
            assert isinstance(peer, Front)
            name, decoder = "front", front_from_store
        ours, theirs = socket.socketpair()
        peer.link = Link(ours, self.poller, name="store", decoder=decoder, handler=peer)
        peer.closed = False
        self._links.append(peer.link)
        self.root.link.pass_handle(control.Handle(name=name, generation=self.generation), theirs)

    async def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await trio.to_thread.run_sync(self._process.wait)
        self._process = None

    async def stop(self) -> None:
        """End the store as root does, and reap it."""
        if self._process is not None:
            self.root.link.cast(control.Stop(reason="the test has ended"))
            self.root.link.flush()
            await trio.to_thread.run_sync(self._process.wait)
            self._process = None
        for link in self._links:
            link.close()


def _spawn(command: list[str], fd: int, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, pass_fds=[fd], env=env)


@asynccontextmanager
async def store_process(
    home: Path, settings: Settings | None = None
) -> AsyncGenerator[StoreProcess, None]:
    poller = Poller()
    store = StoreProcess(home, poller, settings)
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            try:
                await store.start(cold=True)
                yield store
            finally:
                with trio.CancelScope(shield=True):
                    await store.stop()
            nursery.cancel_scope.cancel()
    poller.close()
