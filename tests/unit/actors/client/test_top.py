from __future__ import annotations

from roost.actors.client.replies import Memory, SessionCounts, Stats, TreeNode
from roost.actors.client.top import Look, as_lines, hidden, rows, shares, to_json, turn_state

NOW = "2026-03-01T09:30:00.000Z"


def stats(*nodes: TreeNode) -> Stats:
    return Stats(
        uptime_ms=10_000,
        sessions=SessionCounts(active=1, closed=0, total=1),
        memory=Memory(rss=1),
        tree=nodes,
    )


def node(child_id: str = "a", **members: object) -> TreeNode:
    known: dict[str, object] = {
        "parent": "agents",
        "kind": "agent",
        "state": "running",
        "pid": 7,
        "uptime_ms": 10_000,
        "cpu_seconds": 1.0,
        **members,
    }
    return TreeNode(child_id=child_id, **known)  # type: ignore[arg-type]


def look(at: float, *nodes: TreeNode, before: Look | None = None) -> Look:
    found = stats(*nodes)
    return Look(time=NOW, at=at, running=True, stats=found, cpu=shares(found, at, before))


def test_the_first_share_is_that_of_a_whole_life_and_later_ones_are_of_the_time_between() -> None:
    first = look(100.0, node())
    assert first.cpu == {"a": 10.0}
    second = look(102.0, node(cpu_seconds=2.0, uptime_ms=12_000), before=first)
    assert second.cpu == {"a": 50.0}


def test_a_process_that_was_replaced_is_not_compared_with_the_one_before() -> None:
    first = look(100.0, node(cpu_seconds=9.0))
    second = look(102.0, node(pid=8, cpu_seconds=0.5, uptime_ms=1_000), before=first)
    assert second.cpu == {"a": 50.0}


def test_agents_in_trouble_come_first_and_the_busiest_are_shown() -> None:
    root = node("root", kind="root", parent="")
    busy, idle = node("busy", cpu_seconds=5.0), node("idle", cpu_seconds=0.0)
    hung = node("hung", cpu_seconds=0.0, silent_ms=5_000)
    seen = look(1.0, root, idle, busy, hung)
    assert [each.child_id for each, _ in rows(seen, 3)] == ["root", "hung", "busy"]
    assert hidden(seen, 3) == 1
    assert len(as_lines(seen)) == 4


def test_the_state_of_a_turn_is_said_in_words() -> None:
    assert turn_state(node()) == "idle"
    assert turn_state(node(turns=1, working=True)) == "running"
    assert turn_state(node(turns=2)) == "2 running"
    assert turn_state(node(turns=1, waiting=1)) == "waits for a person"
    assert turn_state(node(turns=1, silent_ms=12_300)) == "no answer for 12s"
    assert turn_state(node(kind="store", working=True)) == "working"


def test_one_that_was_given_up_says_why() -> None:
    dead = node(state="gave_up", pid=0, cpu_seconds=-1.0, last_error="killed\nand more")
    (cells,) = as_lines(look(1.0, dead))
    assert cells[1:] == ("gave_up", "-", "-", "-", "-", "0", "killed", "0")


def test_a_daemon_that_is_gone_is_told_of() -> None:
    gone = Look(time=NOW, at=1.0, running=False, trouble="no daemon runs")
    assert to_json(gone) == {
        "time": NOW,
        "running": False,
        "answering": False,
        "error": "no daemon runs",
    }
    assert as_lines(gone) == []
