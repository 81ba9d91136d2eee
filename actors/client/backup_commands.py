"""The commands about the store as a whole: backup, restore, du."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import sys
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import click

from roost.actors.client.context import Context, pass_context, print_json
from roost.actors.client.errors import ClientError
from roost.actors.client.export import open_snapshot
from roost.actors.client.outfile import (
    check_place,
    check_target,
    ended_by_sigterm,
    put_in_place,
    sync,
    temporary_beside,
)
from roost.actors.client.render import format_size, print_table
from roost.actors.client.usage import format_bytes, measure
from roost.actors.store.copies import copy_store, prepare_copy
from roost.actors.store.replacing import cut_short, settle
from roost.actors.store.snapshot import NotReadable
from roost.config.errors import AlreadyRunning
from roost.config.files import take_lock
from roost.config.paths import FILE_MODE, prepare_home

if TYPE_CHECKING:
    from pathlib import Path

    from roost.actors.store.copies import Holds
    from roost.config.paths import Home

BESIDE = ("-wal", "-shm")


@click.command()
@click.argument("file", type=click.Path())
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def backup(context: Context, file: str, force: bool, as_json: bool) -> None:
    """Copy the store into FILE, whether or not the daemon runs; checked, and whole or not at all."""
    target = _free_target(context.home, file, force)
    with ended_by_sigterm(), open_snapshot(context.home) as snapshot:
        with temporary_beside(target) as temporary:
            holds = copy_store(snapshot, temporary)
            _free_target(context.home, file, force)
            put_in_place(temporary, target)
    _tell(file, holds, as_json, "holds")


def _free_target(home: Home, file: str, force: bool) -> Path:
    target = check_target(home, file)
    if target.exists() and not force:
        raise ClientError(f"{file} exists; --force replaces it")
    return target


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def restore(context: Context, file: str, as_json: bool) -> None:
    """Put a backup in the place of the store; the daemon must not run. The present store is set aside."""
    home = context.home
    prepare_home(home)
    with ended_by_sigterm(), ExitStack() as stack:
        _hold(home, stack)
        check_place(home.store)
        temporary = stack.enter_context(temporary_beside(home.store))
        try:
            shutil.copyfile(file, temporary)
            with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
                holds = prepare_copy(copy, temporary)
        except (NotReadable, sqlite3.Error) as error:
            raise ClientError(f"{file} cannot be restored: {error}") from None
        except OSError as error:
            raise ClientError(f"{file} cannot be copied: {error.strerror or error}") from None
        sync(temporary)
        copies = cut_short(home.store)
        aside = _set_aside(home)
        put_in_place(temporary, home.store)
        # Until here the next start goes on with a rescue that was cut short, of which only the copies may be whole.
        settle(home.store)
    _tell(file, holds, as_json, "restored:")
    if aside is not None:
        click.echo(f"the store that was there is now {aside}", err=True)
    if copies is not None:
        text = f"its rescue was cut short: copies of what was found damaged are in {copies}"
        click.echo(text, err=True)


def _hold(home: Home, stack: ExitStack) -> None:
    """Keep any daemon of the home from starting until the stack is closed."""
    try:
        stack.callback(os.close, take_lock(home))
    except AlreadyRunning:
        raise ClientError("the daemon runs; stop it first: roost down") from None
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(home.store.with_suffix(".lock"), flags, FILE_MODE)
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ClientError("a store is still running; try again") from None


def _set_aside(home: Home) -> Path | None:
    """Give the present store a second name, and its write-ahead log that name's; the first name is then replaced."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = home.store.with_name(f"store-before-{stamp}-{os.getpid()}.db")
    there = home.store.exists()
    if there:
        os.link(home.store, aside)
    for suffix in BESIDE:
        log = home.store.with_name(home.store.name + suffix)
        if log.exists():
            log.rename(aside.with_name(aside.name + suffix))
    sync(home.path)
    return aside if there else None


def _tell(file: str, holds: Holds, as_json: bool, verb: str) -> None:
    if as_json:
        print_json({"file": file, **holds._asdict()})
    else:
        size = format_size(holds.bytes)
        click.echo(f"{file} {verb} {holds.sessions} sessions, {holds.events} events, {size}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def du(context: Context, as_json: bool) -> None:
    """Say what takes the space: the files of the home, and the events of each agent and session."""
    home = context.home
    with open_snapshot(home) as snapshot:
        usage = measure(home, snapshot)
    if as_json:
        print_json(usage.as_json())
        return
    print_table(("FILES", "SIZE"), [(f.name, format_bytes(f.bytes)) for f in usage.files])
    if usage.sessions:
        click.echo()
        print_table(("AGENT", "SESSION", "EVENTS", "SPACE"), usage.session_rows())
    sys.stdout.flush()
