"""`roost app-server` as any program spawns it: the handshake and one turn on standard input and output, message by message."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.integration.threads.test_spec_3_1_handshake import SERVED
from tests.support import scripted_model as script
from tests.support.commands import command, environ
from tests.support.thread_examples import (
    USED,
    accepted,
    begins,
    decides,
    ended,
    ends,
    message,
    refusal,
    speaks,
    status,
    tells,
    waits,
)
from tests.support.thread_steps import starts
from tests.support.thread_walk import Walk

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_walk import Json

pytestmark = pytest.mark.slow

DESK: Json = {"clientInfo": {"name": "desk"}, "capabilities": {}}


@contextmanager
def app_server(daemon: RunningDaemon) -> Generator[Walk]:
    """Run the command; when its standard input has ended it has to end well, having said nothing more."""
    process = subprocess.Popen(
        command(daemon.home, "app-server", "--listen", "stdio://"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(),
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        try:
            yield Walk(process.stdin.write, process.stdout.readline)
            process.stdin.close()
            assert process.stdout.read() == b""
            assert process.stderr.read() == b""
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0


def greets(walk: Walk) -> None:
    """Go through the handshake as T 3.1 and 3.2 show it, with a request that comes too early."""
    walk.says({"id": 0, "method": "thread/list"})
    walk.expect(refusal(0, -32010, "Not initialized"))
    walk.says({"id": 1, "method": "initialize", "params": DESK})
    walk.expect({"id": 1, "result": SERVED})
    walk.says({"id": 2, "method": "initialize", "params": DESK})
    walk.expect(refusal(2, -32011, "Already initialized"))
    walk.says({"method": "initialized"})


def begin(walk: Walk, said: str) -> None:
    """Start a turn and hear that it was accepted."""
    params: Json = {"threadId": "th_a", "input": [{"type": "text", "text": said}]}
    walk.says({"id": 7, "method": "turn/start", "params": params})
    walk.expect({"id": 7, "result": accepted("tn_a", said)}, *begins("tn_a", said, 2))


def test_spec_3_8_one_turn_on_stdio(daemon: RunningDaemon, model: ScriptedModel) -> None:
    """T 3.1, 3.2, 3.3 and 3.8, the examples in a row."""
    model.play(script.says("Done."))
    with app_server(daemon) as walk:
        greets(walk)
        starts(walk, title="Tidy docs", cwd="/tmp")
        begin(walk, "List the headings")
        walk.expect(*speaks("tn_a", "Done.", 4, 5))
        done = ended("tn_a", "List the headings", 2, 5, status="completed", tokenUsage=USED)
        walk.expect(*ends(done, 5))


def test_spec_3_9_an_interrupt_on_stdio(daemon: RunningDaemon, model: ScriptedModel) -> None:
    """T 3.9 and 3.7, the examples in a row: notifications come as they happen, not with the next line."""
    model.play(script.silent_after(script.delta(content="so far")))
    with app_server(daemon) as walk:
        greets(walk)
        starts(walk)
        begin(walk, "go")
        walk.expect(*speaks("tn_a", "so far", 4, 4)[:2])
        params = {"threadId": "th_a", "turnId": "tn_a"}
        walk.says({"id": 8, "method": "turn/interrupt", "params": params})
        walk.expect(
            {"id": 8, "result": {}},
            status(5, "tn_a", "cancelling"),
            tells("completed", message(4, 6, "tn_a", "so far", "interrupted"), 6),
            *ends(ended("tn_a", "go", 2, 6, status="interrupted"), 6),
        )
        walk.says({"id": 9, "method": "thread/archive", "params": {"threadId": "th_a"}})
        walk.expect({"id": 9, "result": {}})
        walk.until("thread/archived")
        walk.until("thread/status/changed")


def test_spec_4_3_a_decision_on_stdio(
    daemon: RunningDaemon, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 4.3: the request of the server is a line like any other, and so is the answer to it."""
    model.play(script.calls("write_file", '{"path":"a.md","content":"x"}'), script.says("Done."))
    with app_server(daemon) as walk:
        greets(walk)
        starts(walk, cwd=str(tmp_path))
        begin(walk, "go")
        walk.expect(*waits("tn_a", 4, 5))
        walk.says({"id": "apr_e5", "result": {"decision": "allow"}})
        walk.expect(*decides("tn_a", 5, 6, "allow"))
        walk.until("turn/completed")
    assert (tmp_path / "a.md").read_text() == "x"


def test_spec_1_1_lines_that_are_wrong_do_not_end_it(daemon: RunningDaemon) -> None:
    """T 1.1: the next line is read."""
    with app_server(daemon) as walk:
        greets(walk)
        walk.says(b"{nonsense\n\n   ")
        walk.expect(refusal(None, -32700, "invalid JSON"))
        starts(walk)
