"""Commands of clients: what they may ask for, what they get back, and what is left of them (nothing)."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from bench.daemon import Refusal
from tests.support.daemon import RunningDaemon, daemon_in, eventually
from tests.support.exec import (
    FULL,
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
from tests.support.scenarios import brief, refusal, refused, request, web_socket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow

START = "commandExec.start"
MUCH = 8 * 1024 * 1024
PLAIN = ("sandbox.backend=none", "commands.timeout=0.3", "commands.parallel=3")
WRONG = (-32602, "INVALID_ARGUMENT")


@pytest.fixture(scope="module")
def shared(shared_home: Path, settings: tuple[str, ...]) -> Iterator[RunningDaemon]:
    """A daemon whose own environment has secrets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_API_KEY", "secret")
        patch.setenv("SSH_AUTH_SOCK", "/nowhere")
        patch.setenv("PLAIN", "plain")
        with daemon_in(shared_home, *settings) as running:
            yield running


@pytest.fixture
def client(shared: RunningDaemon) -> Iterator[Client]:
    """A connection to the module's daemon; at the end nothing of its commands may be left."""
    found = shared.client()
    yield found
    found.close()
    wait_none_left(shared)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, f"{START} requires command"),
        ({"command": [" "]}, f"{START} param 'command[0]' must be a non-empty string"),
        ({"command": ["a"], "processId": " "}, f"{START} requires processId"),
        ({"command": ["a"], "tty": 1}, f"{START} param 'tty' must be a boolean"),
        ({"command": ["a"], "cwd": "x", **FULL}, f'{START} cwd must be an absolute path (got "x")'),
        (
            {"command": ["a"], "tty": True},
            f"{START} tty or streaming requires a client-supplied processId",
        ),
        (
            {"command": ["a"]},
            f"[sandbox_surface_uncovered] {START} requires an explicit permissionProfile or sandboxPolicy",
        ),
        (
            {"command": ["a"], "sandboxPolicy": {"type": "none"}},
            f'{START} unsupported sandboxPolicy type: "none"',
        ),
        (
            {"command": ["a"], "permissionProfile": {"id": ":none"}},
            f'{START} unsupported permissionProfile: ":none"',
        ),
    ],
)
def test_scenario_38_each_rule_for_the_params_has_its_own_words(
    client: Client, params: Json, text: str
) -> None:
    assert brief(refused(client, START, **params)) == (*WRONG, text)


def test_scenario_38_an_id_is_taken_until_its_command_has_been_answered(
    client: Client, shared: RunningDaemon
) -> None:
    first = start(client, "cat", streamStdin=True, **STREAMED)
    text = 'duplicate active commandExec process id: "p"'
    assert brief(refusal(client, start(client, "true", **STREAMED))) == (*WRONG, text)
    other = shared.client()
    assert run(other, "true", **STREAMED)["exitCode"] == 0
    client.call("commandExec.write", processId="p", closeStdin=True)
    client.answer(first)
    assert run(client, "true", **STREAMED)["exitCode"] == 0


def test_scenario_38_a_program_that_cannot_be_started_is_an_error_and_frees_its_id(
    client: Client,
) -> None:
    text = "failed to spawn command: No such file or directory"
    for params in ({}, STREAMED, {"processId": "p", "tty": True}):
        error = refusal(client, start(client, "no-such-program", **params))
        assert brief(error) == (-32603, "INTERNAL", text)
    assert [(delta["stream"], delta["capReached"]) for delta in deltas(client)] == [
        ("stderr", False),
        ("stderr", False),
    ]
    assert output(client, stream="stderr") == text.encode() * 2
    assert run(client, "true", **STREAMED) == {"exitCode": 0, "stdout": "", "stderr": ""}


