"""The store's one file: who may open it, how it is opened, and its tables."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import sqlite3
from typing import TYPE_CHECKING

import trio

from roost.supervisor.errors import StartError, StartRefused

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID = 0x526F_6F73
LOCK_TIMEOUT = 20.0
LOCK_POLL = 0.02
CACHE_KIB = 16_384
PAGE_BYTES = 4_096
BUSY_SECONDS = 5.0
# The least that SQLite needs beside the database to open it.
SHM_BYTES = 64 * 1024
# What an event takes in the file besides its text: its row, and its entries in two indexes.
EVENT_BYTES = 200

# The first format with the table of that name.
COUNTERS = 5

# Errors of the disk: whatever was in the transaction is not at fault.
DISK_ERRORS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)

# One entry for each version of the format; an older file is brought up by the entries it lacks.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "create table meta(key text primary key, value blob not null) without rowid",
        """create table agents(
            key integer primary key, agent_id text not null unique, created_at integer not null,
            spec blob not null, state text not null default 'live',
            failed integer not null default 0, down integer not null default 0,
            error text not null default '', asleep integer not null default 0,
            cancelled integer not null default 0, recovered integer not null default 0,
            has_env integer not null default 0, env_lost integer not null default 0,
            started_at integer not null default 0, last_active_at integer not null default 0,
            ended_at integer not null default 0)""",
        "create index agents_order on agents(created_at, agent_id)",
        "create index agents_stopping on agents(key) where state = 'stopping'",
        """create table sessions(
            key integer primary key, session_id text not null unique, agent_id text not null,
            created_at integer not null, spec blob not null, state text not null default 'open',
            generation integer not null default 0, last_sequence integer not null default 0,
            first_sequence integer not null default 1, delivered integer not null default 0,
            turns integer not null default 0, input_tokens integer not null default 0,
            output_tokens integer not null default 0, cost_usd real not null default 0,
            closed_at integer not null default 0, close_reason text not null default '',
            cleared_after integer not null default 0, recovered integer not null default 0)""",
        "create index sessions_agent on sessions(agent_id, created_at, session_id)",
        "create index sessions_order on sessions(created_at, session_id)",
        "create index sessions_closing on sessions(key) where state = 'closing'",
        """create table events(
            key integer primary key, session integer not null, sequence integer not null,
            event_id text not null, type text not null, turn_id text not null,
            body blob not null, crc integer not null)""",
        "create unique index events_order on events(session, sequence)",
        "create unique index events_id on events(event_id)",
        """create table messages(
            key integer primary key, session integer not null, message_id text not null,
            client_message_id text not null, sha256 blob not null, stream_id text not null,
            accepted_at integer not null, content blob not null, text text not null,
            display text, hidden integer not null, metadata blob not null,
            state text not null default 'queued', turn_id text not null default '',
            outcome text not null default '', error text not null default '')""",
        "create unique index messages_id on messages(session, message_id)",
        """create unique index messages_client on messages(session, client_message_id)
            where client_message_id <> ''""",
        "create index messages_queued on messages(session) where state = 'queued'",
        "create index messages_turn on messages(session, turn_id) where state = 'begun'",
        """create table turns(
            key integer primary key, turn_id text not null unique, session integer not null,
            message_id text not null, generation integer not null,
            state text not null default 'open', outcome text not null default '',
            error text not null default '', first_sequence integer not null,
            runner_state blob not null default x'', cancel_reason text)""",
        "create unique index turns_open on turns(session) where state = 'open'",
        """create table pending(
            key integer primary key, session integer not null, request_id text not null,
            turn_id text not null, event_id text not null, state text not null,
            settled_by text not null default '', record blob not null)""",
        "create unique index pending_id on pending(session, request_id)",
        "create index pending_open on pending(session) where state = 'open'",
        "create index pending_turn on pending(turn_id)",
        """create table grants(
            agent_id text not null, session integer not null, grant_key text not null,
            granted_at integer not null,
            primary key (agent_id, session, grant_key)) without rowid""",
    ),
    (
        # What the events of a session take, and up to which sequence their rows are gone.
        "alter table sessions add column bytes integer not null default 0",
        "alter table sessions add column removed integer not null default 0",
        f"""update sessions set bytes = coalesce((select sum(length(body) + {EVENT_BYTES}) from events
            where session = sessions.key), 0)""",
        "create index sessions_removing on sessions(key) where removed < first_sequence - 1",
        "create index sessions_purging on sessions(key) where state = 'purging'",
        "create index sessions_closed on sessions(closed_at) where state = 'closed'",
        "create index sessions_importing on sessions(key) where state = 'importing'",
        """create table tool_ledger(
            session integer not null, call_id text not null, fingerprint blob not null,
            state text not null default 'running', at integer not null,
            sequence integer not null default 0, primary key (session, call_id)) without rowid""",
        "create index tool_ledger_completed on tool_ledger(at) where state = 'completed'",
    ),
    (
        # What a session has done and used, kept in its row: retention takes away what it could be counted from.
        "alter table sessions add column completed integer not null default 0",
        "alter table sessions add column total_tokens integer not null default 0",
        "alter table sessions add column requests integer not null default 0",
        "alter table sessions add column cache_read integer not null default 0",
        "alter table sessions add column cache_creation integer not null default 0",
        "alter table sessions add column cleared_at integer not null default 0",
        # A turn of which nothing is left but its number counts as completed; one that was imported has no row.
        "create index turns_not_completed on turns(session) where outcome in ('failed', 'interrupted')",
        """update sessions set total_tokens = input_tokens + output_tokens, completed = max(0, turns - max(
            (select count(*) from turns t where t.session = sessions.key
                and t.outcome in ('failed', 'interrupted')),
            (select count(*) from events e where e.session = sessions.key and e.type in
                ('agent.turn.failed', 'agent.turn.exhausted', 'cancellation.completed'))))""",
        "drop index turns_not_completed",
        # Why a call that runs is to stop; null while it is not.
        "alter table tool_ledger add column cancel_reason text",
    ),
    (
        # Sessions in the order in which something happened in them, closed ones apart; pages are found in the index alone.
        "alter table sessions add column updated_at integer not null default 0",
        "alter table sessions add column preview text not null default ''",
        """update sessions set updated_at = max(created_at, closed_at, coalesce((select last_active_at
            from agents a where a.agent_id = sessions.agent_id and sessions.state <> 'closed'), 0))""",
        """create index sessions_live on sessions(updated_at, session_id, state)
            where state in ('open', 'closing')""",
        """create index sessions_archived on sessions(updated_at, session_id, state)
            where state = 'closed'""",
        # Those that go when they are closed, and at every start.
        "alter table sessions add column ephemeral integer not null default 0",
        "create index sessions_ephemeral on sessions(key) where ephemeral = 1",
        # The turn that was promised to a message, or that it steers.
        "alter table messages add column planned text not null default ''",
        "alter table messages add column steering integer not null default 0",
        "alter table messages add column model text not null default ''",
        "alter table messages add column input blob not null default x''",
        "create index messages_planned on messages(session, planned) where planned <> ''",
    ),
    (
        # What every group changes of a session, apart from its row: of many sessions it takes one page, and not dozens.
        """create table counters(session integer primary key, last_sequence integer not null default 0,
            bytes integer not null default 0)""",
        "insert into counters select key, last_sequence, bytes from sessions",
        """create trigger sessions_added after insert on sessions begin
            insert or replace into counters(session) values(new.key); end""",
        """create trigger sessions_gone after delete on sessions begin
            delete from counters where session = old.key; end""",
        # A column keeps its place, as rows of older formats are told by it.
        "alter table sessions rename column last_sequence to older_last_sequence",
        "alter table sessions rename column bytes to older_bytes",
    ),
)


async def lock_database(path: Path) -> int:
    """Return a descriptor that holds the lock of the database at `path`; closing it gives the lock up.

    Waits for an older store to end. Cancelled, nothing is held.

    Raises:
        StartError: another process has held it for too long.
    """
    lock = path.with_suffix(".lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with trio.move_on_after(LOCK_TIMEOUT):
            while not _try_lock(fd):  # noqa: ASYNC110 # no event tells of a lock given up
                await trio.sleep(LOCK_POLL)
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    raise StartError(f"another store has held {lock} for {LOCK_TIMEOUT:.0f} s")


def open_database(path: Path, *, wal_autocheckpoint: int) -> sqlite3.Connection:
    """Open the database at `path`, made or brought to this version if need be; the caller holds its lock.

    Raises:
        StartRefused: the file is no store of this daemon, is damaged, or belongs to a newer version.
        StartError: the disk does not let it be opened now.
    """
    connection = None
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, cached_statements=256
        )
        _prepare(connection, path, wal_autocheckpoint)
    except OSError as error:
        raise StartRefused(f"{path} cannot be opened: {error.strerror}") from error
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            text = f"{path} is not a database, or is damaged ({error}); move it away to start anew"
            raise StartRefused(text) from error
        raise StartError(cannot_open(path, error)) from error
    except StartRefused:
        if connection is not None:
            connection.close()
        raise
    return connection


def cannot_open(path: Path, error: Exception) -> str:
    """Return a text for people about a database that cannot be opened now."""
    hint = "; free some space, then start again" if is_full(path, error) else ""
    return f"{path} cannot be opened: {error}{hint}"


def is_full(path: Path, error: BaseException | None) -> bool:
    """Return whether the file cannot be used because the disk is full, which SQLite may call an I/O error."""
    while error is not None:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in {
            errno.ENOSPC,
            errno.EDQUOT,
        }:
            return True
        if code == sqlite3.SQLITE_IOERR:
            return shutil.disk_usage(path.parent).free < SHM_BYTES
        error = error.__cause__
    return False


def is_disk_error(error: sqlite3.Error) -> bool:
    """Return whether the disk is at fault, and neither the file nor what was to be written."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in DISK_ERRORS


