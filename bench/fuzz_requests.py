"""Does a real daemon answer whatever comes as the schema and the tables say, over the Unix socket and the WebSocket?

Usage: python -P bench/fuzz_requests.py [messages [seed]]; so many right requests and as many changed ones over each
transport, 10,000 unless told. Deterministic for a seed but for the daemon's ids and timing.

What the schema refuses gets −32600 or −32602; what it accepts never −32600, and −32602 only by a rule of `request_rules`;
nothing stays unanswered, nothing is answered twice, and all that comes back is of the schema. With ROOST_CONTRACTS naming a
folder with `seeds/daemon-protocol.schema.json` that schema is the judge, else the exported one.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, deque
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

import jsonschema_rs

from bench.crowd import Member, unix_member, web_member
from bench.daemon import Json, running_daemon
from bench.report import Figure, table
from bench.request_rules import breach, line_of, without_unpublished
from bench.schema_cases import Cases
from bench.schema_check import Results, judging_schema
from roost.actors.front.daemon_door import DOOR

if TYPE_CHECKING:
    from bench.daemon import Daemon

MESSAGES = 10_000
WINDOW = 16
SHOWN = 15
PATIENCE = 30.0
SETTINGS = (
    "limits.agent_processes=6",
    "limits.tcp_rate=0",
    "limits.in_flight_requests=256",
    "limits.queued_messages=64",
    "agents.idle_timeout=2.0",
)
# What ends a thing, and so is only told of things that the run itself has made.
ENDS = frozenset(("agent.stop", "run.cancel", "session.terminate"))
# They go to the session in which something waits for a person.
DECISIONS = frozenset(("tool.approve", "tool.deny", "tool.cancel", "elicitation.respond"))
ASK: Json = {"ask": [{"id": "q", "question": "Which?"}]}
# What is told before anything else is looked at (P 3.2, 3.5).
BEFORE_GREETING = frozenset(("CONNECTION_AUTHENTICATION_FAILED", "CONNECTION_NOT_INITIALIZED"))
BUILT = frozenset(name for name, m in DOOR.methods.items() if m.implemented and m.advertised)


class Wire:
    """One connection: whole messages out and in."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._rest = b""
        member.sock.settimeout(PATIENCE)

    def send(self, lines: list[bytes]) -> None:
        self._member.sock.sendall(b"".join(self._member.frame(line) for line in lines))

    def read(self) -> list[Json]:
        """Wait for something and return the messages that are complete.

        Raises:
            ConnectionError: the daemon closed the connection.
            TimeoutError: nothing came.
        """
        data = self._member.sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the daemon closed the connection")
        found, self._rest = self._member.split(self._rest + data)
        return [json.loads(text) for text in found]

    def call(self, method: str, **params: object) -> Json:
        """Send a request and wait for its result; notifications are dropped."""
        self.send([line_of({"jsonrpc": "2.0", "id": "call", "method": method, "params": params})])
        while True:
            for message in self.read():
                if message.get("id") == "call":
                    return cast("Json", message["result"])

    def close(self) -> None:
        self._member.sock.close()


class World:
    """The ids of what there is, as far as answers and notifications have told."""

    def __init__(self, random: Random, home: str) -> None:
        self._random = random
        self._home = home
        self.kept: dict[str, list[str]] = {"agentId": [], "sessionId": []}
        self.made: dict[str, deque[str]] = {
            name: deque(maxlen=8)
            for name in ("agentId", "sessionId", "requestId", "attachmentId", "cursor")
        }

    def known(self, method: str, member: str) -> object:
        """Return a text for a member of a request, if there is a good one."""
        random = self._random
        if random.random() < 0.15:
            return None
        if member == "cwd":
            return random.choice((self._home, "/tmp"))
        if member == "roots":
            return self._home
        if member == "provider":
            return random.choice(("", "script"))
        if member in ("protocolVersion", "version"):
            return random.choice(("1.0.0", "1.0", "1.0.0", "2.0"))
        if method in DECISIONS and member == "sessionId":
            return self.kept["sessionId"][0]
        if method in DECISIONS and member == "requestId" and self.made[member]:
            return self.made[member][-1]
        if member == "runId":
            member = "agentId"
        kept = [] if method in ENDS else self.kept.get(member, [])
        pool = [*kept, *kept, *self.made.get(member, ())]
        return random.choice(pool) if pool else None

    def learn(self, message: Json) -> None:
        """Take the ids out of an answer or a notification."""
        for part in ("result", "params"):
            found = cast("Json", message.get(part) or {})
            for name, pool in self.made.items():
                value = found.get(name) if name != "requestId" or part == "params" else None
                if isinstance(value, str) and value not in self.kept.get(name, ()):
                    pool.append(value)


