from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.schemas import archive, event, session
from roost.schemas.agent import AgentRow, Agents, AgentSpec, GetAgent, ListAgents
from roost.schemas.base import AgentId, Done, EventId, Refused, SessionId
from roost.schemas.unions import event_decoder
from roost.schemas.validation import judge
from tests.support.desk import Book
from tests.support.log_files import Json, event as make, log
from tests.support.store import create_agent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SESSION = SessionId("s-from-elsewhere")
AGENT = AgentId("agent-of-import")


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path)
    yield book
    book.close()


def begin(import_id: str = "import-one", first: int = 1) -> archive.BeginImport:
    return archive.BeginImport(import_id=import_id, session_id=SESSION, first_sequence=first)


def chunk(events: list[Json], import_id: str = "import-one") -> archive.ImportEvents:
    found: list[archive.ArchivedEvent] = []
    for one in events:
        judged = judge(msgspec.json.encode(one)).event
        assert judged is not None, judge(msgspec.json.encode(one))
        found.append(
            archive.ArchivedEvent(
                event_id=EventId(judged.id),
                type=judged.type,
                turn_id=judged.turn_id,
                body=judged.body,
            )
        )
    first = int(str(events[0]["sequence"]))
    return archive.ImportEvents(import_id=import_id, first=first, events=tuple(found))


def finish(last: int, import_id: str = "import-one") -> archive.FinishImport:
    return archive.FinishImport(
        import_id=import_id,
        last_sequence=last,
        agent=AgentSpec(agent_id=AGENT, created_at=1, cwd="/"),
        session=session.SessionSpec(session_id=SESSION, agent_id=AGENT, created_at=1),
    )


def import_log(book: Book, events: list[Json]) -> session.SessionRow:
    first = int(str(events[0]["sequence"]))
    assert book.ask(begin(first=first)) == archive.ImportBegun(exists=False)
    assert book.ask(chunk(events)) == Done()
    row = book.ask(finish(int(str(events[-1]["sequence"]))))
    assert isinstance(row, session.SessionRow), row
    return row


def stored(book: Book) -> list[event.AnyEvent]:
    page = book.read(session.ReadPage(session_id=SESSION, after=0, max_events=1000))
    assert isinstance(page, session.Page), page
    return [event_decoder.decode(body) for body in page.bodies]


def turn(*kinds: tuple[str, Json]) -> list[Json]:
    created = make(str(SESSION), 1, "session.created", metadata={"agent_id": "theirs"})
    rest = [
        make(str(SESSION), number, kind, turn_id="t1", **fields)
        for number, (kind, fields) in enumerate(kinds, 2)
    ]
    return [created, *rest]


CALL: Json = {"tool_name": "shell", "tool_call_id": "c1"}
FINAL: Json = {"content": "done", "metadata": {"final": True}, "tokens": {"input": 3, "output": 4}}


def test_nothing_shows_an_import_before_it_is_finished(book: Book) -> None:
    before = book.read(session.Count())
    book.ask(begin())
    book.ask(chunk(log(SESSION, 5)))
    assert book.read(session.Count()) == before
    listed = book.read(session.ListSessions(limit=100))
    assert isinstance(listed, session.Sessions)
    assert not listed.sessions
    agents = book.read(ListAgents(limit=100, ended=True))
    assert isinstance(agents, Agents)
    assert not agents.agents
    assert isinstance(book.read(session.GetSession(session_id=SESSION)), Refused)


def test_a_finished_import_is_a_session_with_an_agent(book: Book) -> None:
    row = import_log(book, log(SESSION, 5))
    assert (row.state, row.status, row.first_sequence, row.last_sequence) == ("open", "idle", 1, 5)
    assert [one.id for one in stored(book)] == [f"{SESSION}/{n}" for n in range(1, 6)]
    owner = book.read(GetAgent(agent_id=AGENT))
    assert isinstance(owner, AgentRow)
    assert owner.status == "idle"
    assert owner.sessions == (SESSION,)


