"""Sessions from a file of JSON lines into the daemon: first every line is judged, then each session that is sound is sent.

A file may hold many sessions, one after the other or mixed. Of what is in it only where each session's lines lie is kept, in
a temporary database, so that a session is sent alone and in order; in memory is what is known of each session.
"""

from __future__ import annotations

import secrets
import sqlite3
from typing import IO, TYPE_CHECKING, Final

import msgspec
import trio

from roost.actors.client.errors import ClientError, RpcError
from roost.actors.client.export import open_snapshot
from roost.actors.client.log_lines import MAX_LINE, judge_line, read_bytes, read_lines
from roost.actors.client.replies import Reply
from roost.actors.store.snapshot import Broken, Gone, stored_line
from roost.schemas.archive import MAX_IMPORTED
from roost.schemas.validation import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roost.actors.client.connection import Connection
    from roost.actors.client.log_lines import Line
    from roost.actors.store.snapshot import LoggedSession, Snapshot
    from roost.config.paths import Home
    from roost.schemas.validation import StoredForm, Verdict

METHOD: Final = "roost.events.import"
CHUNK_EVENTS: Final = 200
CHUNK_BYTES: Final = 192 * 1024
# A longer line is sent in its shortest spelling, which fits the daemon's bounds.
LONG_LINE: Final = 256 * 1024
PATIENCE: Final = 60.0
# Faults of a session, which end its import only.
OWN_FAULTS: Final = ("INVALID_ARGUMENT", "EVENT_", "INVALID_DURABLE_VALUE")
LATER: Final = ("OVERLOADED", "RATE_LIMITED")
LOST: Final = "SESSION_NOT_FOUND"
ATTEMPTS: Final = 3

_RUNS = "create table runs(session integer, line integer, offset integer, lines integer)"
_INDEX = "create index runs_of on runs(session, line)"


class Step(Reply, frozen=True, kw_only=True):
    """Answer to a step of an import."""

    exists: bool = False
    last_sequence: int = 0
    agent_id: str = ""
    closed: bool = False


class _Owner(msgspec.Struct, frozen=True):
    session_id: str


class _Created(msgspec.Struct, frozen=True):
    timestamp: float
    metadata: dict[str, object] = {}