class Fuzz:
    """One run on one connection."""

    def __init__(self, daemon: Daemon, transport: str, seed: int, schema: Json) -> None:
        self._daemon, self._transport = daemon, transport
        self._random = Random(seed)
        self._world = World(self._random, str(daemon.home))
        self._cases = Cases(schema, self._random, self._world.known)
        self._results = Results()
        self._validator = jsonschema_rs.Draft7Validator(schema)
        self._methods = sorted(self._cases.requests)
        self._open: dict[str | int, object] = {}
        self._nulls: deque[object] = deque()
        self._number = 0
        self.sent = Counter[bool]()
        self.codes = Counter[str]()
        self.notes = Counter[str]()
        self.wrong: list[str] = []
        self._cookie = (daemon.home / "daemon.cookie").read_text().strip()
        self._known_there = True
        self._wire = self._connect()

    def run(self, messages: int) -> None:
        """Send so many right requests and as many changed ones, and see all of them answered."""
        for _ in range(0, messages, WINDOW // 2):
            batch: list[object] = []
            for _ in range(WINDOW // 2):
                right = self._cases.request(self._random.choice(self._methods))
                batch += [right, self._cases.changed(right).message]
            self._exchange([self._named(message) for message in batch])
            self._tidy()
        self._finish()

    def greet(self, messages: int) -> None:
        """Send so many right and changed requests `initialize`, each on a connection of its own."""
        for number in range(messages):
            greeting = self._cases.request("initialize")
            cast("Json", greeting["params"])["authCookie"] = self._cookie
            message = greeting if number % 2 else self._cases.changed(greeting).message
            wire, self._wire = self._wire, self._connect(greet=False)
            self._known_there = False
            try:
                self._exchange([self._named(message)])
            finally:
                self._wire.close()
                self._wire, self._known_there = wire, True

    def _connect(self, *, greet: bool = True) -> Wire:
        if self._transport == "unix":
            wire = Wire(unix_member(self._daemon.socket))
        else:
            told = json.loads((self._daemon.home / "daemon.json").read_text())["websocket"]
            host, _, port = told.removeprefix("ws://").rstrip("/").rpartition(":")
            wire = Wire(web_member(host, int(port)))
        try:
            if greet:
                wire.call("initialize", protocolVersion="1.0.0", authCookie=self._cookie)
        except BaseException:
            wire.close()
            raise
        return wire

    def furnish(self) -> None:
        """Make the agents and sessions that last, and a turn that asks for decisions."""
        free: Json = {"sandbox": "dangerFullAccess"}
        for _ in range(2):
            agent = self._wire.call("agent.create", objective="x", initialContent=[], metadata=free)
            session = self._wire.call("session.create", agentId=agent["agentId"])
            for found in (agent, session):
                self._world.kept["sessionId"].append(str(found["sessionId"]))
                self._wire.call("session.attach", sessionId=found["sessionId"], clientId="fuzz")
            self._world.kept["agentId"].append(str(agent["agentId"]))
        self._asking = self._world.kept["sessionId"][0]
        self._ask()

    def _ask(self) -> None:
        """Start a turn whose calls wait for decisions, if none is under way."""
        self._number += (
            6  # Each command is another one, so that no approval is for the next one, too.
        )
        calls: list[Json] = [
            {"tool": "shell", "args": {"command": f": {self._number + n}"}} for n in range(6)
        ]
        script: list[Json] = [*calls, ASK, {"say": "done"}]
        message: Json = {"sessionId": self._asking, "content": "go", "metadata": {"script": script}}
        self._send([self._request("message.send", message)])

    def _request(self, method: str, params: Json) -> Json:
        return {"jsonrpc": "2.0", "id": self._fresh(), "method": method, "params": params}

    def _fresh(self) -> str | int:
        self._number += 1
        number = self._number + 10_000
        # The last one is an integer all the same.
        return (number, f"r{number}", float(number))[self._number % 3]  # type: ignore[return-value]

    def _named(self, message: object) -> object:
        """Give a request an id of its own, if its id is one."""
        members = cast("Json", message)
        return {**members, "id": self._fresh()} if _usable_id(members.get("id")) else members

    def _send(self, messages: list[object]) -> None:
        for message in messages:
            members = cast("Json", message)
            request_id = members.get("id")
            if _wants_no_answer(members):
                pass
            elif _usable_id(request_id):
                self._open[cast("str | int", request_id)] = message
            else:
                self._nulls.append(message)
            self.sent[self._accepts(message)] += 1
        self._wire.send([line_of(message) for message in messages])

    def _exchange(self, messages: list[object]) -> None:
        """Send messages and wait until all but those that wait for a turn are answered."""
        self._send(messages)
        waited = [_id_of(message) for message in messages if not _is_long(message)]
        waiting = {one for one in waited if _usable_id(one)}
        while self._nulls or not waiting.isdisjoint(self._open):
            self._read()

    def _read(self) -> None:
        try:
            found = self._wire.read()
        except TimeoutError:
            unanswered = [*self._open.values(), *self._nulls]
            raise SystemExit(f"unanswered: {unanswered[:SHOWN]}") from None
        for message in found:
            self._take(message)

    def _take(self, message: Json) -> None:
        if not self._validator.is_valid(message):
            self.wrong.append(f"not of the schema: {json.dumps(message)[:500]}")
        self._world.learn(message)
        if "method" in message:
            self.notes[str(message["method"])] += 1
            return
        asked = self._nulls.popleft() if message["id"] is None and self._nulls else None
        if message["id"] is not None:
            asked = self._open.pop(cast("str | int", message["id"]), None)
        if asked is None:
            self.wrong.append(f"nobody asked: {json.dumps(message)[:500]}")
            return
        self._judge(asked, message)

    def _judge(self, asked: object, answer: Json) -> None:
        accepted = self._accepts(asked)
        error = cast("Json | None", answer.get("error"))
        if error is None:
            self.codes["result"] += 1
            method = str(cast("Json", asked).get("method"))
            fault = self._results.fault(method, answer["result"])
            if not accepted:
                fault = "the schema refuses it"
        else:
            said = cast("Json", error.get("data") or {}).get("code")
            self.codes[f"{error['code']} {said}"] += 1
            fault = breach(asked, error, accepted=accepted, built=BUILT)
            if not self._known_there and said in BEFORE_GREETING:
                fault = ""
        if fault:
            said = json.dumps(answer, ensure_ascii=False)[:400]
            self.wrong.append(f"{fault}: {line_of(asked).decode()[:600]}\n    {said}")

    def _accepts(self, message: object) -> bool:
        return self._validator.is_valid(without_unpublished(message))

    def _tidy(self) -> None:
        """End what requests have made beside the things that last, and keep the decisions coming."""
        agents = list(self._world.made["agentId"])
        if len(agents) > 4:
            stops = [self._request("agent.stop", {"agentId": one}) for one in agents[:4]]
            for one in agents[:4]:
                self._world.made["agentId"].remove(one)
            self._exchange(cast("list[object]", stops))
        if not any(self._is_asking(message) for message in self._open.values()):
            self._ask()

    def _is_asking(self, message: object) -> bool:
        members = cast("Json", message)
        return cast("Json", members.get("params") or {}).get("sessionId") == self._asking

    def _finish(self) -> None:
        """End all turns and wait for the last answer."""
        for session in self._world.kept["sessionId"]:
            self._send([self._request("session.terminate", {"sessionId": session})])
        for agent in (*self._world.kept["agentId"], *self._world.made["agentId"]):
            self._send([self._request("agent.stop", {"agentId": agent})])
        while self._open or self._nulls:
            self._read()

    def close(self) -> None:
        self._wire.close()


def _usable_id(value: object) -> bool:
    if isinstance(value, str):
        return bool(value)
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def _id_of(message: object) -> object:
    return cast("Json", message).get("id") if isinstance(message, dict) else None


def _wants_no_answer(members: Json) -> bool:
    """Notifications of clients, and answers to what was never asked."""
    if "method" in members:
        return "id" not in members
    return "result" in members or "error" in members


def _is_long(message: object) -> bool:
    return str(cast("Json", message).get("method")).startswith("message.")


def fuzz(daemon: Daemon, transport: str, messages: int, seed: int) -> Fuzz:
    """Return a run that has ended."""
    run_ = Fuzz(daemon, transport, seed, judging_schema())
    try:
        run_.furnish()
        run_.greet(max(4, messages // 50))
        run_.run(messages)
    finally:
        run_.close()
    return run_


def run(messages: int = MESSAGES, seed: int = 1) -> list[Figure]:
    """Return what a run says."""
    figures: list[Figure] = []
    with running_daemon(*SETTINGS) as daemon:
        for transport in ("unix", "websocket"):
            begin = time.perf_counter()
            done = fuzz(daemon, transport, messages, seed)
            took = time.perf_counter() - begin
            for line in done.wrong[:SHOWN]:
                sys.stderr.write(f"{transport}: {line}\n")
            codes = ", ".join(f"{code} {count:,}" for code, count in done.codes.most_common())
            notes = ", ".join(f"{name} {count:,}" for name, count in done.notes.most_common())
            name = f"{done.sent[True]:,} requests of the schema, {done.sent[False]:,} others, {transport}"
            wrong = len(done.wrong)
            figures += [
                Figure(name, f"{wrong} wrong, {took:.0f} s", "", "0 wrong", met=not wrong),
                Figure(f"answers, {transport}", codes),
                Figure(f"notifications, {transport}", notes),
            ]
    return figures


if __name__ == "__main__":
    figures_ = run(*map(int, sys.argv[1:3]))
    sys.stdout.write(table(figures_) + "\n")
    sys.exit(int(any(figure.met is False for figure in figures_)))
