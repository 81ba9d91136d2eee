from __future__ import annotations

import msgspec
import pytest

from roost.actors.agent.runner import CallResult, RunnerFailed
from roost.actors.agent.runners.script import report
from roost.actors.agent.runners.steps import (
    Allocate,
    Crash,
    Fail,
    Hang,
    Say,
    Sleep,
    UseTool,
    read_steps,
    text_steps,
)


def scripted(*steps: object) -> bytes:
    return msgspec.json.encode({"script": steps, "other": 1})


def test_every_kind_of_step() -> None:
    steps = read_steps(
        scripted(
            {"say": "a", "chunks": 2, "interval_ms": 10},
            {"stream": "b"},
            {"tool": "shell", "args": {"command": "ls"}},
            {"ask": [{"question": "?"}]},
            {"sleep_ms": 5},
            {"fail": "no"},
            {"hang": True},
            {"hang": "hard"},
            {"crash": True},
            {"crash": 3},
            {"allocate_mib": 4},
        ),
        "",
    )
    assert steps == [
        Say("a", 2, 0.01),
        Say("b"),
        UseTool("shell", {"command": "ls"}),
        UseTool("ask_user", {"questions": [{"question": "?"}]}),
        Sleep(0.005),
        Fail("no"),
        Hang(hard=False),
        Hang(hard=True),
        Crash(None),
        Crash(3),
        Allocate(4),
    ]


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (b'{"script": 1}', "metadata.script: Expected `array`"),
        (scripted({"say": "x"}, {"say": 1}), r"metadata.script\[1\]: Expected `str`"),
        (scripted({"dance": 1}), "unknown field `dance`"),
        (scripted({}), "exactly one thing"),
        (scripted({"say": "x", "fail": "y"}), "exactly one thing"),
        (scripted({"hang": False}), "Invalid enum value"),
        (scripted({"crash": False}), "exactly one thing"),
        (scripted({"say": "x", "chunks": 0}), "`int` >= 1"),
        (scripted(*[{"say": "x"}] * 10_001), "more than 10000 steps"),
    ],
)
def test_a_wrong_step_is_named(metadata: bytes, text: str) -> None:
    with pytest.raises(RunnerFailed, match=text) as caught:
        read_steps(metadata, "")
    assert caught.value.code == "INVALID_SCRIPT"


def test_the_lines_of_a_message_are_commands() -> None:
    steps = text_steps(
        "please\n$ ls -l\nread a b.txt\nfind x*\nwrite out.txt\n$ not a command\n\nend"
    )
    assert steps == [
        UseTool("shell", {"command": "ls -l"}, report=True),
        UseTool("read_file", {"path": "a b.txt"}, report=True),
        UseTool("list_files", {"pattern": "*x[*]*"}, report=True),
        UseTool(
            "write_file", {"path": "out.txt", "content": "$ not a command\n\nend\n"}, report=True
        ),
    ]


@pytest.mark.parametrize("text", ["", "hello", "$", "read", "reading is fun", "$5"])
def test_anything_else_is_answered_with_what_it_can_do(text: str) -> None:
    (step,) = text_steps(text)
    assert isinstance(step, Say)
    assert "no language model" in step.text


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (CallResult("c", "shell", {}, {"output": "a", "exit_code": 1}), "a\nexit code 1\n"),
        (CallResult("c", "shell", {}, {"output": "", "exit_code": None}), "exit code None\n"),
        (CallResult("c", "read_file", {}, {"content": "x"}), "x"),
        (CallResult("c", "list_files", {}, {"files": ["a", "b"]}), "a\nb\n"),
        (CallResult("c", "list_files", {}, {"files": []}), "no such file\n"),
        (CallResult("c", "write_file", {}, {"path": "/x", "bytes": 3}), "wrote 3 bytes to /x\n"),
        (CallResult("c", "shell", {}, error="denied", code="X"), "shell failed: denied (X)\n"),
        (CallResult("c", "other", {}, [1]), "[1]\n"),
    ],
)
def test_results_are_reported(result: CallResult, said: str) -> None:
    assert report(result) == said


def test_a_long_result_is_shortened() -> None:
    assert len(report(CallResult("c", "read_file", {}, {"content": "x" * 20_000}))) < 9_000
