"""Large threads through `roost app-server`, whose clients read lines of at most 64 KiB."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.commands import command, environ

if TYPE_CHECKING:
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
