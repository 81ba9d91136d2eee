"""Commands of clients over a real daemon: all kinds of programs, many at once, and what happens when something dies."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.daemon import RunningDaemon, daemon_in, eventually
from tests.support.exec import (
    STREAMED,
    below,
    deltas,
    output,
    run,
    shell,
    start,
    wait_none_left,
    wait_output,
    write,
)
from tests.support.left_behind import none_left_behind
from tests.support.scenarios import brief, refusal, request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow

FOREVER = "trap '' TERM HUP; while :; do sleep 1; done"
UNLIMITED: Json = {"disableOutputCap": True, "disableTimeout": True}


@pytest.fixture(scope="module", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Looked at once a module, since its daemon goes on from test to test; `client` looks for what commands left."""
    with none_left_behind():
        yield


def test_a_program_may_write_nothing(client: Client) -> None:
    assert run(client, "true") == {"exitCode": 0, "stdout": "", "stderr": ""}
    assert run(client, "false", **STREAMED) == {"exitCode": 1, "stdout": "", "stderr": ""}
    assert deltas(client) == []


def test_a_program_may_close_its_output_and_live(client: Client) -> None:
    for params in ({}, STREAMED):
        answer = shell(client, "echo one; exec >&- 2>&-; sleep 0.2; exit 3", **params)
        assert answer["exitCode"] == 3
    assert output(client) == b"one\n"


def test_a_program_that_needs_a_terminal_has_none_unless_it_is_asked_for(client: Client) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && test -w /dev/tty && ps -o stat= -p $$"
    assert shell(client, script)["exitCode"] != 0
    assert shell(client, script, tty=True, processId="p")["exitCode"] == 0
    assert b"+" in output(client)  # in the foreground of its terminal


def test_ctrl_c_typed_into_a_terminal_interrupts_the_program(client: Client) -> None:
    # A shell may lose the signal between its own fork and exec.
    number = start(client, "cat", tty=True, processId="p")
    write(client, b"up\n")
    wait_output(client, b"up\r\nup")
    write(client, b"\x03")
    assert client.answer(number)["signal"] == "SIGINT"


def test_bytes_pass_unchanged_in_both_directions(client: Client) -> None:
    number = start(client, "cat", streamStdin=True, **STREAMED)
    data = os.urandom(3_000_000)
    for size in (0, 1, 1_048_576):
        write(client, data[:size])
    write(client, data, closeStdin=True)
    client.answer(number)
    expected = data[:1] + data[:1_048_576] + data
    assert output(client) == expected[:1_048_576]


def test_a_client_that_reads_gets_each_byte_as_it_is_written(client: Client) -> None:
    number = start(client, "cat", streamStdin=True, **STREAMED)
    for byte in (b"a", b"b", b"c"):
        write(client, byte)
        wait_output(client, byte)
    client.call("commandExec.write", processId="p", closeStdin=True)
    client.answer(number)
    assert len(deltas(client)) == 3


def test_much_output_comes_whole_in_order_and_before_the_answer(client: Client) -> None:
    size = 40_000_000
    program = (
        "import hashlib,os,sys; data=os.urandom(1<<20); h=hashlib.sha256(); n=0\n"
        f"while n<{size}: part=data[n%7919:n%7919+65521]; os.write(1,part); h.update(part); n+=65521\n"
        "os.write(2,h.hexdigest().encode())"
    )
    number = start(client, sys.executable, "-c", program, **STREAMED, **UNLIMITED)
    found, error = hashlib.sha256(), b""
    while number not in client.answers:
        message = client.read()
        if "method" not in message:
            client.take(message)
            continue
        params: Json = message["params"]  # type: ignore[assignment]
        data = base64.b64decode(str(params["deltaBase64"]))
        assert 0 < len(data) <= 65_536
        if params["stream"] == "stdout":
            found.update(data)
        else:
            error += data
    assert client.answer(number)["exitCode"] == 0
    assert found.hexdigest().encode() == error


def test_a_terminal_may_be_resized_while_it_writes(client: Client) -> None:
    script = "trap 'n=$((n+1))' WINCH; while [ \"${n:-0}\" -lt 1 ]; do seq 1 500; done; stty size"
    number = start(client, "sh", "-c", script, tty=True, processId="p", **UNLIMITED)
    wait_output(client, b"500")
    client.call("commandExec.resize", processId="p", size={"rows": 7, "cols": 91})
    assert client.answer(number)["exitCode"] == 0
    assert output(client).endswith(b"7 91\r\n")