def test_scenario_38_an_answer_has_exit_code_and_both_texts(client: Client) -> None:
    answer = shell(client, r"printf 'out\377'; printf 'err' >&2; exit 3")
    assert answer == {"exitCode": 3, "stdout": "out\ufffd", "stderr": "err"}
    assert shell(client, "kill -TERM $$")["exitCode"] == -1
    assert shell(client, "kill -TERM $$")["signal"] == "SIGTERM"


@pytest.mark.parametrize(
    ("cap", "out", "truncated", "reached"),
    [
        (0, b"", True, True),
        (1, b"a", True, True),
        (3, b"abc", False, True),
        (4, b"abc", False, False),
    ],
)
def test_scenario_39_each_stream_has_its_cap(
    client: Client, cap: int, out: bytes, truncated: bool, reached: bool
) -> None:
    script = "printf abc; printf xyz >&2"
    answer = shell(client, script, outputBytesCap=cap)
    assert (answer["stdout"], answer["stderr"]) == (out.decode(), "xyz"[:cap])
    assert answer.get("stdoutTruncated", False) is truncated
    assert answer.get("stderrTruncated", False) is truncated
    shell(client, script, outputBytesCap=cap, **STREAMED)
    assert output(client) == out
    last = [delta for delta in deltas(client) if delta["stream"] == "stdout"][-1]
    assert last["capReached"] is reached


def test_scenario_39_by_itself_a_cap_is_1_mib_and_may_be_disabled(client: Client) -> None:
    script = "head -c 1048577 /dev/zero | tr '\\0' x; printf more >&2"
    answer = shell(client, script)
    assert len(str(answer["stdout"])) == 1_048_576
    assert answer["stdoutTruncated"] is True
    assert answer["stderr"] == "more"
    whole = shell(client, script, disableOutputCap=True)
    assert len(str(whole["stdout"])) == 1_048_577
    assert "stdoutTruncated" not in whole
    shell(client, script, disableOutputCap=True, **STREAMED)
    assert output(client) == b"x" * 1_048_577
    assert not any(delta["capReached"] for delta in deltas(client))


def test_scenario_39_a_command_goes_on_beyond_its_cap(client: Client) -> None:
    answer = shell(client, "head -c 3000000 /dev/zero; echo done >&2; exit 4", outputBytesCap=5)
    assert (answer["exitCode"], answer["stderr"]) == (4, "done\n")


def test_scenario_40_a_time_limit_ends_a_command_with_124(client: Client) -> None:
    answer = shell(client, "printf before; sleep 100", timeoutMs=200)
    assert (answer["exitCode"], answer["stdout"], answer["timedOut"]) == (124, "before", True)
    assert run(client, "sleep", "100", timeoutMs=0)["exitCode"] == 124
    assert run(client, "sleep", "0.01", disableTimeout=True)["exitCode"] == 0


def test_scenario_40_by_itself_the_limit_is_that_of_the_settings(plain: RunningDaemon) -> None:
    client = plain.client()
    assert run(client, "sleep", "100")["exitCode"] == 124
    assert run(client, "sleep", "0.4", disableTimeout=True)["exitCode"] == 0


def test_scenario_41_input_is_read_to_its_end(client: Client) -> None:
    number = start(client, "cat", streamStdin=True, disableOutputCap=True, **STREAMED)
    data = os.urandom(1024 * 1024)
    for piece in (b"", b"\n", data, b"\xff"):
        assert write(client, piece) == {}
    assert write(client, b"end", closeStdin=True) == {}
    client.answer(number)
    assert output(client) == b"\n" + data + b"\xffend"


