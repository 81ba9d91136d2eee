"""Commands that write or are written to more than anybody takes: the right answer, flat memory, and no process left."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.exec import (
    STREAMED,
    below,
    deltas,
    output,
    run,
    shell,
    start,
    wait_output,
)
from tests.support.left_behind import none_left_behind
from tests.support.scenarios import brief, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.daemon import Client, Json
    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
GIB = 1024 * MIB
MUCH = 256 * MIB
MOST_MEMORY = 64 * MIB
LOOK_EVERY = 500
UNLIMITED: Json = {"disableOutputCap": True, "disableTimeout": True}
NOT_ACTIVE = 'no active commandExec session for process id "p"'
NOT_READING = "stty raw -echo; trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done"


@pytest.fixture(scope="module", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    with none_left_behind():
        yield


def test_a_flood_of_1_gib_is_taken_and_cut_at_the_cap(
    client: Client, shared: RunningDaemon
) -> None:
    answer = run(client, "head", "-c", str(GIB), "/dev/zero", disableTimeout=True)
    assert answer["exitCode"] == 0
    assert answer["stdout"] == "\0" * MIB
    assert answer["stdoutTruncated"] is True
    assert below(shared) == []
    script = f"head -c {GIB} /dev/zero; echo over >&2; exit 5"
    streamed = shell(client, script, disableTimeout=True, **STREAMED)
    assert (streamed["exitCode"], streamed["stdoutTruncated"]) == (5, True)
    assert output(client) == bytes(MIB)
    assert output(client, stream="stderr") == b"over\n"
    assert [delta["capReached"] for delta in deltas(client)][-2:] == [True, False]
    assert below(shared) == []


def test_a_flood_comes_whole_to_a_client_that_reads_and_is_kept_nowhere(
    client: Client, shared: RunningDaemon
) -> None:
    number = start(client, "head", "-c", str(MUCH), "/dev/zero", **STREAMED, **UNLIMITED)
    total, memory, count = 0, 0, 0
    while number not in client.answers:
        message = client.read()
        if "method" not in message:
            client.take(message)
            continue
        params: Json = message["params"]  # type: ignore[assignment]
        data = base64.b64decode(str(params["deltaBase64"]))
        assert not data.strip(b"\0")
        total += len(data)
        count += 1
        if count % LOOK_EVERY == 0:
            memory = max(memory, psutil.Process(shared.pid("commands")).memory_info().rss)
    assert client.answer(number) == {"exitCode": 0, "stdout": "", "stderr": ""}
    assert total == MUCH
    assert 0 < memory < MOST_MEMORY
    assert below(shared) == []


@pytest.mark.parametrize("stop", ["terminate", "cancel", "close"])
def test_a_flood_without_an_end_is_ended(client: Client, shared: RunningDaemon, stop: str) -> None:
    number = start(client, "sh", "-c", "yes & yes >&2", **STREAMED, **UNLIMITED)
    wait_output(client, b"y\n")
    if stop == "close":
        client.close()
    elif stop == "cancel":
        client.call("request.cancel", requestId=number)
        assert brief(refusal(client, number))[1] == "REQUEST_CANCELLED"
    else:
        client.call("commandExec.terminate", processId="p")
        assert client.answer(number)["exitCode"] == -1
        assert below(shared) == []


def test_a_new_size_and_the_end_do_not_wait_for_input_that_nobody_reads(client: Client) -> None:
    number = start(client, "sh", "-c", NOT_READING, tty=True, processId="p", **UNLIMITED)
    wait_output(client, b"ready")
    delta = base64.b64encode(b"x" * 900_000).decode()
    writes = [client.send("commandExec.write", processId="p", deltaBase64=delta) for _ in range(4)]
    for rows in (7, 8):
        size = {"rows": rows, "cols": 91}
        assert client.call("commandExec.resize", processId="p", size=size) == {}
        wait_output(client, f"{rows} 91".encode())
    assert not set(writes[1:]) & client.answers.keys()
    assert client.call("commandExec.terminate", processId="p") == {}
    assert client.answer(number)["exitCode"] == -1
    assert client.answer(writes[0]) == {}
    for write in writes[1:]:
        while write not in client.answers:
            client.take(client.read())
        # What an ended program does not take is dropped, until its end is known.
        if "error" in client.answers[write]:
            assert brief(refusal(client, write)) == (-32602, "INVALID_ARGUMENT", NOT_ACTIVE)