def test_a_log_may_begin_later_than_with_its_first_event(book: Book) -> None:
    row = import_log(book, log(SESSION, 3, first=41))
    assert (row.first_sequence, row.last_sequence) == (41, 43)
    page = book.read(session.ReadPage(session_id=SESSION, after=0))
    assert isinstance(page, session.Page)
    assert (page.first, page.lost_upto) == (41, 40)


def test_an_open_turn_is_closed_as_after_a_crash(book: Book) -> None:
    events = turn(
        ("user.message", {"content": "go"}),
        ("tool.call.requested", {**CALL, "tool_args": {}}),
        ("tool.call.started", CALL),
    )
    row = import_log(book, events)
    *_, call, end = stored(book)
    assert isinstance(call, event.ToolCallFailed)
    assert call.outcome == "unknown"
    assert isinstance(end, event.AgentTurnFailed)
    assert end.error_code == "TURN_INTERRUPTED"
    assert (row.status, row.turns, row.last_sequence) == ("idle", 1, 6)


def test_a_turn_that_was_to_stop_is_cancelled(book: Book) -> None:
    events = turn(("user.message", {"content": "go"}), ("cancellation.requested", {"reason": "no"}))
    import_log(book, events)
    assert isinstance(stored(book)[-1], event.CancellationCompleted)


def test_a_finished_turn_is_left_alone_and_counted(book: Book) -> None:
    row = import_log(
        book, turn(("user.message", {"content": "go"}), ("agent.message.completed", FINAL))
    )
    assert (row.turns, row.last_sequence) == (1, 3)
    sql = "select input_tokens, output_tokens from sessions where session_id = ?"
    assert book.connection.execute(sql, (SESSION,)).fetchone() == (3, 4)


def test_a_log_of_another_program_needs_no_mark_at_the_end_of_a_turn(book: Book) -> None:
    events = turn(
        ("user.message", {"content": "go"}), ("agent.message.completed", {"content": "done"})
    )
    events[0]["metadata"] = {}
    assert import_log(book, events).last_sequence == 3


def test_a_log_that_ends_closed_is_a_closed_session_of_a_stopped_agent(book: Book) -> None:
    events = [*log(SESSION, 2), make(SESSION, 3, "session.closed", reason="over")]
    row = import_log(book, events)
    assert (row.state, row.last_sequence) == ("closed", 3)
    owner = book.read(GetAgent(agent_id=AGENT))
    assert isinstance(owner, AgentRow)
    assert owner.status == "stopped"


def test_an_event_id_that_is_used_is_refused_and_named(book: Book) -> None:
    import_log(book, log(SESSION, 3))
    other = SessionId("s-other")
    book.ask(archive.BeginImport(import_id="import-two", session_id=other, first_sequence=1))
    events = log(other, 2)
    events[1]["id"] = f"{SESSION}/2"
    answer = book.ask(chunk(events, "import-two"))
    assert isinstance(answer, Refused)
    assert answer.code == "EVENT_ID_CONFLICT"
    assert msgspec.json.decode(answer.data) == {"sequence": 2}


def test_an_event_id_that_comes_twice_is_refused(book: Book) -> None:
    book.ask(begin())
    events = log(SESSION, 2)
    events[1]["id"] = events[0]["id"]
    assert book.refused(chunk(events)) == "EVENT_ID_CONFLICT"


def test_a_gap_is_refused(book: Book) -> None:
    book.ask(begin())
    book.ask(chunk(log(SESSION, 2)))
    assert book.refused(chunk(log(SESSION, 2, first=4))) == "INVALID_ARGUMENT"
    assert book.refused(finish(5)) == "INVALID_ARGUMENT"
    assert isinstance(book.ask(finish(2)), session.SessionRow)


