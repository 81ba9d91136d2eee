from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.actors.store import file, intake
from roost.actors.store.room import RESERVE, Room
from roost.schemas import session, turn
from roost.schemas.base import Refused
from roost.supervisor.errors import StartError
from tests.support.store import (
    SECONDS,
    Front,
    Store,
    create_agent,
    delta,
    message,
    running_store,
    settings_with,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def set_pages(store: Store, spare: int) -> None:
    connection = store.connection
    used = connection.execute("pragma page_count").fetchone()[0]
    connection.execute(f"pragma max_page_count = {used + spare}")


@pytest.fixture(autouse=True)
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "STALL_SECONDS", 0.05)


async def test_a_full_disk_refuses_clients_and_keeps_what_agents_sent(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        await front.watch(session_id)
        peer = await store.agent(agent_id, session_id)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        set_pages(store, 0)
        drafts = [peer.draft(delta(session_id, turn_id, "x" * 4000)) for _ in range(40)]
        large = message(session_id, "y" * 20_000)
        refused = await front.call(large, Refused)
        assert refused.code == "DISK_FULL"
        assert "retryAfterMs" in msgspec.json.decode(refused.data)
        page = await front.call(session.ReadPage(session_id=session_id, after=0), session.Page)
        assert page.last_sequence == 2
        assert not peer.refused
        assert len(peer.unanswered) == 40
        late = peer.draft(delta(session_id, turn_id, "late"))
        set_pages(store, 1000)
        await peer.answered()
        sent = [*drafts, late]
        assert peer.acked[late.event_id] == 43
        await front.until(lambda: front.last[session_id] == 43)
        assert front.bodies[session_id][-41:] == [draft.body for draft in sent]
        accepted = await front.call(large, turn.Accepted)
        assert not accepted.duplicate


async def test_a_client_that_needs_no_room_is_served_while_the_disk_is_full(
    tmp_path: Path,
) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        peer = await store.agent(agent_id, session_id)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        set_pages(store, 0)
        for _ in range(40):
            peer.draft(delta(session_id, turn_id, "x" * 4000))
        assert (await front.call(message(session_id, "y" * 20_000), Refused)).code == "DISK_FULL"
        cancel = turn.CancelTurn(session_id=session_id, reason="r")
        answer = await front.link.call(cancel, timeout=SECONDS)
        assert isinstance(answer, turn.TurnCancelled)
        set_pages(store, 1000)
        await peer.answered()


async def test_below_the_mark_no_new_work_is_taken_and_old_work_goes_on(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create(text="hi")
    settings = settings_with()
    full = msgspec.structs.replace(settings.store, min_free_mib=2**40)
    settings = msgspec.structs.replace(settings, store=full)
    async with running_store(tmp_path, settings) as store:
        front = store.front()
        peer = await store.agent(agent_id)
        opened = await peer.open(session_id)
        (queued,) = opened.inbox
        assert isinstance(queued, turn.QueuedMessage)
        for request in (message(session_id), create_agent("new", "new")):
            assert (await front.call(request, Refused)).code == "DISK_FULL"
        turn_id = await peer.begin(session_id, queued.message_id)
        await peer.finish(session_id, turn_id)
        assert (await front.watch(session_id)).row.turns == 1


async def test_on_a_full_disk_the_space_held_back_lets_a_turn_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(tmp_path, settings_with(reserve_mib=1)) as store:
        assert (tmp_path / RESERVE).exists()
        front = store.front()
        agent_id, session_id = await front.create()
        peer = await store.agent(agent_id, session_id)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        release = Room.release

        def give_up(room: Room) -> bool:
            given = release(room)
            if given:
                set_pages(store, 256)
            return given

        monkeypatch.setattr(Room, "release", give_up)
        set_pages(store, 0)
        for _ in range(40):
            peer.draft(delta(session_id, turn_id, "x" * 4000))
        await peer.finish(session_id, turn_id)
        assert not peer.refused
        assert not (tmp_path / RESERVE).exists()
        row = (await front.watch(session_id)).row
        assert (row.turns, row.last_sequence) == (1, 43)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    if not mount or os.getuid() or subprocess.run(command, check=False).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take the last free page of a file system; return the file that holds it all."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as pages, suppress(OSError):
        while True:
            pages.write(bytes(4096))
    return filler


async def test_a_store_that_comes_back_to_a_full_disk_waits_for_space_and_a_cold_start_fails(
    small_disk: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(small_disk) as store:
        front = store.front()
        _, session_id = await front.create()
        await front.send(session_id)
    monkeypatch.setattr(file, "FULL_PAUSE", 0.02)
    filler = fill(small_disk)
    path = small_disk / "store.db"
    # Even the files beside it cannot be made.
    opened = file.StoreFile(path, settings_with(), is_running=lambda _: False)
    with pytest.raises(StartError, match="free some space"):
        await opened.open(cold=True)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:

            async def free() -> None:
                while "waits for space" not in caplog.text:  # noqa: ASYNC110 # it tries again and again
                    await trio.sleep(0.02)
                filler.unlink()

            nursery.start_soon(free)
            desk = await opened.open(cold=False)
    assert desk.journal.session(session_id) is not None
    opened.close()


async def test_on_a_disk_that_is_really_full_a_turn_ends_and_all_goes_on_when_there_is_room(
    small_disk: Path,
) -> None:
    settings = settings_with(reserve_mib=2)
    store_settings = msgspec.structs.replace(settings.store, min_free_mib=1)
    settings = msgspec.structs.replace(settings, store=store_settings)
    async with running_store(small_disk, settings) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        peer = await store.agent(agent_id, session_id)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        filler = fill(small_disk)
        # Without the space held back this does not fit.
        for _ in range(100):
            peer.draft(delta(session_id, turn_id, "x" * 4000))
        await peer.finish(session_id, turn_id)
        assert not peer.refused
        assert not (small_disk / RESERVE).exists()
        assert (await front.call(message(session_id), Refused)).code == "DISK_FULL"
        page = await front.call(session.ReadPage(session_id=session_id, after=0), session.Page)
        assert page.last_sequence == 103
        closing = session.CloseSession(session_id=session_id)
        await front.call(closing, session.SessionClosing)
        filler.unlink()
        with trio.fail_after(SECONDS):
            while isinstance(  # noqa: ASYNC110 # it is looked at once a second
                await front.link.call(create_agent("new", "new"), timeout=SECONDS), Refused
            ):
                await trio.sleep(0.05)
        assert (small_disk / RESERVE).exists()


async def test_an_error_of_the_disk_is_not_told_as_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(tmp_path) as store:
        front: Front = store.front()
        _, session_id = await front.create()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR

        def fail() -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(store.desk.journal, "flush", fail)
            assert (await front.call(message(session_id), Refused)).code == "INTERNAL"
        assert (await front.send(session_id)).position == 0


async def test_a_count_after_a_crash_is_that_of_the_corrected_rows(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        await front.create()
        before = await front.call(session.Count(), session.Counts)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("update counters set last_sequence = 0")
        connection.execute("update meta set value = '0' where key = 'clean'")
        connection.commit()
    async with running_store(tmp_path) as store:
        after = await store.front().call(session.Count(), session.Counts)
    assert after.events == before.events == 1