def test_scenario_41_a_write_is_checked_before_it_is_done(client: Client) -> None:
    ended = 'no active commandExec session for process id "p"'
    method = "commandExec.write"
    assert brief(refused(client, method, processId=" ")) == (*WRONG, f"{method} requires processId")
    nothing = f"{method} requires deltaBase64 or closeStdin"
    assert brief(refused(client, method, processId="p")) == (*WRONG, nothing)
    for wrong in ("a", "YQ", "YQ=", "Y Q=", "YQ==\n", "_-8=", "ä"):
        error = refused(client, method, processId="p", deltaBase64=wrong)
        assert brief(error) == (*WRONG, "invalid deltaBase64")
    assert brief(refused(client, method, processId="p", deltaBase64="")) == (*WRONG, ended)
    plain = start(client, "sleep", "100", **STREAMED)
    error = refused(client, method, processId="p", deltaBase64="")
    assert brief(error) == (*WRONG, "stdin streaming is not enabled for this commandExec session")
    client.call("commandExec.terminate", processId="p")
    client.answer(plain)
    number = start(client, "sh", "-c", "cat; sleep 100", streamStdin=True, **STREAMED)
    write(client, b"x", closeStdin=True)
    assert client.call("commandExec.write", processId="p", closeStdin=True) == {}
    error = refused(client, method, processId="p", deltaBase64="eA==")
    assert brief(error) == (*WRONG, "stdin is already closed")
    client.call("commandExec.terminate", processId="p")
    client.answer(number)
    assert brief(refused(client, method, processId="p", deltaBase64="")) == (*WRONG, ended)


def test_scenario_41_a_write_waits_for_a_program_that_does_not_read(client: Client) -> None:
    number = start(
        client, "sh", "-c", "read line; sleep 0.2; cat | wc -c", streamStdin=True, **STREAMED
    )
    piece = base64.b64encode(b"\n" + b"x" * 999_999).decode()
    writes = [client.send("commandExec.write", processId="p", deltaBase64=piece) for _ in range(4)]
    for one in writes:
        assert client.answer(one) == {}
    client.call("commandExec.write", processId="p", closeStdin=True)
    client.answer(number)
    assert output(client).strip() == b"3999999"


def test_scenario_42_a_terminal_takes_and_gives_raw_bytes(client: Client) -> None:
    script = "stty raw -echo; printf ready; head -c 256 | od -An -v -tx1 | tr -d ' \\n'"
    number = start(client, "sh", "-c", script, tty=True, processId="p")
    wait_output(client, b"ready")
    write(client, bytes(range(256)))
    client.answer(number)
    assert output(client) == b"ready" + bytes(range(256)).hex().encode()
    assert {delta["stream"] for delta in deltas(client)} == {"stdout"}


def test_scenario_42_a_program_sees_its_terminal_and_every_new_size(client: Client) -> None:
    script = (
        "tty -s && printf '%s ' $TERM; stty size; trap 'stty size; exit 5' WINCH; echo ready;"
        " while :; do sleep 0.02; done"
    )
    number = start(client, "sh", "-c", script, tty=True, processId="p")
    wait_output(client, b"ready")
    size = {"rows": 51, "cols": 132}
    assert client.call("commandExec.resize", processId="p", size=size) == {}
    assert client.answer(number)["exitCode"] == 5
    assert output(client).split() == [b"xterm-256color", b"24", b"80", b"ready", b"51", b"132"]
    sized = start(client, "stty", "size", tty=True, processId="q", size=size)
    client.answer(sized)
    assert output(client, "q").split() == [b"51", b"132"]


def test_scenario_42_closing_the_input_of_a_terminal_types_end_of_transmission(
    client: Client,
) -> None:
    number = start(client, "sh", "-c", "cat; echo over", tty=True, processId="p")
    write(client, b"line\n", closeStdin=True)
    assert client.answer(number)["exitCode"] == 0
    assert output(client).replace(b"\r", b"").endswith(b"line\nover\n")


def test_scenario_42_only_a_terminal_can_be_resized(client: Client) -> None:
    size = {"rows": 1, "cols": 1}
    error = refused(client, "commandExec.resize", processId="p", size=size)
    text = 'no active commandExec session for process id "p"'
    assert brief(error) == (*WRONG, text)
    number = start(client, "sleep", "100", **STREAMED)
    error = refused(client, "commandExec.resize", processId="p", size=size)
    assert brief(error) == (*WRONG, "commandExec.resize requires a PTY-backed session")
    for name in ("rows", "cols"):
        error = refused(client, "commandExec.resize", processId="p", size={**size, name: 65_536})
        assert brief(error)[:2] == WRONG
    client.call("commandExec.terminate", processId="p")
    client.answer(number)


