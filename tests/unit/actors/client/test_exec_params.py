from __future__ import annotations

import os
import signal

import click
import msgspec
import pytest
from click.testing import CliRunner

from roost.actors.client.cli import cli
from roost.actors.client.context import Context
from roost.actors.client.errors import RpcError
from roost.actors.client.exec_command import exec_command
from roost.actors.client.exec_params import (
    CommandResult,
    environment_for,
    exit_status,
    policy_for,
    retry_delay,
    spawn_status,
    start_params,
    with_terminal,
)
from roost.actors.client.exec_terminal import Size
from roost.schemas.command_exec import CommandStart


def params(timeout: float | None = None) -> dict[str, object]:
    return start_params(
        ["ls", "-l", ""],
        cwd="/tmp",
        environment={"A": "1", "B": None},
        policy={"type": "readOnly"},
        timeout=timeout,
    )


def test_what_is_asked_for_is_as_the_schema_has_it() -> None:
    plain = msgspec.convert(params(), type=CommandStart)
    assert plain.command == ["ls", "-l", ""]
    assert (plain.stream_stdout_stderr, plain.stream_stdin, plain.tty) == (True, False, False)
    assert (plain.disable_output_cap, plain.disable_timeout, plain.timeout_ms) == (True, True, None)
    assert plain.env == {"A": "1", "B": None}
    limited = msgspec.convert(params(timeout=0.0001), type=CommandStart)
    assert (limited.disable_timeout, limited.timeout_ms) == (False, 1), "0 would be at once"
    at_terminal = msgspec.convert(with_terminal(params(), Size(5, 70)), type=CommandStart)
    assert at_terminal.tty
    assert at_terminal.size is not None
    assert (at_terminal.size.rows, at_terminal.size.cols) == (5, 70)
    assert msgspec.convert(with_terminal(params(), None), type=CommandStart).size is None


def test_a_variable_is_set_passed_on_or_taken_away() -> None:
    here = {"PATH": "/bin", "TERM": "xterm", "HERE": "h", "SECRET_THING": "s"}
    given = ["A=1", "B=", "C=x=y", "HERE", "ABSENT"]
    found = environment_for(given, here, tty=False)
    assert found == {
        "PATH": "/bin",
        "A": "1",
        "B": "",
        "C": "x=y",
        "HERE": "h",
        "ABSENT": None,
    }
    odd = {"PATH": "/\udcff", "LANG": "C"}
    assert environment_for([], odd, tty=False) == {"LANG": "C"}, "no request can carry the other"
    assert environment_for([], here, tty=True) == {"PATH": "/bin", "TERM": "xterm"}
    assert environment_for(["PATH=/usr/bin"], here, tty=False) == {"PATH": "/usr/bin"}
    with pytest.raises(click.UsageError, match="no name"):
        environment_for(["=x"], here, tty=False)


@pytest.mark.parametrize("name", ["readOnly", "read-only", "read_only", "READONLY"])
def test_a_policy_has_one_name_in_every_spelling(name: str) -> None:
    assert policy_for(name) == {"type": "readOnly"}


def test_a_policy_may_be_an_object() -> None:
    text = '{"type": "workspaceWrite", "writableRoots": ["/srv"]}'
    assert policy_for(text) == {"type": "workspaceWrite", "writableRoots": ["/srv"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "no policy 'nothing'"),
        ("", "no policy ''"),
        ('{"type": "nothing"}', 'type: "nothing"'),
        ("{}", "non-empty string"),
        ('{"type": 7}', "non-empty string"),
        ('{"type": "workspaceWrite", "writableRoots": 7}', "writableRoots"),
        ('{"type": "readOnly", "access": {"type": "restricted"}}', "access"),
    ],
)
def test_what_is_no_policy_is_a_wrong_use_that_names_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said) as caught:
        policy_for(text)
    assert "allowed are dangerFullAccess, readOnly, workspaceWrite" in caught.value.message


