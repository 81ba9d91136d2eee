"""How many sessions, events, agents, turns and calls there are: counted once, then kept by triggers of this connection.

The triggers and their one row are temporary and in memory, and take part in every transaction: whatever changes a row
changes the figures with it, and a rollback takes both back. Reading them is as cheap in a store of a million sessions
as in an empty one.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Final

from roost.schemas.session import AgentWork, Counts

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_WORK: Final = 4_096

# Sessions that are just coming in, or going, are nobody's yet or any more.
_SHOWN: Final = "{row}.state not in ('importing', 'purging')"
_LAST: Final = "(select coalesce(max(last_sequence), 0) from counters where session = {row}.key)"
_HELD: Final = f"({_LAST} - {{row}}.first_sequence + 1)"
# What a row adds to each figure, by table.
_COUNTED: Final = {
    "sessions": {
        "active": f"{_SHOWN} and {{row}}.state <> 'closed'",
        "closed": "{row}.state = 'closed'",
        "events": f"({_SHOWN}) * {_HELD}",
    },
    "agents": {"agents": "{row}.state = 'live'"},
    "turns": {"turns": "{row}.state = 'open'"},
    "pending": {"pending": "{row}.state = 'open'"},
    "messages": {"queued": "{row}.state = 'queued'"},
    "tool_ledger": {"calls": "{row}.state = 'running'"},
}
_NAMES: Final = tuple(name for figures in _COUNTED.values() for name in figures)
# Indexes lead to the rows of these states, so the others are not read when they are counted.
_INDEXED: Final = {"turns": "open", "pending": "open", "messages": "queued"}
_WORK: Final = f"""select s.agent_id, sum(turn), sum(queued), sum(waiting) from (
        select session, 1 turn, 0 queued, 0 waiting from turns where state = 'open'
        union all select session, 0, 1, 0 from messages where state = 'queued'
        union all select session, 0, 0, 1 from pending where state = 'open'
    ) join sessions s on s.key = session group by s.agent_id limit {MAX_WORK}"""

_log = logging.getLogger(__name__)


class Totals:
    """The figures of `health.stats`, as of the last commit; call it between transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._missing: sqlite3.Error | None = None
        columns = ", ".join(f"{name} integer not null" for name in _NAMES)
        connection.execute(f"create temp table totals({columns})")
        values = [value for table in _COUNTED for value in self._count(table)]
        marks = ", ".join("?" for _ in values)
        connection.execute(f"insert into temp.totals values({marks})", values)
        for table, figures in _COUNTED.items():
            self._watch(table, figures)
        # What is appended replaces counters, which no trigger sees, and is counted once for each group (`grow`): a trigger
        # would run for each session of it. An update puts them right.
        self._grown = 0
        shown = _SHOWN.format(row="sessions")
        self._trigger(
            "counters",
            "update of last_sequence",
            f"events = events + coalesce((select {shown} from sessions where key = new.session), 0)"
            " * (new.last_sequence - old.last_sequence)",
        )
        self._trigger(
            "sessions",
            "update of first_sequence",
            f"events = events + ({_SHOWN.format(row='old')}) * (old.first_sequence - new.first_sequence)",
        )

    def grow(self, events: int) -> None:
        """Count events that a transaction has appended."""
        self._grown += events

    def recount(self) -> None:
        """Count the events of all sessions again, in a transaction that appends none: their numbers have been put right."""
        self._grown = 0
        amount = _COUNTED["sessions"]["events"].format(row="sessions")
        self._db.execute(
            f"update temp.totals set events = (select coalesce(sum({amount}), 0) from sessions)"
        )

    def sessions(self) -> tuple[int, int]:
        """Return how many sessions are not closed, and how many are.

        Raises:
            sqlite3.Error: as for `read`.
        """
        if self._missing is not None:
            raise self._missing
        active, closed = self._db.execute("select active, closed from temp.totals").fetchone()
        return active, closed

    def read(self) -> Counts:
        """Return the figures, and who has work to do.

        Raises:
            sqlite3.Error: the file could not be read when they were counted, or cannot be now.
        """
        if self._missing is not None:
            raise self._missing
        row = self._db.execute(f"select {', '.join(_NAMES)} from temp.totals").fetchone()
        found: dict[str, int] = dict(zip(_NAMES, row, strict=True))
        work = tuple(AgentWork(*each) for each in self._db.execute(_WORK))
        return Counts(
            active=found["active"],
            closed=found["closed"],
            agents=found["agents"],
            turns_open=found["turns"],
            calls_open=found["calls"],
            pending=found["pending"],
            queued=found["queued"],
            events=found["events"] + self._grown,
            work=work,
        )

    def _count(self, table: str) -> tuple[int, ...]:
        amounts = [amount.format(row=table) for amount in _COUNTED[table].values()]
        sums = ", ".join(f"coalesce(sum({amount}), 0)" for amount in amounts)
        state = _INDEXED.get(table)
        where = f" where state = '{state}'" if state else ""
        try:
            found: tuple[int, ...] = self._db.execute(
                f"select {sums} from {table}{where}"
            ).fetchone()
        except sqlite3.Error as error:
            # Figures are not worth a store that does not open; what needs the rows tells of the damage.
            _log.error("the %s cannot be counted: %s", table, error)
            self._missing = error
            return (0,) * len(amounts)
        return found

    def _watch(self, table: str, figures: dict[str, str]) -> None:
        """Have rows counted as they come and go. A change of state counts what a session holds after it."""

        def change(of_row: Callable[[str], str]) -> str:
            return ", ".join(f"{name} = {name} {of_row(figures[name])}" for name in figures)

        self._trigger(table, "insert", change(lambda amount: f"+ ({amount.format(row='new')})"))
        self._trigger(table, "delete", change(lambda amount: f"- ({amount.format(row='old')})"))

        def moved(amount: str) -> str:
            was = amount.replace("{row}.state", "old.state").format(row="new")
            return f"+ ({amount.format(row='new')}) - ({was})"

        self._trigger(table, "update of state", change(moved))

    def _trigger(self, table: str, event: str, what: str) -> None:
        name = "totals_" + "_".join([table, *event.replace(",", "").split()])
        self._db.execute(
            f"create temp trigger {name} after {event} on main.{table}"
            f" begin update totals set {what}; end"
        )