def is_corrupt(error: BaseException | None) -> bool:
    """Return whether an error says that the file is damaged; to try again is of no use."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_no_text(error: BaseException) -> bool:
    """Return whether an error says that a stored text is none."""
    return isinstance(error, sqlite3.OperationalError) and "decode" in str(error)


def take_any_text(connection: sqlite3.Connection) -> None:
    """Read texts that are none as if they were, with marks in place of what cannot be read; it is slower."""
    connection.text_factory = _any_text


def _any_text(text: bytes) -> str:
    return text.decode(errors="replace")


def read_meta(connection: sqlite3.Connection, key: str) -> str:
    """Return a word about the whole store, or nothing."""
    row = connection.execute("select value from meta where key = ?", (key,)).fetchone()
    return "" if row is None else str(row[0])


def write_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Keep a word about the whole store."""
    connection.execute("insert or replace into meta(key, value) values(?, ?)", (key, value))


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prepare(connection: sqlite3.Connection, path: Path, wal_autocheckpoint: int) -> None:
    version = int(connection.execute("pragma user_version").fetchone()[0])
    tables = int(connection.execute("select count(*) from sqlite_master").fetchone()[0])
    identity = int(connection.execute("pragma application_id").fetchone()[0])
    if identity != APPLICATION_ID and (identity or tables):
        raise StartRefused(f"{path} is a database of another program; move it away to start anew")
    if version > len(MIGRATIONS):
        raise StartRefused(
            f"{path} was written by a newer version of the daemon (format {version}, this one"
            f" knows {len(MIGRATIONS)}); use that version, or move the file away"
        )
    if not tables:
        # Fixed by the first page that is written, so before anything else.
        connection.execute(f"pragma page_size = {PAGE_BYTES}")
        connection.execute("pragma auto_vacuum = incremental")
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(f"pragma wal_autocheckpoint = {wal_autocheckpoint}")
    connection.execute(f"pragma cache_size = -{CACHE_KIB}")
    connection.execute("pragma temp_store = memory")
    # A log that grew under a long reader is cut down again, and what is deleted is not written over.
    connection.execute(f"pragma journal_size_limit = {2 * wal_autocheckpoint * PAGE_BYTES}")
    connection.execute("pragma secure_delete = fast")
    _migrate(connection, version)


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    if version == len(MIGRATIONS):
        return
    connection.execute("begin immediate")
    connection.execute(f"pragma user_version = {len(MIGRATIONS)}")
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    if not version:
        write_meta(connection, "epoch", secrets.token_hex(8))
    # A second witness of the version: the header's number has no checksum.
    write_meta(connection, "format", str(len(MIGRATIONS)))
    connection.execute("commit")