class _Retry(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_ms: float = 100.0
    sequence: int = 0


_owner = msgspec.json.Decoder(_Owner).decode
_created = msgspec.json.Decoder(_Created).decode
_retry = msgspec.json.Decoder(_Retry).decode


class Found:
    """What is known of a session in the file; `fault` says why it is not imported."""

    __slots__ = ("created_at", "cwd", "fault", "first", "key", "last", "session_id", "title")

    def __init__(self, session_id: str, key: int, first: int) -> None:
        self.session_id = session_id
        self.key = key
        self.first = first
        self.last = first - 1
        self.fault = ""
        self.title = self.cwd = ""
        self.created_at = 0


class Importer:
    """One import of one file."""

    def __init__(
        self, source: IO[bytes], home: Home, say: Callable[[dict[str, object], str], None]
    ) -> None:
        self.imported = self.unchanged = self.refused = self.refused_lines = 0
        self._source = source
        self._home = home
        self._say = say
        self._found: dict[str, Found] = {}
        # A database without a name lies on the disk as far as it is large, and goes with its connection.
        self._index = sqlite3.connect("", isolation_level=None)
        self._index.execute("pragma journal_mode = off")
        self._index.execute(_RUNS)
        self._run: tuple[Found, int, int, int] | None = None
        self._runs: list[tuple[int, int, int, int]] = []
        self._suspect = False
        self._last: Found | None = None

    @property
    def wanted(self) -> bool:
        """Whether a session is sound."""
        return any(not found.fault for found in self._found.values())

    def close(self) -> None:
        """Give the temporary database up."""
        self._index.close()

    def scan(self) -> None:
        """Judge every line, and tell of those that are refused and of the sessions that are spoilt by them.

        Raises:
            ClientError: the input cannot be read.
            sqlite3.Error: there is no room for the temporary database.
        """
        self._index.execute("begin")
        for line in read_lines(self._source):
            verdict = judge_line(line.text)
            if verdict.event is None:
                self._refuse_line(line, verdict)
            else:
                self._take(line, verdict.event)
        self._end_run()
        self._store_runs()
        self._index.execute(_INDEX)
        self._index.execute("commit")
        for found in self._found.values():
            if found.fault:
                self._tell_refused(found, found.fault)

    async def run(self, connection: Connection) -> None:
        """Send every sound session. Cancelled, or if the connection ends, the one under way leaves nothing."""
        with open_snapshot(self._home) as snapshot:
            for found in self._found.values():
                if not found.fault:
                    await self._import(connection, snapshot, found)

    def _refuse_line(self, line: Line, verdict: Verdict) -> None:
        self._end_run()
        self.refused_lines += 1
        told: dict[str, object] = {
            "line": line.number,
            "ok": False,
            "code": verdict.code,
            "path": verdict.path,
            "message": verdict.message,
        }
        self._say(told, f"line {line.number}: {verdict.code} at {verdict.path}: {verdict.message}")
        fault = f"line {line.number} is refused"
        try:
            session_id = _owner(line.text or b"").session_id
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # Whose it is cannot be told: the session before it or the one behind it lacks an event.
            if self._last is not None:
                self._last.fault = self._last.fault or fault
            self._suspect = True
            return
        found = self._found.get(session_id) or self._add(session_id, 1)
        found.fault = found.fault or fault
        self._last = found
        self._suspect = False

    def _take(self, line: Line, event: StoredForm) -> None:
        found = self._found.get(event.session_id)
        if found is None:
            found = self._add(event.session_id, event.sequence)
            if event.type == "session.created":
                _describe(found, event.body)
        if self._suspect:
            found.fault = found.fault or f"line {line.number - 1} is refused"
            self._suspect = False
        if event.sequence != found.last + 1 and not found.fault:
            found.fault = f"line {line.number}: event {event.sequence} follows event {found.last}"
        elif event.sequence > MAX_IMPORTED and not found.fault:
            found.fault = (
                f"line {line.number}: event {event.sequence} leaves no room for further ones:"
                f" {MAX_IMPORTED} is the last that is taken"
            )
        found.last = event.sequence
        self._last = found
        if self._run is not None and self._run[0] is found:
            self._run = (*self._run[:3], self._run[3] + 1)
        else:
            self._end_run()
            self._run = (found, line.number, line.offset, 1)

    def _add(self, session_id: str, first: int) -> Found:
        found = self._found[session_id] = Found(session_id, len(self._found), first)
        return found

    def _end_run(self) -> None:
        if self._run is not None:
            found, line, offset, lines = self._run
            self._runs.append((found.key, line, offset, lines))
            self._run = None
        if len(self._runs) >= 10_000:
            self._store_runs()

    def _store_runs(self) -> None:
        self._index.executemany("insert into runs values(?, ?, ?, ?)", self._runs)
        self._runs.clear()

    def _lines(self, found: Found) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a session with their numbers, in order."""
        sql = "select line, offset, lines from runs where session = ? order by line"
        for number, offset, count in self._index.execute(sql, (found.key,)):
            self._source.seek(offset)
            for line in range(number, number + count):
                yield line, read_bytes(self._source.readline, MAX_LINE + 2).rstrip(b"\r\n")

    async def _import(self, connection: Connection, snapshot: Snapshot, found: Found) -> None:
        """Send a session; one that the daemon lost on the way, because its store was restarted, is sent anew."""
        for left in reversed(range(ATTEMPTS)):
            import_id = secrets.token_hex(16)
            try:
                done = await self._attempt(connection, import_id, found)
            except RpcError as error:
                if error.code == LOST and left:
                    continue
                if not error.code.startswith(OWN_FAULTS):
                    text = f"session {found.session_id} is not imported: {error}"
                    raise ClientError(text) from None
                await _step(connection, {"importId": import_id, "step": "abort"})
                self._tell_refused(found, error.message)
            else:
                if done is None:
                    self._compare(snapshot, found)
                else:
                    self._tell_imported(found, done)
            return

    async def _attempt(self, connection: Connection, import_id: str, found: Found) -> Step | None:
        """Send a session and return the answer to the last step; None if there is one of its id already."""
        base: dict[str, object] = {"importId": import_id, "sessionId": found.session_id}
        begin = {**base, "step": "begin", "firstSequence": found.first}
        if (await _step(connection, begin)).exists:
            return None
        await self._send(connection, base, found)
        finish = {**base, "step": "finish", "lastSequence": found.last, "title": found.title}
        return await _step(connection, {**finish, "cwd": found.cwd, "createdAt": found.created_at})

    async def _send(self, connection: Connection, base: dict[str, object], found: Found) -> None:
        sequence = found.first
        chunk: list[bytes] = []
        numbers: list[int] = []
        size = 0

        async def flush() -> None:
            nonlocal sequence, size
            events = [msgspec.Raw(text) for text in chunk]
            params = {**base, "step": "events", "firstSequence": sequence, "events": events}
            try:
                await _step(connection, params)
            except RpcError as error:
                raise _at_line(error, sequence, numbers) from None
            sequence += len(chunk)
            chunk.clear()
            numbers.clear()
            size = 0

        for number, text in self._lines(found):
            if len(text) > LONG_LINE:
                text = _shortest(text)
            if chunk and (len(chunk) >= CHUNK_EVENTS or size + len(text) > CHUNK_BYTES):
                await flush()
            chunk.append(text)
            numbers.append(number)
            size += len(text)
        if chunk:
            await flush()

    def _compare(self, snapshot: Snapshot, found: Found) -> None:
        """Tell whether a session that is there already is the one in the file, as far as the file goes."""
        session = snapshot.session(found.session_id)
        if session is None:
            self._tell_refused(found, "it has just been removed")
            return
        fault = ""
        if found.last > session.last_sequence:
            fault = f"it exists with fewer events ({session.last_sequence})"
        else:
            fault = self._first_difference(snapshot, session, found)
        if fault:
            self._tell_refused(found, fault)
            return
        self.unchanged += 1
        told: dict[str, object] = {
            "session": found.session_id,
            "result": "unchanged",
            "events": found.last - found.first + 1,
        }
        self._say(told, f"session {found.session_id}: is there already; unchanged")

    def _first_difference(self, snapshot: Snapshot, session: LoggedSession, found: Found) -> str:
        start = max(found.first, session.first_sequence)
        stored = snapshot.events(session, start - 1, found.last)
        try:
            for sequence, (number, text) in enumerate(self._lines(found), found.first):
                if sequence >= start and not _is_same(text, *next(stored)):
                    return f"line {number}: it exists with another event {sequence}"
        except (Broken, Gone, StopIteration, sqlite3.Error) as error:
            return f"it exists and cannot be compared: {error}"
        return ""

    def _tell_imported(self, found: Found, done: Step) -> None:
        self.imported += 1
        count = found.last - found.first + 1
        told: dict[str, object] = {
            "session": found.session_id,
            "result": "imported",
            "events": count,
            "agent": done.agent_id,
            "closed": done.closed,
        }
        self._say(told, f"session {found.session_id}: {count} events, agent {done.agent_id}")

    def _tell_refused(self, found: Found, why: str) -> None:
        self.refused += 1
        told: dict[str, object] = {
            "session": found.session_id,
            "result": "refused",
            "message": why,
        }
        self._say(told, f"session {found.session_id}: not imported: {why}")


def _describe(found: Found, body: bytes) -> None:
    """Take title, folder and time from a session's first event."""
    created = _created(body)
    title, cwd = created.metadata.get("title"), created.metadata.get("cwd")
    found.title = title[:256] if isinstance(title, str) else ""
    found.cwd = cwd if isinstance(cwd, str) and cwd.startswith("/") else ""
    if 0 < created.timestamp < 2**42:
        found.created_at = int(created.timestamp * 1000)


def _shortest(text: bytes) -> bytes:
    event = judge(text).event
    return text if event is None else stored_line(event.sequence, event.body).rstrip(b"\n")


def _is_same(text: bytes, sequence: int, body: bytes) -> bool:
    """Return whether a line is the stored event, whatever the spelling."""
    given = judge(text).event
    if given is None or given.sequence != sequence:
        return False
    if given.body == body:
        return True
    stored = judge(stored_line(sequence, body)).event
    return stored is not None and _canonical(stored.body) == _canonical(given.body)


def _canonical(body: bytes) -> bytes:
    value = msgspec.json.decode(body, type=dict[str, object])
    value.setdefault("metadata", {})
    return msgspec.json.encode(value, order="deterministic")


def _at_line(error: RpcError, first: int, numbers: list[int]) -> RpcError:
    """Return the error with the line of the event that it names."""
    try:
        index = _retry(error.data).sequence - first
    except msgspec.MsgspecError:
        return error
    if not 0 <= index < len(numbers):
        return error
    message = f"line {numbers[index]}: {error.message}"
    return RpcError(error.number, message, error.code, error.data)


async def _step(connection: Connection, params: dict[str, object]) -> Step:
    """Carry out a step; one that comes too early is tried again for a while."""
    until = trio.current_time() + PATIENCE
    while True:
        try:
            return await connection.call(METHOD, params, Step)
        except RpcError as error:
            if error.code not in LATER or trio.current_time() > until:
                raise
            await trio.sleep(_pause(error))


def _pause(error: RpcError) -> float:
    try:
        return min(_retry(error.data).retry_after_ms / 1000, 5.0)
    except msgspec.MsgspecError:
        return 0.1