def test_scenario_43_a_command_that_ignores_sigterm_is_killed(client: Client) -> None:
    number = start(
        client, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done", **STREAMED
    )
    wait_output(client, b"up")
    began = time.monotonic()
    assert client.call("commandExec.terminate", processId="p") == {}
    assert client.call("commandExec.terminate", processId="p") == {}
    answer = client.answer(number)
    assert time.monotonic() - began < 5
    assert (answer["exitCode"], answer["signal"]) == (-1, "SIGKILL")
    text = 'no active commandExec session for process id "p"'
    assert brief(refused(client, "commandExec.terminate", processId="p")) == (*WRONG, text)


def test_scenario_43_a_terminated_command_may_choose_its_exit_code(client: Client) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done"
    number = start(client, "sh", "-c", script, **STREAMED)
    wait_output(client, b"up")
    client.call("commandExec.terminate", processId="p")
    assert client.answer(number)["exitCode"] == 7
    assert output(client) == b"up\nbye\n"


def test_scenario_43_what_left_the_group_is_ended_with_its_command(
    client: Client, shared: RunningDaemon
) -> None:
    script = (
        "setsid sleep 1000 & setsid sh -c 'sleep 1000 >/dev/null 2>&1 &' ; echo started; exit 6"
    )
    began = time.monotonic()
    assert shell(client, script)["exitCode"] == 6
    assert time.monotonic() - began < 5
    assert not below(shared)


def all_gone(processes: list[psutil.Process]) -> bool:
    """Return whether none of them is there any more."""
    return not any(process.is_running() for process in processes)


def test_scenario_44_a_command_ends_with_its_connection(shared: RunningDaemon) -> None:
    for params in ({}, STREAMED, {"tty": True, "processId": "p"}):
        client = shared.client()
        start(client, "sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done", **params)
        eventually(lambda: below(shared))
        processes = below(shared)
        client.close()
        wait_none_left(shared)
        # What was looked at while it died may have been passed over.
        assert eventually(partial(all_gone, processes))


