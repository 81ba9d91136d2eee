from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.supervisor.reports import MAX_LINE, Report, ReportFile, encode_line

if TYPE_CHECKING:
    from pathlib import Path


def crash(words: str) -> Report:
    return Report(
        event="exit",
        child_id="store",
        parent="services",
        generation=3,
        kind="store",
        pid=17,
        how="crash",
        reason="exit status 1",
        lived=1.5,
        last_words=words,
    )


def test_a_report_is_one_json_object_on_one_line() -> None:
    line = encode_line(crash("one\ntwo"), 1_700_000_000_123)
    assert line.count(b"\n") == 1
    record = msgspec.json.decode(line)
    assert record["time"] == "2023-11-14T22:13:20.123Z"
    assert record["event"] == "exit"
    assert record["last_words"] == "one\ntwo"


def test_a_long_text_keeps_its_end_and_the_line_its_limit() -> None:
    line = encode_line(crash("\x01" * 10_000 + "the end"), 0)
    assert len(line) <= MAX_LINE
    assert msgspec.json.decode(line)["last_words"].endswith("the end")


def test_a_file_of_reports_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "daemon.jsonl"
    for _ in range(2):
        sink = ReportFile(path)
        sink(crash(""))
        sink.close()
    assert len(path.read_bytes().splitlines()) == 2
    assert path.stat().st_mode & 0o777 == 0o600
