from __future__ import annotations

from datetime import UTC, datetime

import pytest

from roost.actors.client.events import (
    ApprovalAsked,
    Cleared,
    Event,
    StatusChanged,
    Text,
    ToolEnded,
    ToolRequested,
    UserSaid,
)
from roost.actors.client.render import (
    Terminal,
    format_age,
    format_duration,
    format_size,
    show,
    tree_lines,
)
from roost.actors.client.replies import TreeNode


def shown(*events: Event) -> tuple[str, str]:
    out: list[str] = []
    err: list[str] = []
    terminal = Terminal(out.append, err.append, color=False)
    for event in events:
        show(terminal, event)
    terminal.close_line()
    return "".join(out), "".join(err)


def node(child_id: str, parent: str = "", **further: object) -> TreeNode:
    return TreeNode(child_id=child_id, parent=parent, **further)  # type: ignore[arg-type]  # only for tests


def test_text_goes_to_standard_output_alone() -> None:
    out, err = shown(Text("a"), Text("b\nc"), StatusChanged("idle"))
    assert out == "ab\nc\n"
    assert err == ""


def test_a_cleared_history_is_a_line_of_its_own() -> None:
    out, err = shown(Text("before"), Cleared(), Text("after"))
    assert out == "before\nafter\n"
    assert err == "--- the history was cleared; the agent begins anew ---\n"


def test_a_line_of_text_ends_before_something_else_is_said() -> None:
    out, err = shown(Text("thinking"), ToolRequested("c", "shell", {"command": "ls"}), Text("done"))
    assert out == "thinking\ndone\n"
    assert err == "* shell: ls\n"


def test_an_approval_is_shown_in_full() -> None:
    command = "x" * 1000
    _, err = shown(ApprovalAsked("s", "c", "shell", {"command": command}, reason="policy full"))
    assert command in err
    assert "reason: policy full" in err


def test_a_long_result_is_cut_and_says_so() -> None:
    _, err = shown(ToolEnded("c", "\n".join(map(str, range(100))), failed=False))
    assert "  11\n" in err
    assert "  12\n" not in err
    assert "characters in all" in err


def test_a_failure_is_told_once() -> None:
    _, err = shown(StatusChanged("error", "boom"), StatusChanged("error", "boom", derived=True))
    assert err == "failed: boom\n"


def test_a_user_message_is_cleaned() -> None:
    assert shown(UserSaid("a\x1bb", "m"))[1] == "> a\ufffdb\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (61, "1m 1s"), (3723, "1h 2m 3s"), (90_000, "1d 1h 0m 0s")],
)
def test_durations_leave_out_leading_zeros(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_sizes_are_mebibytes() -> None:
    assert format_size(52_428_800) == "50.0 MiB"
    assert format_size(-1) == "-"


def test_an_age_is_its_largest_unit() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert format_age("2026-03-01T09:30:00.000Z", now) == "2h"
    assert format_age("2026-03-01T12:00:05.000Z", now) == "0s"
    assert format_age("never", now) == "-"


def test_the_tree_is_drawn_from_its_root() -> None:
    lines = tree_lines(
        [
            node("root", state="running", pid=1),
            node("store", "root", state="ready", pid=2),
            node("agent:a", "agents", state="ready", pid=3, restarts=1, last_error="signal 9"),
        ]
    )
    assert lines == [
        "root  running  pid 1",
        "├─ store  ready  pid 2",
        "└─ agents",
        "   └─ agent:a  ready  pid 3  restarts 1  last error: signal 9",
    ]


def test_a_process_whose_parent_is_not_known_is_shown_all_the_same() -> None:
    assert tree_lines([node("store", "root", pid=2)]) == ["root", "└─ store  pid 2"]


def test_a_circle_in_the_tree_ends() -> None:
    assert tree_lines([node("a"), node("b", "c"), node("c", "b"), node("d", "d")]) == ["a"]


def test_the_result_of_a_command_is_its_output() -> None:
    _, err = shown(ToolEnded("c", '{"output":"a\\nb\\n","exit_code":3}', failed=False))
    assert err == "  a\n  b\n  exit status 3\n"
    _, err = shown(ToolEnded("c", '{"output":"","exit_code":0}', failed=False))
    assert err == "  (no output)\n"


def test_a_result_that_is_no_command_is_shown_as_it_is() -> None:
    assert shown(ToolEnded("c", '{"files":["a"]}', failed=False))[1] == '  {"files":["a"]}\n'
    cancelled = '{"tool_use_id":"c","is_error":true,"content":"The call was cancelled"}'
    assert shown(ToolEnded("c", cancelled, failed=True))[1] == "  The call was cancelled\n"
