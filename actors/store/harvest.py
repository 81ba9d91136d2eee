"""What can be read out of a damaged file, table by table, whatever does not lead there any more."""

from __future__ import annotations

import sqlite3
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from roost.actors.store.database import MIGRATIONS
from roost.actors.store.pages import TABLE_LEAF, Broken, Pages, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roost.actors.store.pages import Value

EVENTS: Final = "events"
# Only these are taken from older versions of a page; in other tables an old row may have been removed on purpose.
FROM_OLDER: Final = frozenset({EVENTS, "sessions", "counters", "agents"})
SCHEMA_KINDS: Final = frozenset({"table", "index", "trigger", "view"})
# SQLite keeps a page out of use at this place of a file.
PENDING_BYTE: Final = 2**30
PAGE_COUNT: Final = 28


class Column(NamedTuple):
    """A column as rows are stored."""

    name: str
    kind: str
    optional: bool
    default: bool


class Shape(NamedTuple):
    """A table as its rows are stored; `root` is its page in a new file, `keyed` says that it has rowids."""

    name: str
    columns: tuple[Column, ...]
    keyed: bool
    root: int

    def fits(self, values: tuple[Value, ...]) -> bool:
        """Return whether a record can be a row of this table."""
        if not values or len(values) > len(self.columns):
            return False
        if any(not column.default for column in self.columns[len(values) :]):
            return False
        return all(
            (value is None and column.optional) or _is(value, column.kind)
            for value, column in zip(values, self.columns, strict=False)
        )


class Found(NamedTuple):
    """A row of a table: its columns by name."""

    table: str
    columns: dict[str, Value]


def shapes() -> tuple[Shape, ...]:
    """Return the tables of this version of the format."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("pragma auto_vacuum = incremental")
        for statements in MIGRATIONS:
            for statement in statements:
                connection.execute(statement)
        sql = "select name, sql, rootpage from sqlite_master where type = 'table'"
        return tuple(_shape(connection, *row) for row in connection.execute(sql).fetchall())
    finally:
        connection.close()


class Harvest:
    """One pass over the pages of a file; `older` are pages that were in the place of damaged ones before."""

    def __init__(self, pages: Pages, older: Iterable[bytes] = ()) -> None:
        self.unreadable: dict[str, int] = {}
        self._pages = pages
        self._older = tuple(older)
        self._shapes = {shape.name: shape for shape in shapes()}
        self._owners: dict[int, str] = {}
        self._assign()

    def rows(self, *, events: bool) -> Iterator[Found]:
        """Yield the rows of the event log, or those of all other tables; those that are still in place come first."""
        for number, owner in self._owners.items():
            if (owner == EVENTS) == events:
                yield from self._rows_of(self._pages.rows(number), owner, events=events)
        for number in self._orphans():
            yield from self._rows_of(self._pages.rows(number), "", events=events)
        for page in self._older:
            if page[0] == TABLE_LEAF:
                # What cannot be read there need not be lost: there may be a later version.
                named = (self._named(row, "") for row in self._pages.rows_in(page) if row)
                for found in named:
                    if found and found.table in FROM_OLDER and (found.table == EVENTS) == events:
                        yield found

    def missing(self) -> tuple[int, int]:
        """Return how many pages are cut off or blank, and how many there should be by the header."""
        blank = bytes(self._pages.size)
        said = int.from_bytes(self._pages.page(1)[PAGE_COUNT : PAGE_COUNT + 4], "big")
        free = self._free() | {PENDING_BYTE // self._pages.size + 1}
        cut_off = max(0, said - self._pages.count)
        lacking = cut_off - sum(self._pages.count < number <= said for number in free)
        for number in range(2, min(said, self._pages.count) + 1):
            if number not in free and self._pages.page(number) == blank:
                lacking += 1
        return lacking, said

    def _rows_of(self, rows: Iterator[Row | None], owner: str, *, events: bool) -> Iterator[Found]:
        for row in rows:
            found = None if row is None else self._named(row, owner)
            if found is not None:
                if (found.table == EVENTS) == events:
                    yield found
            elif owner or (events and not _is_schema(row)):
                name = owner or "unknown"
                self.unreadable[name] = self.unreadable.get(name, 0) + 1

    def _named(self, row: Row, owner: str) -> Found | None:
        shape = self._shapes.get(owner)
        if shape is None or not shape.fits(row.values):
            if shape is not None and not shape.keyed:
                return None
            fitting = (
                other for other in self._shapes.values() if other.keyed and other.fits(row.values)
            )
            shape = next(fitting, None)
        if shape is None:
            return None
        names = (column.name for column in shape.columns)
        columns = dict(zip(names, row.values, strict=False))
        if shape.keyed:
            columns[shape.columns[0].name] = row.rowid
        return Found(shape.name, columns)

    def _assign(self) -> None:
        """Find out which pages belong to which table, as far as pages still lead to each other."""
        roots = {name: shape.root for name, shape in self._shapes.items()}
        roots.update(self._roots())
        for name, root in roots.items():
            waiting = [root]
            seen: set[int] = set()
            while waiting:
                number = waiting.pop()
                if number in seen or number in self._owners or not 1 < number <= self._pages.count:
                    continue
                seen.add(number)
                waiting.extend(reversed(self._pages.children(number)))
                kind = self._pages.kind(number)
                if (kind == TABLE_LEAF) if self._shapes[name].keyed else kind in {0x02, 0x0A}:
                    self._owners[number] = name

    def _roots(self) -> Iterator[tuple[str, int]]:
        waiting = [1]
        seen: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number in seen or not 0 < number <= self._pages.count:
                continue
            seen.add(number)
            waiting.extend(self._pages.children(number))
            for row in self._pages.rows(number):
                if row is not None and len(row.values) == 5 and row.values[0] == "table":
                    _, name, _, root, _ = row.values
                    if isinstance(name, str) and name in self._shapes and isinstance(root, int):
                        yield name, root

    def _free(self) -> set[int]:
        try:
            return self._pages.free()
        except (Broken, struct.error):
            return set()

    def _orphans(self) -> Iterator[int]:
        """Yield the pages with rows that nothing leads to, but for those that are free."""
        free = self._free()
        for number in range(2, self._pages.count + 1):
            if (
                number not in self._owners
                and number not in free
                and self._pages.kind(number) == TABLE_LEAF
            ):
                yield number


def _shape(connection: sqlite3.Connection, name: str, sql: str, root: int) -> Shape:
    keyed = "without rowid" not in sql.lower()
    rows = connection.execute(f"pragma table_info({name})").fetchall()
    if not keyed:
        # The key comes first there, then the rest.
        rows.sort(key=lambda row: (not row[5], row[5]))
    columns = tuple(
        Column(
            name=row[1],
            kind="any" if name == "meta" and row[1] == "value" else row[2].lower(),
            optional=not row[3] and (keyed or not row[5]),
            default=row[4] is not None or (not row[3] and not row[5]),
        )
        for row in rows
    )
    return Shape(name, columns, keyed, root)


def _is_schema(row: Row | None) -> bool:
    """Return whether a row is one of SQLite's own, which is made anew with the file."""
    return row is not None and len(row.values) == 5 and row.values[0] in SCHEMA_KINDS


def _is(value: Value, kind: str) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int)
        case "text":
            return isinstance(value, str)
        case "blob":
            return isinstance(value, bytes)
        case "real":
            return isinstance(value, (int, float))
        case _:
            return isinstance(value, (str, bytes))
