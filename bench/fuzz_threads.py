"""Does the thread door answer whatever comes as the contract and the state of its threads say, over the Unix socket?

Usage: python -P bench/fuzz_threads.py [requests [seed]]; half of them right, half of them changed; 10,000 unless told.
Most are sent one by one and judged by the exact state of what they name, some in bursts and judged by their shape alone.

Every request is answered once, by its id; what comes is of the exported schema; of the accepted turns and steers each is read
back once, in its place; a daemon client's pings go on meanwhile, and a thread client that follows another thread hears nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import cast

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import Figure, table
from bench.thread_cases import Requests
from bench.thread_company import Bystander, kind_of, play
from bench.thread_races import CONFIG
from bench.thread_rules import (
    INVALID,
    OK,
    Json,
    Shapes,
    Thread,
    Threads,
    contract,
    envelope,
    outcome,
)
from bench.thread_schema import Check
from tests.support import scripted_model as script
from tests.support.daemon import RunningDaemon
from tests.support.turn_client import TurnClient, inside

REQUESTS = 10_000
BURST = 16
BURST_EVERY = 40
LIVE = 4
MOST_RUNNING = 3
SHOWN = 15
SETTINGS = ("agents.idle_timeout=2.0", "agents.max_iterations=100000", "limits.agent_processes=64")


class Fuzz:
    """One run on one connection."""

    def __init__(self, path: str, seed: int) -> None:
        schema = contract()
        self._random = Random(seed)
        self._shapes = Shapes(schema)
        self._check = Check()
        self.world = Threads(lambda said: kind_of(said) == 0)
        self._requests = Requests(schema, self._random, self.world)
        self.sent = Counter[str]()
        self.codes = Counter[str]()
        self.taken = Counter[str]()
        self.notes = Counter[str]()
        self.wrong: list[str] = []
        self._client = TurnClient(path)
        for archived in (False, True):
            page = self._client.call("thread/list", limit=0, archived=archived)
            self.world.others[archived] = cast("int", page["total"])

    def run(self, requests: int) -> None:
        """Send so many requests and see all of them answered rightly."""
        while sum(self.sent.values()) < requests:
            self._tidy()
            if self._random.randrange(BURST_EVERY) == 0:
                self._burst()
            else:
                self._one(self._requests.next())
                self._decide()
        self._finish()

    def greet(self, path: str, greetings: int) -> None:
        """Send so many right and changed requests `initialize`, each on a connection of its own."""
        for number in range(greetings):
            message = self._requests.greeting(right=not number % 2)
            if envelope(message) is not None or message["method"] != "initialize":
                continue
            client = TurnClient(path, initialize=False)
            client.write(message)
            answer: Json = json.loads(client.file.readline())
            client.close()
            said = outcome(answer)
            self.codes[said] += 1
            if (said == OK) is not self._shapes.takes(_with_capabilities(message)):
                self._fault("the shape says otherwise", message, answer)
            elif said not in (OK, INVALID, "-32602 unknownProtocol"):
                self._fault("not what a wrong greeting is told", message, answer)

    def close(self) -> None:
        self._client.close()

    def _one(self, message: Json) -> None:
        """Send a message alone and judge its answer by the state of what it names."""
        expected = self._expected(message)
        self._write([message])
        if expected == {""}:
            return
        answer = self._answer(message)
        self._judge(message, answer, expected)

    def _expected(self, message: Json) -> set[str]:
        """Return the right outcomes; an empty word is that there is no answer."""
        code = envelope(message)
        if code is not None:
            return {str(code) if code else ""}
        method = str(message["method"])
        if method not in self._shapes.methods:
            return {"-32601"}
        if method == "initialize":
            return {"-32011"}
        if not self._shapes.takes(message):
            return {INVALID}
        return self.world.outcomes(method, _params(message))

    def _write(self, messages: list[Json]) -> None:
        lines = [json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in messages]
        self._client.sock.sendall(b"".join(lines))
        for one in messages:
            self.sent[str(one.get("method"))] += 1
            self._may_end(one)

    def _may_end(self, message: Json) -> None:
        """An archived thread's turn ends before the request is answered."""
        if message.get("method") == "thread/archive":
            thread = self.world.all.get(str(_params(message).get("threadId")))
            if thread is not None and thread.turn is not None:
                thread.turn.ending = True

    def _answer(self, message: Json) -> Json:
        """Return the next answer; it must be to this message. What else comes is taken note of."""
        while True:
            found = self._read()
            if found is not None:
                wanted = None if envelope(message) else message["id"]
                if found["id"] != wanted or type(found["id"]) is not type(wanted):
                    self._fault("answered under another id", message, found)
                return found

    def _read(self) -> Json | None:
        """Take the next message; return it if it is an answer."""
        line = self._client.file.readline()
        if not line:
            raise ConnectionError("the daemon closed the connection")
        found: Json = json.loads(line)
        if "method" not in found:
            return found
        self._check(None, found)
        method, params = str(found["method"]), cast("Json", found["params"])
        self.notes[method] += 1
        if "item" in params:
            self._requests.items = [*self._requests.items[-50:], str(inside(params, "item")["id"])]
        if "id" not in found:
            fault = self.world.told(method, params)
            if fault:
                self._fault(fault, {}, found)
        return None

    def _judge(self, message: Json, answer: Json, expected: set[str]) -> None:
        method, said = str(message.get("method")), outcome(answer)
        self.codes[said] += 1
        if said not in expected:
            self._fault(f"not {sorted(expected)}", message, answer)
        if said != OK:
            return
        self.taken[method] += 1
        self._check(method, answer)
        fault = self.world.answered(method, _params(message), inside(answer, "result"))
        if fault:
            self._fault(fault, message, answer)
        if method == "thread/start":
            self._requests.live.append(
                self.world.all[str(inside(inside(answer, "result"), "thread")["id"])]
            )

    def _fault(self, fault: str, message: Json, found: Json) -> None:
        told = json.dumps(found, ensure_ascii=False)[:600]
        self.wrong.append(f"{fault}: {json.dumps(message, ensure_ascii=False)[:600]}\n    {told}")

    def _burst(self) -> None:
        """Send many at once: each is answered once, and its shape judged as ever."""
        batch = [self._requests.next() for _ in range(BURST)]
        batch = [one for one in batch if one.get("method") != "thread/archive"]
        waiting = {json.dumps(one["id"]): one for one in batch if envelope(one) is None}
        nulls = sum(1 for one in batch if envelope(one))
        self._write(batch)
        while waiting or nulls:
            answer = self._read()
            if answer is None:
                continue
            if answer["id"] is None:
                nulls -= 1
                continue
            message = waiting.pop(json.dumps(answer["id"]), None)
            if message is None:
                self._fault("nobody asked", {}, answer)
            else:
                self._judge_shape(message, answer)
        self._look()

    def _judge_shape(self, message: Json, answer: Json) -> None:
        said, method = outcome(answer), str(message["method"])
        self.codes[said] += 1
        known = method in self._shapes.methods
        right = known and (method == "initialize" or self._shapes.takes(message))
        if (
            (said == "-32601") is known
            or (said == INVALID) is (right or not known)
            or said in ("-32603", "-32600")
        ):
            self._fault("the shape says otherwise", message, answer)
        if said != OK:
            return
        self.taken[method] += 1
        self._check(method, answer)
        params = _params(message)
        if method != "thread/list":
            self.world.answered(method, params, inside(answer, "result"))
        if method == "thread/start":
            self._requests.live.append(
                self.world.all[str(inside(inside(answer, "result"), "thread")["id"])]
            )
        if "threadId" in params:
            thread = self.world.all.get(str(params["threadId"]))
            for turn in thread.turns if thread is not None else ():
                turn.ending = True

    def _ask(self, method: str, **params: object) -> Json:
        """Send a request of the run itself, which is right, and return its result."""
        message: Json = {"id": self._requests.number(), "method": method, "params": params}
        self._write([message])
        self.sent[method] -= 1
        answer = self._answer(message)
        if outcome(answer) == OK:
            self.world.answered(method, params, inside(answer, "result"))
        return answer

    def _look(self) -> None:
        """See where the live threads are after a burst."""
        for thread in self._requests.live:
            row = inside(inside(self._ask("thread/read", threadId=thread.id), "result"), "thread")
            if row["status"] == "idle":
                thread.turn = None
            elif thread.turn is not None and row["activeTurnId"] != thread.turn.id:
                self._fault("another turn runs", {}, row)

    def _decide(self) -> None:
        """Now and then answer what the daemon asks."""
        waiting = [
            (t, r) for t in self._requests.live for r, (_, word) in t.asked.items() if not word
        ]
        if not waiting or self._random.random() < 0.9:
            return
        thread, request = self._random.choice(waiting)
        word = self._random.choice(("allow", "deny", "approved", "denied"))
        self._client.write({"id": request, "result": {"decision": word}})
        while not thread.asked[request][1]:
            self._read()

    def _tidy(self) -> None:
        """Keep some threads alive, and few turns at work."""
        self._requests.live = [thread for thread in self._requests.live if not thread.archived][
            -2 * LIVE :
        ]
        while len(self._requests.live) < LIVE:
            made = self._ask("thread/start")
            self._requests.live.append(
                self.world.all[str(inside(inside(made, "result"), "thread")["id"])]
            )
        running = [t for t in self.world.all.values() if t.turn is not None]
        for thread in running[: max(0, len(running) - MOST_RUNNING)]:
            self._end(thread)

    def _end(self, thread: Thread) -> None:
        """End a thread's turn and wait until that was told."""
        turn = thread.turn
        if turn is None:
            # It has ended while another one's end was waited for.
            return
        self._ask("turn/interrupt", threadId=thread.id, turnId=turn.id)
        turn.ending = True
        while turn.id not in self.world.ended:
            self._read()
        thread.turn = None

    def _finish(self) -> None:
        """End all turns and read everything back."""
        for thread in self.world.all.values():
            if thread.turn is not None and thread.turn.id not in self.world.ended:
                self._end(thread)
        for thread in self.world.all.values():
            left = [one.id for one in thread.turns if one.id not in self.world.ended]
            if left:
                self._fault("turns have no end", {"thread": thread.id}, {"turns": left})
            if thread.turns and not (thread.archived and thread.ephemeral):
                self._read_back(thread)

    def _read_back(self, thread: Thread) -> None:
        result = inside(self._ask("thread/read", threadId=thread.id), "result")
        found: dict[str, list[str]] = {}
        for item in cast("list[Json]", result["items"]):
            if item["type"] == "userMessage":
                found.setdefault(str(item["turnId"]), []).append(
                    str(inside(item, "content")["text"])
                )
        wanted = {turn.id: turn.said for turn in thread.turns if turn.begun}
        if found != wanted:
            self._fault("not what was said", {"said": wanted}, {"found": found})


