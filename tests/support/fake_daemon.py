"""A daemon of a few lines behind a real Unix socket: what the command line asks is remembered, and answered as told."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import trio

from roost.config.files import DaemonFile, ensure_cookie, take_lock, write_daemon_file
from roost.config.paths import Home, prepare_home
from roost.config.sockets import bind_unix
from roost.supervisor import identity

if TYPE_CHECKING:
    from pathlib import Path

Params = dict[str, object]
Handler = Callable[["FakeClient", Params], Awaitable[object]]

NOW = "2026-03-01T09:30:00.000Z"
AGENT = "agent_one"
SESSION = "session_one"
APPROVAL = {
    "requestId": "call_1",
    "toolName": "shell",
    "input": {"command": "uname -s"},
    "metadata": {"risk": "external_effect"},
    "reason": "policy dangerFullAccess",
}


class Refusal(Exception):
    """A request is answered with an error."""

    def __init__(self, number: int, message: str, code: str) -> None:
        super().__init__(message)
        self.error = {"code": number, "message": message, "data": {"code": code}}


class FakeClient:
    """One connection, as the fake daemon sees it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._lock = trio.Lock()
        self.capabilities: Params = {}

    async def send(self, message: object) -> None:
        async with self._lock:
            await self.stream.send_all(json.dumps(message).encode() + b"\n")

    async def tell(self, method: str, **params: object) -> None:
        """Send one `event.*` notification of the session."""
        body = {"sessionId": SESSION, "eventId": "evt", "agentId": AGENT, **params}
        await self.send({"jsonrpc": "2.0", "method": f"event.{method}", "params": body})

    async def tell_event(self, kind: str, **payload: object) -> None:
        """Send one `event.session_event` notification."""
        await self.tell("session_event", event={"id": "evt", "type": kind, "payload": payload})

    async def tell_status(self, status: str, **further: object) -> None:
        """Send one `event.agent_status` notification."""
        await self.tell("agent_status", status=status, runStatus="running", **further)


class FakeDaemon:
    """Answers by the table `handlers`; a method that is not there is answered with an empty object."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path, explicit=True)
        self.asked: list[tuple[str, Params]] = []
        self.handlers: dict[str, Handler] = {}
        self.came = trio.Event()
        for method, result in DEFAULT_ANSWERS.items():
            self.answer(method, result)

    def answer(self, method: str, result: object) -> None:
        """Answer a method with always the same."""

        async def handler(client: FakeClient, params: Params) -> object:
            await trio.lowlevel.checkpoint()
            return result

        self.handlers[method] = handler

    def params_of(self, method: str) -> list[Params]:
        """Return the params of every request for a method."""
        return [params for asked, params in self.asked if asked == method]

    async def wait_asked(self, method: str) -> None:
        """Wait until a method has been asked for."""
        while not self.params_of(method):
            self.came = trio.Event()
            await self.came.wait()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        prepare_home(self.home)
        ensure_cookie(self.home)
        lock = take_lock(self.home)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(bind_unix(self.home.socket)))
        me = identity.identify(os.getpid())
        assert me is not None
        write_daemon_file(
            self.home,
            DaemonFile(
                pid=me.pid,
                created_at=NOW,
                version="0.1.0",
                socket=str(self.home.socket),
                websocket="ws://127.0.0.1:1/",
                process_start=me.created,
            ),
        )
        try:
            async with trio.open_nursery() as nursery:
                task_status.started()
                await trio.serve_listeners(self._talk, [listener], handler_nursery=nursery)
        finally:
            os.close(lock)

    async def _talk(self, stream: trio.SocketStream) -> None:
        client = FakeClient(stream)
        buffer = b""
        try:
            async with trio.open_nursery() as nursery:
                async for data in stream:
                    *lines, buffer = (buffer + data).split(b"\n")
                    for line in lines:
                        nursery.start_soon(self._handle, client, json.loads(line))
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has gone

    async def _handle(self, client: FakeClient, request: dict[str, object]) -> None:
        method = cast("str", request["method"])
        params = cast("Params", request["params"])
        self.asked.append((method, params))
        self.came.set()
        if method == "initialize":
            client.capabilities = cast("Params", params["capabilities"])
        answer: dict[str, object] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            handler = self.handlers.get(method)
            answer["result"] = await handler(client, params) if handler is not None else {}
        except Refusal as refusal:
            answer["error"] = refusal.error
        await client.send(answer)


DEFAULT_ANSWERS: dict[str, object] = {
    "initialize": {"type": "initialized", "protocolVersion": "1.0.0"},
    "health.ready": {"ready": True, "uptimeMs": 1, "now": NOW},
    "health.stats": {
        "uptimeMs": 3_723_000,
        "now": NOW,
        "sessions": {"active": 1, "closed": 0, "total": 1},
        "memory": {"rss": 52_428_800},
        "tree": [
            {"childId": "root", "parent": "", "kind": "root", "state": "running", "pid": 1},
            {"childId": "store", "parent": "root", "state": "running", "pid": 2, "rss": 1_048_576},
            {"childId": "agents", "parent": "root", "state": "running", "pid": 0},
            {
                "childId": f"agent:{AGENT}",
                "parent": "agents",
                "state": "crashed",
                "pid": 0,
                "restarts": 5,
                "lastError": "killed by signal 9",
            },
        ],
    },
    "agent.list": {
        "agents": [
            {
                "agentId": AGENT,
                "status": "running",
                "createdAt": NOW,
                "objective": "look around",
                "cwd": "/tmp",
            }
        ]
    },
    "session.list": {
        "sessions": [
            {
                "sessionId": SESSION,
                "agentId": AGENT,
                "status": "waiting",
                "createdAt": NOW,
                "lastSequence": 17,
            }
        ]
    },
    "agent.create": {
        "agentId": AGENT,
        "status": "running",
        "createdAt": NOW,
        "sessionId": SESSION,
    },
    "session.attach": {"sessionId": SESSION, "attachmentId": "attachment_1"},
    "session.cancelTurn": {"sessionId": SESSION, "cancelled": True, "reason": "x"},
    "tool.approve": {"requestId": "call_1", "decision": "approved"},
    "tool.deny": {"requestId": "call_1", "decision": "denied"},
    "elicitation.respond": {"requestId": "call_1", "resolved": True},
    "agent.stop": {"agentId": AGENT, "stopped": True},
    "agent.logs": {"agentId": AGENT, "transcript": "[user] hello", "sessions": []},
}
