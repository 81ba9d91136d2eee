from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import pytest

from roost.actors.store.audit import Audit, Decided
from roost.schemas.approval import PendingRow, PendingState, Scope
from roost.schemas.base import CallId, TurnId

if TYPE_CHECKING:
    from pathlib import Path


def decided(
    state: PendingState, *, by_client: bool = True, scope: Scope = "once", reason: str = ""
) -> Decided:
    row = PendingRow(
        request_id=CallId("call_1"),
        kind="approval",
        turn_id=TurnId("turn_1"),
        tool_name="shell",
        body=b"",
        opened_at=1,
        state=state,
        scope=scope,
        reason=reason,
        settled_at=1_700_000_000_123,
    )
    return Decided("session_1", "agent_1", row, by_client)


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("one", "decision", "code"),
    [
        (decided("approved"), "approved", "rpc_approved_once"),
        (decided("approved", scope="session"), "approved", "rpc_approved_for_scope"),
        (decided("denied"), "denied", "rpc_denied"),
        (decided("cancelled"), "cancelled", "rpc_cancelled"),
        (decided("timeout", by_client=False), "timed_out", "no_decision_in_time"),
        (decided("cancelled", by_client=False), "cancelled", "turn_ended"),
    ],
)
def test_each_way_to_decide_has_its_code(
    tmp_path: Path, one: Decided, decision: str, code: str
) -> None:
    audit = Audit(tmp_path, rotate_bytes=1_000_000, keep=2)
    audit.write([one])
    audit.close()
    (line,) = lines(tmp_path / "audit" / "permission-audit.jsonl")
    assert (line["decision"], line["reasonCode"]) == (decision, code)
    assert line["time"] == "2023-11-14T22:13:20.123Z"
    assert ("scope" in line) == (decision == "approved")


def test_a_full_file_is_rotated_and_texts_are_cut(tmp_path: Path) -> None:
    audit = Audit(tmp_path, rotate_bytes=1, keep=2)
    for number in range(5):
        audit.write([decided("denied", reason=f"{number}" * 1_000)])
    audit.close()
    folder = tmp_path / "audit"
    found = {path.name: lines(path) for path in folder.iterdir()}
    assert sorted(found) == [f"permission-audit.jsonl{end}" for end in ("", ".1", ".2")]
    assert [found[name][0]["reason"] for name in sorted(found)] == ["4" * 512, "3" * 512, "2" * 512]
    assert all((folder / name).stat().st_mode & 0o777 == 0o600 for name in found)


def test_a_file_that_cannot_be_written_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").write_text("in the way")
    Audit(tmp_path, rotate_bytes=1_000, keep=2).write([decided("approved")])
    assert "missing" in caplog.text


def test_a_fifo_in_its_place_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").mkdir()
    path = tmp_path / "audit" / "permission-audit.jsonl"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    audit = Audit(tmp_path, rotate_bytes=1_000_000, keep=2)
    audit.write([decided("approved")])
    assert "not a regular file" in caplog.text
    os.close(reader)
    audit.write([decided("approved")])
    path.unlink()
    audit.write([decided("denied")])
    audit.close()
    assert [line["decision"] for line in lines(path)] == ["denied"]


def test_what_one_write_leaves_over_is_written_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def write_some(fd: int, data: memoryview) -> int:
        return write(fd, data[:7])

    monkeypatch.setattr(os, "write", write_some)
    audit = Audit(tmp_path, rotate_bytes=1_000_000, keep=2)
    audit.write([decided("approved"), decided("denied")])
    audit.close()
    found = lines(tmp_path / "audit" / "permission-audit.jsonl")
    assert [line["decision"] for line in found] == ["approved", "denied"]


def test_a_line_that_was_cut_by_a_full_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    audit = Audit(tmp_path, rotate_bytes=1_000_000, keep=2)
    audit.write([decided("approved")])
    write, room = os.write, [9, 0]

    def fill(fd: int, data: memoryview) -> int:
        size = room.pop(0)
        if not size:
            raise OSError(errno.ENOSPC, "no space")
        return write(fd, data[:size])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill)
        audit.write([decided("denied")])
    assert "missing" in caplog.text
    audit.write([decided("cancelled")])
    audit.close()
    found = lines(tmp_path / "audit" / "permission-audit.jsonl")
    assert [line["decision"] for line in found] == ["approved", "cancelled"]