def test_a_log_that_leaves_its_session_no_room_is_refused(book: Book) -> None:
    last = archive.MAX_IMPORTED
    book.ask(begin(first=last))
    assert book.refused(chunk(log(SESSION, 2, first=last))) == "INVALID_ARGUMENT"
    assert isinstance(book.ask(chunk(log(SESSION, 1, first=last))), Done)
    assert isinstance(book.ask(finish(last)), session.SessionRow)


def test_a_session_that_exists_is_said_at_the_beginning(book: Book) -> None:
    import_log(book, log(SESSION, 2))
    assert book.ask(begin("import-two")) == archive.ImportBegun(exists=True)


def test_of_two_imports_of_one_session_one_is_shown(book: Book) -> None:
    book.ask(begin())
    book.ask(begin("import-two"))
    book.ask(chunk(log(SESSION, 2)))
    assert book.refused(chunk(log(SESSION, 2), "import-two")) == "EVENT_ID_CONFLICT"
    assert isinstance(book.ask(finish(2)), session.SessionRow)
    assert book.refused(finish(2, "import-two")) == "INVALID_ARGUMENT"


def test_what_is_left_is_removed_in_slices_and_blocks_until_then(book: Book) -> None:
    book.ask(begin())
    for first in range(1, 1300, 200):
        book.ask(chunk(log(SESSION, 200, first=first)))
    book.ask(archive.AbortImport(import_id="import-one"))
    assert book.refused(chunk(log(SESSION, 1, first=1401))) == "SESSION_NOT_FOUND"
    assert book.refused(begin("import-two")) == "OVERLOADED"
    slices = 0
    while book.desk.remove_import_slice():
        slices += 1
    assert slices == 3
    assert book.connection.execute("select count(*) from sessions").fetchone() == (0,)
    import_two = begin("import-two")
    assert book.ask(import_two) == archive.ImportBegun(exists=False)
    assert book.ask(chunk(log(SESSION, 2), "import-two")) == Done()


def test_after_a_restart_nothing_of_an_import_is_wanted(book: Book) -> None:
    book.ask(begin())
    book.ask(chunk(log(SESSION, 3)))
    book.close()
    book.open()
    assert book.refused(finish(3)) == "SESSION_NOT_FOUND"
    while book.desk.remove_import_slice():
        pass
    count = "select count(*) from events where event_id like ?"
    assert book.connection.execute(count, (f"{SESSION}/%",)).fetchone() == (0,)


def test_an_import_is_refused_when_there_is_no_room(book: Book) -> None:
    book.ask(begin())
    book.full = True
    assert book.refused(chunk(log(SESSION, 2))) == "DISK_FULL"
    assert book.refused(begin("import-two")) == "DISK_FULL"


def test_the_step_that_shows_a_session_writes_all_or_nothing(book: Book) -> None:
    book.ask(begin())
    book.ask(chunk(log(SESSION, 2)))
    with_agent = create_agent(AGENT, "session-of-its-own")
    book.ask(with_agent)
    assert isinstance(book.ask(finish(2)), Refused)
    assert isinstance(book.read(session.GetSession(session_id=SESSION)), Refused)
    row = book.connection.execute("select count(*) from sessions where state = 'importing'")
    assert row.fetchone() == (1,)


def test_the_bounds_of_the_store_hold_for_imports(tmp_path: Path) -> None:
    book = Book(tmp_path)
    store = msgspec.structs.replace(book.settings.store, session_events=100, sessions=1)
    book.close()
    book.settings = msgspec.structs.replace(book.settings, store=store)
    book.open()
    book.ask(begin())
    book.ask(chunk(log(SESSION, 30)))
    assert book.refused(chunk(log(SESSION, 30, first=31))) == "EVENT_STORE_CAPACITY_EXCEEDED"
    book.ask(chunk(log(SESSION, 6, first=31)))
    assert isinstance(book.ask(finish(36)), session.SessionRow)
    another = archive.BeginImport(
        import_id="import-two", session_id=SessionId("s-2"), first_sequence=1
    )
    assert book.refused(another) == "EVENT_STORE_CAPACITY_EXCEEDED"
    book.close()
