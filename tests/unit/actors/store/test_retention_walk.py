"""Random histories under random bounds, cut short at random: what is left is always a correct log."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from roost.actors.store.database import EVENT_BYTES
from roost.actors.store.retention import DAY
from roost.config.model import Retention as Limits
from roost.schemas import session, turn
from tests.support.desk import Actor, Book, decoded, with_actor
from tests.support.store import delta, final

if TYPE_CHECKING:
    from roost.schemas.base import TurnId

MOVES = 60
STEPS = 3_000


class Walk:
    """A store with a few sessions, and what they must still hold."""

    def __init__(self, book: Book, chance: random.Random) -> None:
        self.book = book
        self.chance = chance
        self.actors: list[Actor] = []
        self.open: dict[str, TurnId] = {}
        self.newest: dict[str, int] = {}
        self.limits = Limits(session_bytes=0, session_days=0, total_bytes=0, closed_days=0)

    def move(self) -> None:
        moves = (self.add, self.write, self.write, self.write, self.end, self.end)
        rare = (self.close, self.bound, self.step, self.settle, self.restart, self.age)
        self.chance.choice(moves * 2 + rare)()
        self.book.desk.retention.after_commit()

    def add(self) -> None:
        if len(self.actors) < 4:
            self.actors.append(with_actor(self.book))

    def pick(self) -> Actor | None:
        return self.chance.choice(self.actors) if self.actors else None

    def write(self) -> None:
        actor = self.pick()
        if actor is None:
            return
        turn_id = self.open.get(actor.session_id)
        if turn_id is None:
            self.newest[actor.session_id] = self.book.row(actor.session_id).last_sequence + 1
            turn_id = self.open[actor.session_id] = actor.begin()
        texts = [
            delta(actor.session_id, turn_id, "x" * self.chance.randrange(500))
            for _ in range(self.chance.randrange(1, 40))
        ]
        answers = actor.send(*map(actor.draft, texts))
        assert all(isinstance(answer, int) for answer in answers)

    def end(self) -> None:
        actor = self.pick()
        turn_id = self.open.pop(actor.session_id, None) if actor is not None else None
        if actor is not None and turn_id is not None:
            done = final(actor.session_id, turn_id)
            (answer,) = actor.send(
                actor.draft(done, turn.EndTurn(turn_id=turn_id, outcome="completed"))
            )
            assert isinstance(answer, int)

    def close(self) -> None:
        actor = self.pick()
        if actor is not None and actor.session_id not in self.open:
            self.book.ask(session.CloseSession(session_id=actor.session_id))
            self.actors.remove(actor)
            self.newest.pop(actor.session_id, None)

    def bound(self) -> None:
        pick = self.chance.choice
        self.limits = Limits(
            session_bytes=pick((0, 0, 5_000, 20_000)),
            session_days=pick((0, 0, 1)),
            total_bytes=pick((0, 0, 10_000, 50_000)),
            closed_days=pick((0, 0, 1)),
        )
        self.book.desk.retention.configure(self.limits)

    def age(self) -> None:
        """Let all that is there be old; the events say that they are of 1970."""
        self.book.time += DAY
        self.book.desk.retention.look()

    def step(self) -> None:
        for _ in range(self.chance.randrange(4)):
            self.book.desk.retention.step()

    def settle(self) -> None:
        for _ in range(STEPS):
            if self.book.desk.retention.step() is None:
                return
        raise AssertionError("retention does not come to an end")

    def restart(self) -> None:
        self.book.close()
        self.book.open()
        self.book.desk.retention.configure(self.limits)
        for actor in self.actors:
            actor.open()

    def check(self) -> None:
        for actor in self.actors:
            row = self.book.row(actor.session_id)
            page = session.ReadPage(session_id=actor.session_id, after=0, max_events=1_024)
            found = self.book.read(page)
            assert isinstance(found, session.Page)
            assert found.lost_upto == row.first_sequence - 1
            assert found.first == row.first_sequence
            if len(found.bodies) < 1_024:
                assert found.first + len(found.bodies) == row.last_sequence + 1
            if row.first_sequence > 1 and found.bodies:
                assert str(decoded(self.book, actor.session_id)[0].__struct_config__.tag) == (
                    "user.message"
                )
            if actor.session_id in self.open:
                assert row.first_sequence <= self.newest[actor.session_id]
        wrong = self.book.connection.execute(
            "select session_id from sessions s join counters on session = key where bytes <> coalesce((select"
            " sum(length(body) + ?) from events e where e.session = s.key"
            " and e.sequence >= s.first_sequence), 0)",
            (EVENT_BYTES,),
        ).fetchall()
        assert wrong == []
        if self.limits.total_bytes:
            sql = "select coalesce(sum(bytes), 0) from sessions join counters on session = key"
            (total,) = self.book.connection.execute(sql).fetchone()
            assert self.book.desk.journal.total_bytes == total


@pytest.mark.parametrize("seed", range(16))
def test_whatever_happens_the_logs_are_whole_from_where_they_begin(book: Book, seed: int) -> None:
    walk = Walk(book, random.Random(seed))
    for _ in range(MOVES):
        walk.move()
        walk.check()
    walk.settle()
    walk.check()
    left = "select count(*) from sessions where removed < first_sequence - 1"
    assert book.connection.execute(left).fetchone() == (0,)
    sql = """select count(*) from events e left join sessions s on s.key = e.session
        where s.key is null or e.sequence < s.first_sequence"""
    assert book.connection.execute(sql).fetchone() == (0,)
