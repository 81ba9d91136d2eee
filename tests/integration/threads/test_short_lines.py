"""Large threads through `roost app-server`, whose clients read lines of at most 64 KiB."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, cast

import pytest

from roost.actors.front.thread_answers import LEAST_LINE
from tests.support import scripted_model as script
from tests.support.commands import command, environ
from tests.support.turn_client import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import IOBase
    from pathlib import Path

    from bench.daemon import Json
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.turn_client import TurnClient

pytestmark = pytest.mark.slow

SAID = "x" * 6_000


def test_a_large_thread_comes_in_short_lines(
    client: TurnClient, model: ScriptedModel, daemon: RunningDaemon
) -> None:
    model.play(script.says("ok"))
    thread = client.thread()
    for _ in range(24):
        client.completed(client.begin(thread, SAID))
    greeting = {"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "t"}}}
    process = subprocess.Popen(
        command(daemon.home, "app-server"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ(),
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(greeting).encode() + b"\n")
        process.stdin.flush()
        lengths = [len(process.stdout.readline())]
        found: list[Json] = []
        more, method = True, "thread/resume"
        while more:
            params: Json = {"threadId": thread}
            if found:
                params["afterItemId"] = found[-1]["id"]
            request = {"id": len(lengths), "method": method, "params": params}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            lengths.append(len(line))
            result: Json = json.loads(line)["result"]
            found += cast("list[Json]", result["items"])
            more, method = bool(result.get("hasMore")), "thread/read"
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0
    assert found == client.items(thread)
    assert len(found) == 48
    assert len(lengths) > 3
    assert max(lengths) < 64 * 1024


class Spawned:
    """A client of `roost app-server` that cannot read a line of more than 64 KiB."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self.process = subprocess.Popen(
            command(daemon.home, "app-server"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ(),
        )
        self.heard: list[Json] = []
        self._number = 0
        self.call("initialize", clientInfo={"name": "t"}, capabilities=None)

    def read(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline(LONGEST + 1)
        assert len(line) <= LONGEST
        message: Json = json.loads(line)
        self.heard.append(message)
        return message

    def call(self, method: str, **params: object) -> Json:
        assert self.process.stdin is not None
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return inside(self.until(lambda m: m.get("id") == self._number), "result")

    def until(self, claim: Callable[[Json], object]) -> Json:
        while not claim(message := self.read()):
            assert message.get("method") != "turn/completed", message
        return message

    def told(self, method: str) -> list[Json]:
        return [inside(one, "params") for one in self.heard if one.get("method") == method]

    def close(self) -> None:
        with self.process as process:
            assert process.stdin is not None
            process.stdin.close()


LONGEST = 64 * 1024


@pytest.fixture
def spawned(daemon: RunningDaemon) -> Iterator[Spawned]:
    client = Spawned(daemon)
    yield client
    client.close()


def test_what_is_too_long_for_a_line_is_cut_and_says_so(
    spawned: Spawned, client: TurnClient, model: ScriptedModel
) -> None:
    said, piece = "said " * 14_000, "answered " * 1_000
    answer = piece * 20
    model.play(script.says(*[piece] * 20))
    thread = str(inside(spawned.call("thread/start", title="t" * 65_000), "thread")["id"])
    turn = inside(spawned.call("turn/start", threadId=thread, input=[{"text": said}]), "turn")
    spawned.until(lambda m: m.get("method") == "turn/completed")

    for shown in [turn, *(inside(p, "turn") for p in spawned.told("turn/started"))]:
        assert shown["truncated"] is True
        assert said.startswith(str(cast("list[Json]", shown["input"])[0]["text"])[:-1])
    items = [inside(params, "item") for params in spawned.told("item/completed")]
    assert [item["truncated"] for item in items] == [True, True]
    deltas = [str(params["delta"]) for params in spawned.told("item/agentMessage/delta")]
    assert "".join(deltas) == answer
    read = [spawned.call("thread/read", threadId=thread)]
    while read[-1].get("hasMore"):
        last = cast("list[Json]", read[-1]["items"])[-1]["id"]
        read.append(spawned.call("thread/read", threadId=thread, afterItemId=last))
    found = [item for page in read for item in cast("list[Json]", page["items"])]
    whole = client.items(thread)
    assert [item["id"] for item in found] == [item["id"] for item in whole]
    assert [page.get("cursor") for page in read[:2]] == [item["id"] for item in whole]
    assert inside(read[0], "thread")["truncated"] is True
    assert [inside(item, "content")["text"] for item in whole] == [said, answer]


def test_a_decision_on_a_call_with_long_arguments_can_be_made(
    spawned: Spawned, model: ScriptedModel, tmp_path: Path
) -> None:
    content = "x" * 65_000
    call = json.dumps({"path": "long.txt", "content": content})
    model.play(script.calls("write_file", call), script.says("done"))
    thread = str(inside(spawned.call("thread/start", cwd=str(tmp_path)), "thread")["id"])
    spawned.call("turn/start", threadId=thread, input=[{"text": "go"}])
    asked = spawned.until(lambda m: m.get("method") == "approval/request")
    params = inside(asked, "params")
    assert params["truncated"] is True
    assert inside(params, "arguments")["path"] == "long.txt"
    again = spawned.call("thread/resume", threadId=thread)
    assert inside(again, "activeTurn")["status"] == "running"
    names = {"threadId": thread, "turnId": params["turnId"], "requestId": params["requestId"]}
    spawned.call("approval/resolve", **names, decision="allow")
    spawned.until(lambda m: m.get("method") == "turn/completed")
    assert (tmp_path / "long.txt").read_text() == content


def test_threads_with_long_titles_are_listed_in_short_lines(spawned: Spawned) -> None:
    for _ in range(2):
        spawned.call("thread/start", title="\n" * 60_000)
    page = spawned.call("thread/list", limit=2)
    (thread,) = cast("list[Json]", page["threads"])
    assert thread["truncated"] is True
    assert spawned.call("thread/list", limit=1, offset=1)["threads"] != [thread]


def test_no_line_is_longer_than_a_client_asks(
    connect: Callable[..., TurnClient], model: ScriptedModel
) -> None:
    client = connect(experimentalApi=True, **{"roost.lineBytes": 1})
    lengths: list[int] = []
    client.file = Measured(client.file, lengths)  # type: ignore[assignment]
    model.play(script.says(*['\n"é' * 5_000] * 4))
    thread = client.thread(title="\x01" * 10_000)
    turn = client.begin(thread, *["x"] * 10_000)
    assert client.completed(turn)["status"] == "completed"
    client.call("thread/resume", threadId=thread)
    client.call("thread/list", limit=3)
    client.call("model/list")
    client.refused("thread/read", threadId="\n" * 20_000)
    client.refused("turn/steer", threadId=thread, turnId="u" * 20_000, input=[{"text": "x"}])
    client.refused("no/such/" + "\n" * 20_000)
    assert client.refused("schema/export")["code"] == -32603
    assert [item["type"] for item in client.items(thread)] == ["userMessage", "agentMessage"]
    assert max(lengths) <= LEAST_LINE
    assert max(lengths) > LEAST_LINE - 1_024


class Measured:
    """A file whose lines are measured."""

    def __init__(self, file: IOBase, lengths: list[int]) -> None:
        self._file = file
        self._lengths = lengths

    def readline(self) -> bytes:
        line = self._file.readline()
        self._lengths.append(len(line))
        return line

    def close(self) -> None:
        self._file.close()