def test_scenario_44_a_command_ends_with_the_daemon(home: Path) -> None:
    with daemon_in(home) as daemon:
        client = daemon.client()
        number = start(client, "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
        eventually(lambda: below(daemon))
        left = below(daemon)
        assert daemon.guard is not None
        daemon.guard.send_signal(signal.SIGTERM)
        assert brief(refusal(client, number))[:2] == (-32000, "SHUTTING_DOWN")
        assert daemon.wait() == 0
        assert not any(psutil.pid_exists(process.pid) for process in left)


def test_scenario_45_secrets_of_the_daemon_are_not_in_the_environment(client: Client) -> None:
    env = {"PLAIN": None, "NEW": "new", "OTHER_TOKEN": "x", "HOME": "/elsewhere"}
    answer = run(client, "env", env=env)
    found = dict(line.split("=", 1) for line in str(answer["stdout"]).splitlines())
    assert "MY_API_KEY" not in found
    assert "SSH_AUTH_SOCK" not in found
    assert "OTHER_TOKEN" not in found
    assert "PLAIN" not in found
    assert (found["NEW"], found["HOME"]) == ("new", "/elsewhere")
    assert answer["droppedEnv"] == ["OTHER_TOKEN"]


def test_scenario_45_a_program_is_looked_up_in_the_path_of_its_own_environment(
    client: Client, tmp_path: Path
) -> None:
    program = tmp_path / "my-program"
    program.write_text('#!/bin/sh\necho "$0 $1"; pwd\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    answer = run(client, "my-program", "", env=env, cwd=str(tmp_path))
    assert answer["stdout"] == f"{program} \n{tmp_path}\n"
    assert run(client, "pwd", cwd="/")["stdout"] == "/\n"


def test_scenario_46_a_client_that_does_not_read_stops_the_program_and_nothing_else(
    client: Client, shared: RunningDaemon
) -> None:
    flood = "import os\nline = b'x' * 65536\nwhile True: os.write(1, line)"
    number = start(
        client, sys.executable, "-c", flood, disableOutputCap=True, **STREAMED, **NO_LIMIT
    )
    eventually(lambda: below(shared))
    (program,) = below(shared)
    eventually(lambda: program.status() == psutil.STATUS_SLEEPING and _written(program) > 100_000)
    written = eventually(lambda: _standing(program))
    assert int(str(written)) < MUCH
    other = shared.client()
    assert shell(other, "echo hello", **STREAMED)["exitCode"] == 0
    assert output(other) == b"hello\n"
    client.sock.sendall(request("stop", "commandExec.terminate", processId="p"))
    while "stop" not in client.answers:
        client.take(client.read())
    client.answer(number)
    found = output(client)
    assert set(found) == {ord("x")}
    assert len(found) < MUCH


@pytest.mark.parametrize(
    "policy",
    [
        {"sandboxPolicy": {"type": "readOnly"}},
        {"sandboxPolicy": {"kind": "workspace_write"}},
        {"permissionProfile": {"id": ":read-only"}},
        {"permissionProfile": {"id": ":workspace"}},
    ],
)
def test_scenario_47_without_a_sandbox_a_policy_that_needs_one_starts_nothing(
    plain: RunningDaemon, tmp_path: Path, policy: Json
) -> None:
    mark = tmp_path / "mark"
    error = refused(
        plain.client(), START, command=["touch", str(mark)], cwd=str(tmp_path), **policy
    )
    assert brief(error)[:2] == (-32000, "SANDBOX_UNAVAILABLE")
    assert str(error["message"]).startswith("[sandbox_required_unavailable]")
    assert not mark.exists()


def test_scenario_47_a_policy_that_confines_nothing_needs_no_sandbox(
    plain: RunningDaemon,
) -> None:
    client = plain.client()
    for policy in (
        {"sandboxPolicy": {"type": "externalSandbox", "networkAccess": "enabled"}},
        {"permissionProfile": {"id": ":danger-full-access"}},
    ):
        answer = client.call(START, command=["true"], disableTimeout=True, **policy)
        assert answer["exitCode"] == 0


@pytest.fixture(scope="module")
def plain() -> Iterator[RunningDaemon]:
    """A daemon that has no sandbox, and gives commands less time and room."""
    home = Path(tempfile.mkdtemp(prefix="roost-"))
    with daemon_in(home, *PLAIN) as running:
        yield running
    shutil.rmtree(home, ignore_errors=True)


def test_a_command_in_a_sandbox_writes_where_its_policy_says_and_nowhere_else(
    client: Client, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    script = f"echo x > {inside}/a; echo x > {outside}"
    policy: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
    params: Json = {"command": ["sh", "-c", script], "cwd": str(inside)}
    try:
        answer = client.call(START, sandboxPolicy=policy, **params)
    except Refusal as error:
        pytest.skip(f"there is no sandbox here: {error}")
    assert answer["exitCode"] != 0
    assert str(answer["sandbox"]).endswith(": workspaceWrite, no network")
    assert (inside / "a").exists()
    (inside / "a").unlink()
    answer = client.call(START, sandboxPolicy={"type": "readOnly"}, **params)
    assert answer["exitCode"] != 0
    assert answer["stderr"]
    assert not (inside / "a").exists()
    assert not outside.exists()


def test_a_command_works_over_a_web_socket_too(shared: RunningDaemon) -> None:
    cookie = (shared.home / "daemon.cookie").read_text().strip()
    with web_socket(shared.home) as socket:
        hello = request(1, "initialize", protocolVersion="1.0.0", authCookie=cookie)
        socket.send(hello.strip())
        assert "result" in socket.read()
        params = {"command": ["sh", "-c", "echo hello; exit 3"], **FULL, **STREAMED}
        socket.send(request("start", START, **params).strip())
        note = socket.read()
        assert note["method"] == "commandExec.outputDelta"
        assert base64.b64decode(str(note["params"]["deltaBase64"])) == b"hello\n"  # type: ignore[index]
        assert socket.read()["result"] == {"exitCode": 3, "stdout": "", "stderr": ""}


def test_one_command_too_many_is_refused_whoever_asks(plain: RunningDaemon) -> None:
    first, second = plain.client(), plain.client()
    numbers = [start(first, "sleep", "100", **NO_LIMIT) for _ in range(3)]
    eventually(lambda: len(below(plain)) == 3)
    error = refusal(second, start(second, "true"))
    assert brief(error) == (-32000, "OVERLOADED", "too many commands are running (at most 3)")
    first.call("request.cancel", requestId=numbers[0])
    eventually(lambda: len(below(plain)) == 2)
    assert run(second, "true")["exitCode"] == 0
    first.close()
    wait_none_left(plain)


def test_new_settings_hold_for_the_next_command(client: Client, shared: RunningDaemon) -> None:
    shared.configure("[commands]\noutput_bytes = 3\nkept_bytes = 5\n")
    client.call("daemon.reload")
    answer = shell(client, "echo 123456")
    assert (answer["stdout"], answer["stdoutTruncated"]) == ("123", True)
    assert shell(client, "echo 123456", disableOutputCap=True)["stdout"] == "12345"
    shared.configure("")
    client.call("daemon.reload")
    assert shell(client, "echo 123456")["stdout"] == "123456\n"


NO_LIMIT = {"disableTimeout": True}


def _written(program: psutil.Process) -> int:
    return int(program.io_counters().write_chars)


def _standing(program: psutil.Process) -> int:
    """Return how much the program has written once it writes no more."""
    samples = {_written(program)}
    for _ in range(4):
        time.sleep(0.1)
        samples.add(_written(program))
    return samples.pop() if len(samples) == 1 else 0


def test_scenario_46_its_output_goes_on_where_it_stood_when_it_reads_again(client: Client) -> None:
    script = "seq 1 400000"
    number = start(client, "sh", "-c", script, disableOutputCap=True, **STREAMED)
    expected = b"".join(b"%d\n" % n for n in range(1, 400_001))
    answer = client.answer(number)
    assert answer == {"exitCode": 0, "stdout": "", "stderr": ""}
    assert output(client) == expected
    assert len(deltas(client)) < 1_000


def test_scenario_10_a_cancelled_command_is_answered_once_and_ended(
    client: Client, shared: RunningDaemon
) -> None:
    number = start(client, "sh", "-c", "trap '' TERM; while :; do sleep 1; done", **STREAMED)
    eventually(lambda: below(shared))
    answer = client.call("request.cancel", requestId=number, reason="enough")
    assert answer == {"requestId": number, "cancelled": True, "reason": "enough"}
    with pytest.raises(Refusal) as caught:
        client.answer(number)
    assert brief(caught.value.args[0]) == (
        -32000,
        "REQUEST_CANCELLED",
        f"daemon request cancelled: {number}",
    )
    assert run(client, "true", **STREAMED)["exitCode"] == 0
    wait_none_left(shared)
    client.call("health.ping")
    assert not client.answers


def test_scenario_9_the_33rd_command_of_a_connection_is_refused(
    client: Client, shared: RunningDaemon
) -> None:
    numbers = [start(client, "sleep", "100", **NO_LIMIT) for _ in range(32)]
    error = refusal(client, start(client, "true"))
    assert brief(error)[:2] == (-32000, "TOO_MANY_IN_FLIGHT_REQUESTS")
    assert run(shared.client(), "true")["exitCode"] == 0
    for number in numbers:
        client.call("request.cancel", requestId=number)
    assert run(client, "true")["exitCode"] == 0