def _with_capabilities(message: Json) -> Json:
    """Return a greeting as the door takes it: null is as good as absent, and no capabilities as good as empty ones."""
    params = message.get("params")
    if not isinstance(params, dict):
        return message
    given = {name: one for name, one in cast("Json", params).items() if one is not None}
    wanted = given.setdefault("capabilities", {})
    if isinstance(wanted, dict):
        kept = {name: one for name, one in cast("Json", wanted).items() if one is not None}
        given["capabilities"] = kept
    return {**message, "params": given}


def _params(message: Json) -> Json:
    """Return the params of a message as far as they are an object."""
    params = message.get("params")
    return cast("Json", params) if isinstance(params, dict) else {}


def fuzz(path: str, requests: int, seed: int) -> Fuzz:
    """Return a run that has ended."""
    bystander = Bystander(path)
    try:
        done = Fuzz(path, seed)
        try:
            done.greet(path, requests // 25)
            done.run(requests)
        finally:
            done.close()
    finally:
        fault = bystander.close()
    done.wrong += [fault] if fault else []
    return done


def run(requests: int = REQUESTS, seed: int = 1) -> list[Figure]:
    """Return what a run says."""
    home = Path(tempfile.mkdtemp(prefix="roost-fuzz-"))
    daemon = RunningDaemon(home / "home", *SETTINGS)
    begin = time.perf_counter()
    try:
        with script.scripted_model_in_thread() as model:
            play(model)
            daemon.configure(CONFIG.format(base_url=model.base_url))
            daemon.start()
            done = fuzz(daemon.socket, requests, seed)
    finally:
        daemon.close_clients()
        if daemon.guard is not None:
            daemon.stop()
        shutil.rmtree(home, ignore_errors=True)
    took = time.perf_counter() - begin
    for line in done.wrong[:SHOWN]:
        sys.stderr.write(f"{line}\n")
    wrong, count = len(done.wrong), sum(done.sent.values())
    name = f"{count:,} requests of the thread door by contract and state"
    return [
        Figure(name, f"{wrong} wrong, {took:.0f} s", "", "0 wrong", met=not wrong),
        Figure("answers of the thread door", _counted(done.codes)),
        Figure("requests that it took", _counted(done.taken)),
        Figure("what it told", _counted(done.notes)),
    ]


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


if __name__ == "__main__":
    figures_ = run(*map(int, sys.argv[1:3]))
    sys.stdout.write(table(figures_) + "\n")
    sys.exit(int(any(figure.met is False for figure in figures_)))
