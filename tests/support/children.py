"""Child processes for tests of the supervisor: an entry, and one actor for each way to behave.

Run by root with this folder on PYTHONPATH: the entry is `children:main`, the module `children`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec
import trio

from roost.schemas import control
from roost.schemas.base import Done, Message, Refused
from roost.supervisor.actor import Process, ProcessActor, serve_process
from roost.supervisor.birth import run_spawned
from roost.supervisor.errors import StartRefused
from roost.supervisor.link import Link

CHUNK = 1 << 20


def block() -> None:
    """Stop the event loop of this process."""
    time.sleep(600)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a child of the tests is to do; the payload of its `Start`."""

    status: int = 0
    signal: int = 0
    after: float = 0.0
    note: str = ""
    ask: tuple[
        control.StartChild | control.StopChild | control.KillChild | control.Remember, ...
    ] = ()


class Well(ProcessActor):
    """Does nothing wrong; notes what it is told in the file `Plan.note`, one line each."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.plan = msgspec.msgpack.decode(process.start.payload or b"\x80", type=Plan)
        self.note(f"start {process.start.generation} {process.start.env.get('MARK', '')}".strip())

    def note(self, text: str) -> None:
        if self.plan.note:
            with Path(self.plan.note).open("a") as file:
                file.write(f"{self.process.start.child_id}: {text}\n")

    async def open(self) -> None:
        self.process.nursery.start_soon(self.act)

    async def act(self) -> None:
        for request in self.plan.ask:
            answer = await self.process.root.call(request, timeout=5)
            self.note(f"answer {type(answer).__name__}")

    def child_report(self, report: control.ChildReport) -> None:
        self.note(f"report {report.child_id} {report.event}")

    async def wind_down(self, reason: str, grace: float) -> None:
        self.note(f"stop {reason}")


class Ends(Well):
    """Ends by itself after it got ready: by a status, or by a signal."""

    async def act(self) -> None:
        await trio.sleep(self.plan.after)
        if self.plan.signal:
            os.kill(os.getpid(), self.plan.signal)
        sys.stderr.write("these are my last words\n")
        sys.stderr.flush()
        os._exit(self.plan.status)


class Raises(Well):
    async def act(self) -> None:
        raise ValueError("an actor broke")


class DiesEarly(Well):
    async def open(self) -> None:
        sys.stderr.write("no such thing\n")
        os._exit(3)


class HangsEarly(Well):
    async def open(self) -> None:
        await trio.sleep_forever()


class Refuses(Well):
    async def open(self) -> None:
        raise StartRefused("the configuration is wrong")


class Deaf(Well):
    """Ignores SIGTERM, and its event loop does not get to read the control link."""

    async def act(self) -> None:
        await trio.sleep(0.05)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.note("deaf")
        block()


class Hangs(Well):
    """Blocks its event loop while it has work."""

    async def act(self) -> None:
        self.process.set_working(True)
        await trio.sleep(0.05)
        self.block_the_loop()

    def block_the_loop(self) -> None:
        block()


class Grows(Well):
    async def act(self) -> None:
        self.process.set_working(True)
        kept = bytearray(self.plan.status * CHUNK)
        kept[::4096] = b"x" * len(kept[::4096])
        await trio.sleep_forever()


def leave_one() -> int:
    """Start a process in a session of its own; return its pid."""
    return os.posix_spawnp("sleep", ["sleep", "600"], os.environ, setsid=True)


class Escapes(Well):
    """Leaves a grandchild in a session of its own, then ends."""

    async def act(self) -> None:
        self.note(f"grandchild {leave_one()}")
        await trio.sleep(self.plan.after)
        os._exit(self.plan.status)


class Lingers(Well):
    """Closes its control link and lives on."""

    async def act(self) -> None:
        os.close(self.process.root.fileno())
        await trio.sleep(0.01)
        block()


class Talks(Well):
    """Sends each new peer its name, and notes what peers send."""

    def link_up(self, name: str, generation: int, handle: int) -> None:
        self.note(f"link {name} {generation}")
        link = Link(
            socket.socket(fileno=handle),
            self.process.poller,
            name=name,
            decoder=msgspec.msgpack.Decoder(Refused | Done),
            handler=self,
        )
        link.cast(Refused(code="HELLO", message=self.process.start.child_id))

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        assert isinstance(message, Refused)
        self.note(f"heard {message.message} from {link.name}")

    def on_closed(self, link: Link) -> None:
        self.note(f"lost {link.name}")


ACTORS = {
    kind.__name__.lower(): kind
    for kind in (
        Well,
        Ends,
        Raises,
        DiesEarly,
        HangsEarly,
        Refuses,
        Deaf,
        Hangs,
        Grows,
        Escapes,
        Lingers,
        Talks,
    )
}


def main(control_fd: int) -> None:
    trio.run(serve_process, control_fd, ACTORS)


async def _nothing() -> None:
    await trio.lowlevel.checkpoint()


def warm_up() -> None:
    trio.run(_nothing)


if __name__ == "__main__":
    run_spawned("children:main")