def test_64_at_once_are_answered_each_with_its_own(shared: RunningDaemon) -> None:
    clients = [shared.client() for _ in range(2)]
    numbers: list[tuple[Client, str, int]] = []
    for client in clients:
        for n in range(32):
            script = f"echo {n}; read word; echo $word; exit {n}"
            params = {"streamStdin": True, "streamStdoutStderr": True, "processId": f"p{n}"}
            numbers.append((client, f"p{n}", start(client, "sh", "-c", script, **params)))
    assert len(numbers) == 64
    for client, process_id, _ in numbers:
        wait_output(client, b"\n", process_id)
    assert len(below(shared)) == 64
    for client, process_id, _ in numbers:
        write(client, process_id.encode() + b"\n", process_id)
    for at, (client, process_id, number) in enumerate(numbers):
        assert client.answer(number)["exitCode"] == at % 32
        assert output(client, process_id) == f"{at % 32}\n{process_id}\n".encode()
    wait_none_left(shared)


def test_what_is_asked_behind_a_start_in_one_write_is_done_after_it(client: Client) -> None:
    delta = base64.b64encode(b"hello\n").decode()
    policy = {"type": "dangerFullAccess"}
    client.sock.sendall(
        request(
            "start",
            "commandExec.start",
            command=["cat"],
            streamStdin=True,
            sandboxPolicy=policy,
            **STREAMED,
        )
        + request("write", "commandExec.write", processId="p", deltaBase64=delta)
        + request("close", "commandExec.write", processId="p", closeStdin=True)
        + request("ping", "health.ping")
    )
    order: list[object] = []
    while "start" not in order:
        message = client.read()
        client.take(message)
        order.append(message.get("id", "output"))
    assert order[-1] == "start"
    assert order.index("write") < order.index("close")
    assert client.answers["start"]["result"] == {"exitCode": 0, "stdout": "", "stderr": ""}
    assert output(client) == b"hello\n"


def test_a_start_terminated_in_the_same_write_ends(client: Client) -> None:
    policy = {"type": "dangerFullAccess"}
    client.sock.sendall(
        request(
            "start", "commandExec.start", command=["sleep", "100"], sandboxPolicy=policy, **STREAMED
        )
        + request("stop", "commandExec.terminate", processId="p")
    )
    while "start" not in client.answers:
        client.take(client.read())
    assert client.answers["stop"]["result"] == {}
    assert client.answers["start"]["result"]["exitCode"] == -1  # type: ignore[index]


def test_when_the_service_is_killed_each_owner_gets_an_answer_and_no_process_is_left(
    shared: RunningDaemon, client: Client
) -> None:
    clients = [shared.client(), client]
    plain = start(clients[0], "sh", "-c", FOREVER)
    other = FOREVER.replace("'", '"')
    script = f"setsid sh -c '{other}' & echo up; {FOREVER}"
    streamed = start(client, "sh", "-c", script, streamStdin=True, **STREAMED)
    wait_output(client, b"up")
    eventually(lambda: len(below(shared)) >= 4)
    left = below(shared)
    service = shared.kill("commands")
    for one, number in zip(clients, (plain, streamed), strict=True):
        error = refusal(one, number)
        assert brief(error)[:2] == (-32603, "INTERNAL")
        assert "commands service" in str(error["message"])
    eventually(lambda: not any(map(_is_alive, left)))
    shared.restarted("commands", service)
    assert shell(client, "echo again", **STREAMED)["exitCode"] == 0
    assert output(client).endswith(b"again\n")


def test_when_the_front_is_killed_commands_end_with_their_connections(
    shared: RunningDaemon,
) -> None:
    start(shared.client(), "sh", "-c", FOREVER)
    eventually(lambda: below(shared))
    left = below(shared)
    shared.kill("front")
    eventually(lambda: not any(map(_is_alive, left)))
    again = eventually(lambda: _reconnect(shared))
    assert run(again, "true")["exitCode"] == 0  # type: ignore[arg-type]


def test_when_root_is_killed_no_process_is_left(home: Path) -> None:
    with daemon_in(home) as daemon:
        assert not daemon.pid("commands")  # it starts at its first use
        client = daemon.client()
        start(client, "sh", "-c", f"setsid sleep 1000 & {FOREVER}")
        eventually(lambda: len(below(daemon)) >= 3)
        left = [*daemon.processes()]
        os.kill(daemon.root_pid, signal.SIGKILL)
        assert daemon.wait() != 0
        assert not any(map(_is_alive, left))


def _reconnect(daemon: RunningDaemon) -> Client | None:
    try:
        return daemon.client()
    except OSError:
        return None


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
