"""The rules of appending: once by its id whatever happens in between, and nobody else is touched by a refusal."""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING

import msgspec

from roost.actors.store.changes import Refusal
from roost.actors.store.desk import Item
from roost.schemas.session import EventBatch
from tests.support.desk import Actor, Book, with_actor
from tests.support.store import delta

if TYPE_CHECKING:
    import pytest

    from roost.schemas import turn

CONFLICT = "EVENT_ID_CONFLICT"


def text(actor: Actor, words: str = "x") -> turn.Draft:
    return actor.draft(delta(actor.session_id, "t", words))


def published(book: Book) -> list[tuple[str, int, bytes]]:
    """Return all events that were ever published: session, sequence, body."""
    return [
        (item.session_id, item.first + number, body)
        for effects in book.effects
        for item in effects.items
        if isinstance(item, EventBatch)
        for number, body in enumerate(item.bodies)
    ]


def under_the_id_of(draft: turn.Draft, actor: Actor, words: str) -> turn.Draft:
    other = msgspec.structs.replace(delta(actor.session_id, "t", words), id=draft.event_id)
    return actor.draft(other)


def test_what_is_sent_again_is_published_once(actor: Actor) -> None:
    book = actor.book
    first, second = text(actor), text(actor)
    assert actor.send(first, first) == [2, 2]
    assert actor.send(first) == [2]
    assert actor.send(first, second) == [2, 3]
    book.close()
    book.open()
    assert actor.send(first, second) == [2, 3]
    bodies = [(sequence, body) for _, sequence, body in published(book)]
    assert bodies[-2:] == [(2, first.body), (3, second.body)]
    assert len(bodies) == 3


def test_an_id_stays_taken_after_a_restart_and_in_every_session(book: Book) -> None:
    mine, other = with_actor(book), with_actor(book)
    draft = text(mine)
    assert mine.send(draft) == [2]
    book.close()
    book.open()
    assert mine.send(under_the_id_of(draft, mine, "other words")) == [CONFLICT]
    assert other.send(under_the_id_of(draft, other, "x"), text(other)) == [CONFLICT, 2]
    assert mine.send(draft, text(mine)) == [2, 3]


def test_an_id_used_twice_in_a_group_belongs_to_the_first(book: Book) -> None:
    mine, other = with_actor(book), with_actor(book)
    draft = text(mine)
    answers = book.write(
        (mine.agent_id, draft),
        (other.agent_id, under_the_id_of(draft, other, "x")),
        (other.agent_id, text(other)),
        (mine.agent_id, under_the_id_of(draft, mine, "y")),
        (mine.agent_id, text(mine)),
    )
    assert [getattr(answer, "code", answer) for answer in answers] == [2, CONFLICT, 2, CONFLICT, 3]


def test_a_group_whose_commit_fails_is_written_when_it_is_sent_again(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = actor.book
    drafts = [text(actor) for _ in range(3)]
    items = [Item(actor.agent_id, draft) for draft in drafts]
    seen = len(published(book))

    def fail() -> None:
        book.desk.journal.flush()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(book.desk.journal, "commit", fail)
        result = book.desk.write(items)
    assert result.error is not None
    assert (result.answers, result.effects.items) == ([], [])
    assert book.row(actor.session_id).last_sequence == 1
    assert actor.send(*drafts) == [2, 3, 4]
    assert len(published(book)) == seen + 3


def test_a_commit_whose_answer_was_lost_is_resolved_by_sending_it_again(actor: Actor) -> None:
    drafts = [text(actor) for _ in range(3)]
    actor.book.desk.write([Item(actor.agent_id, draft) for draft in drafts[:2]])
    actor.book.close()
    actor.book.open()
    assert actor.send(*drafts) == [2, 3, 4]
    assert len(actor.book.log(actor.session_id)) == 4


def test_refused_drafts_among_others_leave_no_gap_and_change_no_neighbour(book: Book) -> None:
    """Groups of drafts of three sessions, some good, some sent again, some refused; a plain count says what is right."""
    chance = random.Random(3)
    actors = [with_actor(book) for _ in range(3)]
    logs: dict[str, list[turn.Draft]] = {actor.session_id: [] for actor in actors}
    for _ in range(60):
        group: list[tuple[Actor, turn.Draft]] = []
        expected: list[int | str] = []
        for _ in range(chance.randint(1, 12)):
            actor = chance.choice(actors)
            log = logs[actor.session_id]
            draft = text(actor, str(chance.random()))
            kind = chance.choice(["good", "good", "again", "conflict", "stale", "unreadable"])
            if kind == "good" or not log:
                log.append(draft)
                expected.append(len(log) + 1)
            elif kind == "again":
                number = chance.randrange(len(log))
                draft = log[number]
                expected.append(number + 2)
            elif kind == "conflict":
                draft = under_the_id_of(chance.choice(log), actor, "other words")
                expected.append(CONFLICT)
            elif kind == "stale":
                draft = msgspec.structs.replace(draft, generation=draft.generation - 1)
                expected.append("STALE_GENERATION")
            else:
                draft = msgspec.structs.replace(draft, body=b"{")
                expected.append("EVENT_SCHEMA_INCOMPATIBLE")
            group.append((actor, draft))
        answers = book.write(*((actor.agent_id, draft) for actor, draft in group))
        found = [answer.code if isinstance(answer, Refusal) else answer for answer in answers]
        assert found == expected
    for actor in actors:
        rows = book.connection.execute(
            "select sequence, event_id from events where session ="
            " (select key from sessions where session_id = ?) order by sequence",
            (actor.session_id,),
        ).fetchall()
        ids = [draft.event_id for draft in logs[actor.session_id]]
        assert rows[1:] == list(zip(range(2, len(ids) + 2), ids, strict=True))
        sent = [(s, b) for session_id, s, b in published(book) if session_id == actor.session_id]
        assert [s for s, _ in sent] == list(range(1, len(ids) + 2))
        assert [b for _, b in sent][1:] == [draft.body for draft in logs[actor.session_id]]
