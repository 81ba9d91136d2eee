"""Does a snapshot plus what follows always make the final state, and is an approval settled once, whoever is first?

1,000 resumes at random moments of streaming turns, and 1,000 approvals on which a client of each door decides at once.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench.daemon import Client, Refusal
from bench.report import Figure
from tests.support import scripted_model as script
from tests.support.daemon import RunningDaemon
from tests.support.turn_client import TurnClient, inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_client import Json

ROUNDS = 1_000
PIECES = [f"piece {number} " for number in range(40)]
PIECE_SECONDS = 0.001
TURN_SECONDS = 0.08
CONFIG = """
[agents]
provider = "local"

[providers.local]
base_url = "{base_url}"
model = "m"
max_retries = 0
"""


def final_state(snapshot: Json, heard: Sequence[Json]) -> list[Json]:
    """Return the items that a client has after a snapshot and what it was told since."""
    items = {str(item["id"]): dict(item) for item in cast("list[Json]", snapshot["items"])}
    last = cast("int", snapshot["asOfSequence"])
    for message in heard:
        params = inside(message, "params")
        sequence = cast("int", params.get("sequence", last))
        assert sequence >= last, "told out of order"
        assert sequence > cast("int", snapshot["asOfSequence"]), "told twice"
        last = sequence
        match message["method"]:
            case "item/started" | "item/completed":
                item = inside(params, "item")
                items[str(item["id"])] = dict(item)
            case "item/agentMessage/delta":
                item = items[str(params["itemId"])]
                assert item["status"] == "inProgress"
                item["text"] = str(item["text"]) + str(params["delta"])
                item["content"] = {"text": item["text"]}
            case _:
                pass
    return list(items.values())


def resume_at_random(path: str, model: ScriptedModel, rounds: int, seed: int = 1) -> int:
    """Resume in the middle of turns; return how many of the resumes saw a turn that ran."""
    rng = random.Random(seed)
    caught = 0
    client = TurnClient(path)
    thread = client.thread()
    model.play(script.says(*PIECES, interval=PIECE_SECONDS))
    for _ in range(rounds):
        watcher = TurnClient(path)
        turn = client.begin(thread)
        time.sleep(rng.random() * TURN_SECONDS)
        snapshot = watcher.call("thread/resume", threadId=thread)
        assert not watcher.heard, "the answer is first"
        assert "hasMore" not in snapshot
        client.completed(turn)
        runs = inside(snapshot, "thread")["status"] == "running"
        if runs:
            caught += 1
            watcher.completed(turn)
        final = client.items(thread)
        got = final_state(snapshot, watcher.heard)
        if got != final and not runs:
            # It had not begun when the snapshot was taken.
            watcher.completed(turn)
            got = final_state(snapshot, watcher.heard)
        assert got == final, (got[-2:], final[-2:])
        watcher.close()
        client.heard.clear()
        if len(final) > 300:
            thread = client.thread()
    client.close()
    return caught


def decide_at_once(path: str, model: ScriptedModel, folder: Path, rounds: int) -> dict[str, int]:
    """Let a client of each door decide on the same approvals; return how often which was first."""
    write = script.calls("write_file", json.dumps({"path": "note.txt", "content": "x"}))
    first = {"thread": 0, "daemon": 0}
    client, other = TurnClient(path), Client(path)
    thread = client.thread(cwd=str(folder))
    other.call("session.attach", sessionId=thread)
    for number in range(rounds):
        model.play(write, script.says("done"))
        (folder / "note.txt").unlink(missing_ok=True)
        turn = client.begin(thread)
        asked = client.wait("approval/requested", partial(_has, "turnId", turn))
        winner, decision = _decide(client, other, asked, mine="allow" if number % 2 else "deny")
        first[winner] += 1
        told = client.wait("approval/resolved", partial(_has, "requestId", str(asked["requestId"])))
        ended = client.completed(turn)
        assert ended["status"] == "completed"
        assert told["decision"] == decision
        assert (folder / "note.txt").exists() == (decision == "allow")
        resolved = [inside(note, "params") for note in _notes(other, str(asked["toolCallId"]))]
        decisions = [inside(inside(one, "event"), "payload")["decision"] for one in resolved]
        assert decisions == ["approved" if decision == "allow" else "denied"], decisions
        assert [m["method"] for m in client.heard].count("approval/resolved") == 1
        client.heard.clear()
        client.asked.clear()
    client.close()
    other.close()
    return first


def _has(name: str, value: str, params: Json) -> bool:
    return params[name] == value


def _decide(client: TurnClient, other: Client, asked: Json, mine: str) -> tuple[str, str]:
    """Decide from both doors in opposite ways; return who was first, and what holds."""
    lost: list[bool] = []
    method = "tool.deny" if mine == "allow" else "tool.approve"

    wait = random.random() * 0.004

    def decide() -> None:
        time.sleep(wait)
        try:
            other.call(method, sessionId=asked["threadId"], requestId=asked["toolCallId"])
            lost.append(False)
        except Refusal:
            lost.append(True)

    racing = threading.Thread(target=decide)
    racing.start()
    request = {key: asked[key] for key in ("threadId", "turnId", "requestId")}
    answer = client.outcome(client.send("approval/resolve", **request, decision=mine))
    racing.join()
    won = "result" in answer
    assert won is lost[0], "one and only one of them is first"
    theirs = "deny" if mine == "allow" else "allow"
    return ("thread", mine) if won else ("daemon", theirs)


def _notes(other: Client, call_id: str) -> list[Json]:
    """Return what the daemon client was told of the end of an approval, and forget the rest."""
    other.call("health.ping")
    found: list[Json] = []
    for note in other.notes:
        params = cast("Json", note["params"])
        event = cast("Json", params.get("event") or {})
        payload = cast("Json", event.get("payload") or {})
        if event.get("type") == "permission_resolved" and payload.get("requestId") == call_id:
            found.append(note)
    other.notes.clear()
    return found


def run(rounds: int = ROUNDS) -> list[Figure]:
    home = Path(tempfile.mkdtemp(prefix="roost-races-"))
    daemon = RunningDaemon(home / "home")
    try:
        with script.scripted_model_in_thread() as model:
            daemon.configure(CONFIG.format(base_url=model.base_url))
            daemon.start()
            caught = resume_at_random(daemon.socket, model, rounds)
            first = decide_at_once(daemon.socket, model, home, rounds)
    finally:
        daemon.close_clients()
        if daemon.guard is not None:
            daemon.stop()
        shutil.rmtree(home, ignore_errors=True)
    who = ", ".join(f"{count} by a {door} client" for door, count in first.items())
    return [
        Figure(
            f"resumes at random moments, {caught} of them in a running turn", f"{rounds}", met=True
        ),
        Figure(f"approvals decided from both doors at once, first {who}", f"{rounds}", met=True),
    ]
