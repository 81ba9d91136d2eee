from __future__ import annotations

import io
import json
import sqlite3
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from roost.actors.client.cli import cli
from roost.actors.client.log_lines import Line, read_lines
from roost.actors.client.tail import Tail
from roost.actors.store.database import read_meta
from roost.actors.store.snapshot import Snapshot
from tests.support.log_files import Json, event, fill_store, lines, log, parsed

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def roost(home: Path, *arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *arguments], input=stdin)


def files_of(home: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in home.iterdir() if not path.name.endswith("-shm")
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    fill_store(home / "store.db", log("s-one", 5), log("s-two", 2500))
    return home


def damage(home: Path, session: str, sequence: int) -> None:
    with sqlite3.connect(home / "store.db") as connection:
        connection.execute(
            "update events set body = replace(body, 'message', 'massage') where event_id = ?",
            (f"{session}/{sequence}",),
        )
    connection.close()


def test_export_writes_stored_events_that_verify(home: Path) -> None:
    ended = roost(home, "events", "export", "--all")
    assert ended.exit_code == 0
    found = parsed(ended.stdout_bytes)
    assert found == [*log("s-one", 5), *log("s-two", 2500)]
    checked = roost(home, "events", "verify", "-", stdin=ended.stdout_bytes)
    assert checked.exit_code == 0
    assert "2505 lines, 0 refused" in checked.stderr


def test_export_takes_sessions_by_name_agent_and_cursor(home: Path) -> None:
    assert parsed(roost(home, "events", "export", "one").stdout_bytes) == log("s-one", 5)
    ended = roost(home, "events", "export", "--agent", "agent_of_s-two", "--after", "2499")
    assert parsed(ended.stdout_bytes) == [event("s-two", 2500)]
    assert roost(home, "events", "export").exit_code == 2
    assert roost(home, "events", "export", "s-nine").exit_code == 1
    assert roost(home, "events", "export", "--agent", "nobody").exit_code == 1


def test_export_to_a_file_appears_whole(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    ended = roost(home, "events", "export", "--all", "-o", str(target))
    assert ended.exit_code == 0
    assert len(parsed(target.read_bytes())) == 2505
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "out.jsonl"]
    refused = roost(home, "events", "export", "--all", "-o", str(tmp_path / "no" / "x"))
    assert refused.exit_code == 1


def test_export_leaves_out_ephemeral_sessions(home: Path) -> None:
    fill_store(home / "store.db", log("s-eph", 2), ephemeral=True)
    ended = roost(home, "events", "export", "--all")
    assert {one["session_id"] for one in parsed(ended.stdout_bytes)} == {"s-one", "s-two"}
    assert roost(home, "events", "export", "s-eph").exit_code == 1


def test_a_damaged_event_ends_its_session_only_and_is_named(home: Path) -> None:
    damage(home, "s-one", 3)
    ended = roost(home, "events", "export", "--all")
    assert ended.exit_code == 1
    assert "session s-one: event 3 is damaged" in ended.stderr
    found = parsed(ended.stdout_bytes)
    assert found == [*log("s-one", 2), *log("s-two", 2500)]


def test_a_missing_event_is_damage_too(home: Path) -> None:
    with sqlite3.connect(home / "store.db") as connection:
        connection.execute("delete from events where event_id = 's-two/1500'")
    connection.close()
    ended = roost(home, "events", "export", "s-two")
    assert ended.exit_code == 1
    assert "event 1500 is damaged (it is missing)" in ended.stderr
    assert len(parsed(ended.stdout_bytes)) == 1499


def test_reading_a_store_that_was_not_closed_changes_no_file(home: Path) -> None:
    writer = sqlite3.connect(home / "store.db", isolation_level=None)
    writer.execute("update sessions set delivered = 1")
    other = home.parent / "other"
    other.mkdir()
    for name in ("store.db", "store.db-wal"):
        (other / name).write_bytes((home / name).read_bytes())
    before = files_of(other)
    assert roost(other, "events", "export", "--all").exit_code == 0
    assert roost(other, "du").exit_code == 0
    assert roost(other, "backup", str(home.parent / "copy")).exit_code == 0
    assert files_of(other) == before
    writer.close()


def test_where_there_is_no_store_commands_say_so(tmp_path: Path) -> None:
    for arguments in (["events", "export", "--all"], ["backup", str(tmp_path / "b")], ["du"]):
        ended = roost(tmp_path, *arguments)
        assert ended.exit_code == 1
        assert "there is no store" in ended.stderr


def test_verify_answers_each_line_with_an_object() -> None:
    bad = event("s", 1)
    del bad["content"]
    data = lines([event("s", 1), bad]) + b"\n" + b"{not json}\n" + lines([event("s", 2)])[:-1]
    ended = CliRunner().invoke(cli, ["events", "verify", "--json", "-"], input=data)
    assert ended.exit_code == 1
    found = parsed(ended.stdout_bytes)
    assert [one["line"] for one in found] == [1, 2, 3, 4, 5]
    assert [one["ok"] for one in found] == [True, False, False, False, True]
    assert all(set(one) == {"line", "ok", "code", "path", "message"} for one in found)
    assert found[1]["path"] == "/content"
    ended = CliRunner().invoke(cli, ["events", "verify", "-"], input=data)
    assert ended.exit_code == 1
    assert len(ended.stdout.splitlines()) == 3
    assert "5 lines, 3 refused" in ended.stderr


def test_verify_refuses_a_draft(tmp_path: Path) -> None:
    draft = event("s", 1)
    del draft["sequence"]
    (tmp_path / "f").write_bytes(lines([draft]))
    ended = roost(tmp_path, "events", "verify", "--json", str(tmp_path / "f"))
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["path"] == "/sequence"
    assert roost(tmp_path, "events", "verify", str(tmp_path / "none")).exit_code == 1


def test_a_line_that_is_too_long_is_not_kept() -> None:
    file = io.BytesIO(b"a" * 25 + b"\n" + b"bb\r\n" + b"c" * 10 + b"\n\n" + b"d" * 11)
    found = list(read_lines(file, limit=10))
    assert found == [
        Line(1, 0, None),
        Line(2, 26, b"bb"),
        Line(3, 30, b"c" * 10),
        Line(4, 41, b""),
        Line(5, 42, None),
    ]


@pytest.mark.parametrize(
    ("arguments", "first", "count"),
    [([], 2491, 10), (["-n", "3"], 2498, 3), (["--after", "2000"], 2001, 500), (["-n", "0"], 0, 0)],
)
def test_tail_writes_the_last_events(
    home: Path, arguments: list[str], first: int, count: int
) -> None:
    ended = roost(home, "events", "tail", "s-two", *arguments)
    assert ended.exit_code == 0
    assert parsed(ended.stdout_bytes) == log("s-two", count, first=first)


def remove(home: Path, session: str, upto: int) -> None:
    """Remove a session's first events as retention does."""
    with sqlite3.connect(home / "store.db") as connection:
        key = "(select key from sessions where session_id = ?)"
        sql = f"delete from events where session = {key} and sequence <= ?"
        connection.execute(sql, (session, upto))
        sql = "update sessions set first_sequence = ? where session_id = ?"
        connection.execute(sql, (upto + 1, session))
    connection.close()


def test_tail_names_what_retention_has_removed(home: Path) -> None:
    remove(home, "s-one", 3)
    ended = roost(home, "events", "tail", "s-one", "--after", "1")
    assert ended.exit_code == 0
    assert ended.stderr == "roost: session s-one: events 2 to 3 are gone, removed by retention\n"
    assert parsed(ended.stdout_bytes) == log("s-one", 2, first=4)
    for arguments in (["--after", "3"], ["-n", "10"]):
        ended = roost(home, "events", "tail", "s-one", *arguments)
        assert ended.stderr == ""
        assert parsed(ended.stdout_bytes) == log("s-one", 2, first=4)


def test_a_tail_that_retention_overtakes_says_so_once(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Snapshot(home / "store.db") as snapshot:
        session = snapshot.session("s-one")
        assert session is not None
        tail = Tail(snapshot, session, 2)
        remove(home, "s-one", 5)
        tail.write()
        tail.write()
    assert tail.cursor == 5
    told = capsys.readouterr()
    assert told.err == "roost: session s-one: events 3 to 5 are gone, removed by retention\n"
    assert told.out == ""


def test_du_keeps_each_session_on_its_line(home: Path) -> None:
    fill_store(home / "store.db", log("s\nbroken\u2028id", 1))
    assert "s\ufffdbroken\ufffdid" in roost(home, "du").stdout


def test_du_counts_events_and_bytes(home: Path) -> None:
    found: Json = json.loads(roost(home, "du", "--json").stdout)
    sessions: list[Json] = found["sessions"]  # type: ignore[assignment]
    assert [(one["sessionId"], one["events"]) for one in sessions] == [
        ("s-two", 2500),
        ("s-one", 5),
    ]
    agents: list[Json] = found["agents"]  # type: ignore[assignment]
    assert agents[0]["agentId"] == "agent_of_s-two"
    assert agents[0]["bytes"] == sessions[0]["bytes"]
    files: list[Json] = found["files"]  # type: ignore[assignment]
    assert {"store.db"} <= {str(one["name"]) for one in files}
    assert "s-two" in roost(home, "du").stdout


def test_a_backup_holds_the_store_and_voids_its_cursors(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    ended = roost(home, "backup", str(target))
    assert ended.exit_code == 0
    assert "2 sessions, 2505 events" in ended.stdout
    assert target.stat().st_mode & 0o777 == 0o600
    assert roost(home, "backup", str(target)).exit_code == 1
    assert roost(home, "backup", str(target), "--force").exit_code == 0
    epochs: list[str] = []
    for path in (home / "store.db", target):
        connection = sqlite3.connect(path)
        epochs.append(read_meta(connection, "epoch"))
        connection.close()
    assert epochs[0] != epochs[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "home"]


def test_a_store_that_is_not_whole_makes_no_backup(home: Path, tmp_path: Path) -> None:
    with (home / "store.db").open("r+b") as file:
        file.seek(4096 * 20)
        file.write(b"x" * 4096 * 20)
    ended = roost(home, "backup", str(tmp_path / "copy.db"))
    assert ended.exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_restore_sets_the_present_store_aside(home: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    roost(home, "backup", copy)
    fill_store(home / "store.db", log("s-late", 3))
    ended = roost(home, "restore", copy)
    assert ended.exit_code == 0
    found = parsed(roost(home, "events", "export", "--all").stdout_bytes)
    assert {one["session_id"] for one in found} == {"s-one", "s-two"}
    (aside,) = home.glob("store-before-*.db")
    with sqlite3.connect(aside) as connection:
        assert connection.execute("select count(*) from sessions").fetchone() == (3,)
    connection.close()
    (tmp_path / "no.db").write_bytes(b"no database")
    refused = roost(home, "restore", str(tmp_path / "no.db"))
    assert refused.exit_code == 1
    assert not list(home.glob(".store*"))


def test_help_of_the_new_commands_fits_a_screen(tmp_path: Path) -> None:
    names = ("events", "events export", "events import", "events verify", "events tail")
    for name in (*names, "backup", "restore", "du"):
        ended = roost(tmp_path, *name.split(), "--help")
        assert ended.exit_code == 0
        assert len(ended.stdout.splitlines()) <= 32
        assert max(map(len, ended.stdout.splitlines())) <= 80
