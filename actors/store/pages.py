"""The pages of a SQLite file, read without SQLite: what a page holds counts, not whether another one leads to it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE_LEAF: Final = 0x0D
TABLE_INNER: Final = 0x05
INDEX_LEAF: Final = 0x0A
INDEX_INNER: Final = 0x02
FILE_HEADER: Final = 100
MAX_PAYLOAD: Final = 64 * 1024 * 1024
_INNER: Final = frozenset({TABLE_INNER, INDEX_INNER})
_INTEGERS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}

Value = None | int | float | str | bytes


class Broken(Exception):
    """What is read is not what SQLite writes."""


class Row(NamedTuple):
    """One record; `rowid` is 0 in a tree of keys."""

    rowid: int
    values: tuple[Value, ...]


class Pages:
    """The pages of one file."""

    def __init__(self, data: memoryview, page_size: int) -> None:
        self._data = data
        self.size = page_size
        self.count = len(data) // page_size

    def page(self, number: int) -> bytes:
        """Return a page by its number, from 1.

        Raises:
            Broken: there is no such page.
        """
        if not 0 < number <= self.count:
            raise Broken(f"there is no page {number}")
        return bytes(self._data[(number - 1) * self.size : number * self.size])

    def kind(self, number: int) -> int:
        """Return what kind of tree page this is, by its first byte."""
        return self.page(number)[FILE_HEADER if number == 1 else 0]

    def children(self, number: int) -> list[int]:
        """Return the pages that an inner page leads to."""
        page = self.page(number)
        base = FILE_HEADER if number == 1 else 0
        if page[base] not in _INNER:
            return []
        found = [
            struct.unpack_from(">I", page, at)[0]
            for at in _cells(page, base, 12)
            if at + 4 <= len(page)
        ]
        return [*found, struct.unpack_from(">I", page, base + 8)[0]]

    def rows(self, number: int) -> Iterator[Row | None]:
        """Yield the records of a page, and None for each that cannot be read."""
        return self.rows_in(self.page(number), FILE_HEADER if number == 1 else 0)

    def rows_in(self, page: bytes, base: int = 0) -> Iterator[Row | None]:
        """Yield the records of a page that need not be one of the file's."""
        kind = page[base]
        if kind not in {TABLE_LEAF, INDEX_LEAF, INDEX_INNER}:
            return
        for at in _cells(page, base, 12 if kind == INDEX_INNER else 8):
            try:
                yield self._row(page, at, kind)
            except (Broken, IndexError, struct.error, UnicodeDecodeError, ValueError):
                yield None

    def free(self) -> set[int]:
        """Return the pages that are said to be free."""
        found: set[int] = set()
        trunk = struct.unpack_from(">I", self.page(1), 32)[0]
        while trunk and trunk not in found and trunk <= self.count:
            page = self.page(trunk)
            following, count = struct.unpack_from(">II", page)
            if count > len(page) // 4 - 2 or (following > self.count):
                break
            found.add(trunk)
            found.update(struct.unpack_from(f">{count}I", page, 8))
            trunk = following
        return found

    def _row(self, page: bytes, at: int, kind: int) -> Row:
        if kind == INDEX_INNER:
            at += 4
        length, at = varint(page, at)
        rowid = 0
        if kind == TABLE_LEAF:
            rowid, at = varint(page, at)
        if not 0 < length <= MAX_PAYLOAD:
            raise Broken("no record is that long")
        return Row(rowid, values_of(self._payload(page, at, length, kind)))

    def _payload(self, page: bytes, at: int, length: int, kind: int) -> bytes:
        usable = self.size
        least = (usable - 12) * 32 // 255 - 23
        most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if length <= most:
            if at + length > len(page):
                raise Broken("a record goes over its page")
            return page[at : at + length]
        local = least + (length - least) % (usable - 4)
        if local > most:
            local = least
        parts = [page[at : at + local]]
        following = struct.unpack_from(">I", page, at + local)[0]
        left = length - local
        while left > 0:
            more = self.page(following)
            parts.append(more[4 : 4 + left])
            left -= len(parts[-1])
            following = struct.unpack_from(">I", more)[0]
        return b"".join(parts)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer of variable length at a place, and the place behind it."""
    value = 0
    for place in range(at, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


def values_of(payload: bytes) -> tuple[Value, ...]:
    """Return the values of a record.

    Raises:
        Broken: it is none; UnicodeDecodeError and IndexError say the same.
    """
    header, at = varint(payload, 0)
    kinds: list[int] = []
    while at < header:
        kind, at = varint(payload, at)
        kinds.append(kind)
    if at != header:
        raise Broken("a record's header has another length")
    values: list[Value] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != len(payload):
        raise Broken("a record has another length than its values")
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    if kind in {8, 9}:
        return kind - 8, at
    if kind < 12:
        raise Broken("a value of no kind")
    end = at + (kind - 12) // 2
    part = payload[at:end]
    if end > len(payload):
        raise Broken("a value goes over its record")
    return (part.decode() if kind & 1 else part), end


def _cells(page: bytes, base: int, header: int) -> list[int]:
    """Return where the cells of a tree page begin, as far as that can be."""
    count = struct.unpack_from(">H", page, base + 3)[0]
    start = base + header
    count = min(count, (len(page) - start) // 2)
    return [at for at in struct.unpack_from(f">{count}H", page, start) if start <= at < len(page)]