@pytest.mark.parametrize("text", ["{", '{"type": "\\ud800"}', '{"type": "readOnly"} x', "\udcff"])
def test_a_policy_that_cannot_be_read_is_a_wrong_use(text: str) -> None:
    with pytest.raises(click.UsageError, match=r"no JSON|not UTF-8"):
        policy_for(text)


@pytest.mark.parametrize(
    ("result", "passed_on", "status"),
    [
        (CommandResult(exit_code=0), None, 0),
        (CommandResult(exit_code=7), None, 7),
        (CommandResult(exit_code=7), signal.SIGINT, 7),
        (CommandResult(exit_code=0), signal.SIGTERM, 0),
        (CommandResult(exit_code=-1, signal="SIGKILL"), None, 137),
        (CommandResult(exit_code=-1, signal="SIGTERM"), signal.SIGINT, 130),
        (CommandResult(exit_code=-1, signal="SIGKILL"), signal.SIGTERM, 143),
        (CommandResult(exit_code=-1, signal="SIGTERM"), signal.SIGPIPE, 141),
        (CommandResult(exit_code=143), signal.SIGINT, 130),
        (CommandResult(exit_code=137), signal.SIGHUP, 129),
        (CommandResult(exit_code=143), None, 143),
        (CommandResult(exit_code=-1, signal=11), None, 139),
        (CommandResult(exit_code=-1, signal="SIG40"), None, 168),
        (CommandResult(exit_code=-1, signal="SIGNONE"), None, 255),
        (CommandResult(exit_code=-1), None, 255),
        (CommandResult(exit_code=124, timed_out=True), None, 124),
        (CommandResult(exit_code=124, timed_out=True, signal="SIGTERM"), None, 124),
    ],
)
def test_how_the_command_ended_is_our_exit_status(
    result: CommandResult, passed_on: int | None, status: int
) -> None:
    assert exit_status(result, passed_on) == status


def test_a_program_that_cannot_be_started_has_the_status_that_shells_give_it() -> None:
    def refused(text: str) -> int | None:
        return spawn_status(RpcError(-32603, text, "INTERNAL"))

    assert refused(f"failed to spawn command: {os.strerror(2)}: 'x'") == 127
    assert refused(f"failed to spawn command: {os.strerror(13)}: 'x'") == 126
    assert refused("something else") is None


def test_only_what_is_too_much_now_is_asked_again() -> None:
    def refused(code: str, data: bytes = b"") -> float | None:
        return retry_delay(RpcError(-32000, "no", code, data))

    assert refused("RATE_LIMITED", b'{"code":"RATE_LIMITED","retryAfterMs":80}') == 0.08
    assert refused("RATE_LIMITED", b'{"retryAfterMs":99999999}') == 1.0
    assert refused("OVERLOADED") == 0.02
    assert refused("OVERLOADED", b'{"retryAfterMs":"soon"}') == 0.02
    assert refused("INVALID_ARGUMENT") is None


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--"],
        ["--timeout", "0", "true"],
        ["--timeout", "nan", "true"],
        [""],
        ["", "true"],
        ["--sandbox", "some", "true"],
        ["--sandbox", '{"type": "some"}', "true"],
        ["--env", "=1", "true"],
        ["--cwd", "/does/not/exist", "true"],
        ["--unknown", "true"],
        ["echo", "\udcff"],
    ],
)
def test_wrong_use_is_told_before_a_daemon_is_asked(wrong: list[str]) -> None:
    ended = CliRunner().invoke(exec_command, wrong, obj=Context("/does/not/exist"))
    assert ended.exit_code == 2, ended.output


def test_the_options_of_the_command_are_its_own() -> None:
    ended = CliRunner().invoke(cli, ["exec", "--help"])
    assert ended.exit_code == 0
    assert len(ended.output.splitlines()) <= 24, "it fits a screen"
