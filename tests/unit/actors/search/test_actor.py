# pyright: reportPrivateUsage=false
from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.search.actor import THREADS, WALKS, SearchActor, _Job
from roost.actors.search.index import Index
from roost.config.load import default_settings
from roost.config.model import encode_settings
from roost.schemas import control
from roost.schemas.boot import Boot
from roost.schemas.search import Search
from roost.supervisor.actor import Process
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.poller import Poller

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    import pytest

    from roost.actors.search.walk import Walk
    from roost.schemas.base import Message


class Nobody:
    """A handler that is told nothing."""

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Nothing comes."""

    def on_closed(self, link: Link) -> None:
        """Nothing is lost."""


_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToChild)


def payload_of(**search: int) -> bytes:
    settings = default_settings()
    changed = msgspec.structs.replace(settings.search, **search)
    return encode_settings(msgspec.structs.replace(settings, search=changed))


@asynccontextmanager
async def running(**search: int) -> AsyncGenerator[SearchActor]:
    """A search process without a root and a front that say anything."""
    boot = Boot(
        home="/nowhere", settings=payload_of(**search), root_pid=1, started_at=0, version=""
    )
    payload = msgspec.msgpack.encode(boot)
    start = control.Start(child_id="search", kind="search", generation=1, payload=payload)
    with ExitStack() as sockets:
        async with trio.open_nursery() as nursery:
            poller = Poller()
            ours, theirs = socket.socketpair()
            sockets.enter_context(theirs)
            root = ControlLink(ours, poller, name="root", decoder=_decoder, handler=Nobody())
            actor = SearchActor(Process(poller, root, start, nursery))
            front, peer = socket.socketpair()
            sockets.enter_context(peer)
            actor.link_up("front", 1, front.detach())
            yield actor
            nursery.cancel_scope.cancel()
        for each in (actor._link, root):
            assert each is not None
            each.close()


async def found(actor: SearchActor, query: str, *roots: Path) -> list[str]:
    assert actor._link is not None
    search = Search(number=1, query=query, roots=tuple(str(root) for root in roots))
    answer = await actor._answer(_Job(actor._link, 1, search))
    return [one.path for one in answer.paths]


async def test_what_an_older_front_has_asked_is_given_up() -> None:
    async with running() as actor:
        link = actor._link
        assert link is not None
        actor.on_message(link, 1, Search(number=1, query="a", roots=()))
        (job,) = actor._jobs.values()
        new, peer = socket.socketpair()
        with peer:
            actor.link_up("front", 2, new.detach())
            assert job.cancelled()


async def test_the_next_search_goes_by_the_number_of_paths_that_is_in_force(tmp_path: Path) -> None:
    for name in ("file1", "file2", "file3"):
        (tmp_path / name).touch()
    async with running(paths=1) as actor:
        assert len(await found(actor, "file", tmp_path)) == 1
        actor.configure(payload_of(paths=100))
        assert len(await found(actor, "file", tmp_path)) == 3


async def test_the_next_search_watches_again_once_there_are_watches(tmp_path: Path) -> None:
    (tmp_path / "root" / "inner").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    async with running(watches=1) as actor:
        await found(actor, "a", tmp_path / "root")
        await found(actor, "a", tmp_path / "other")
        assert [one.index.watched for one in actor._kept.values()] == [False, True]
        actor.configure(payload_of(watches=2))
        await found(actor, "a", tmp_path / "root")
        assert [one.index.watched for one in actor._kept.values()] == [True]


async def test_an_index_in_use_goes_by_new_settings_with_its_next_search(tmp_path: Path) -> None:
    for name in ("file1", "file2"):
        (tmp_path / name).touch()
    async with running(paths=1) as actor:
        await found(actor, "file", tmp_path)
        (one,) = actor._kept.values()
        one.users += 1
        actor.configure(payload_of(paths=100))
        assert len(await found(actor, "file", tmp_path)) == 2
        assert list(actor._kept.values()) == [one]
        assert not one.is_stale


async def test_an_index_is_closed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = trio.Event()
    close = Index.close

    def noted(index: Index) -> None:
        close(index)
        trio.from_thread.run_sync(closed.set)  # it raises where the loop runs

    monkeypatch.setattr(Index, "close", noted)
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    async with running(kept_roots=1) as actor:
        for root in roots:
            await found(actor, "a", root)
        with trio.fail_after(5):
            await closed.wait()
        assert list(actor._kept) == [str(roots[1].resolve())]


async def test_walks_through_new_roots_leave_threads_for_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, *big = [tmp_path / name for name in ("small", *map(str, range(WALKS + THREADS)))]
    for root in (small, *big):
        root.mkdir()
        (root / "file").touch()
    walking = threading.Semaphore(0)
    go_on = threading.Event()
    begin = Index._begin

    def held(index: Index) -> Walk:
        if index.root != str(small.resolve()):
            walking.release()
            go_on.wait(20)
        return begin(index)

    monkeypatch.setattr(Index, "_begin", held)
    async with running() as actor:
        await found(actor, "file", small)
        async with trio.open_nursery() as nursery:
            for root in big:
                nursery.start_soon(found, actor, "file", root)
            try:
                with trio.fail_after(5):
                    for _ in range(WALKS):
                        await trio.to_thread.run_sync(walking.acquire)
                    assert await found(actor, "file", small) == ["file"]
                assert not walking.acquire(blocking=False), "more walks at a time than there may be"
            finally:
                go_on.set()


async def test_a_known_root_with_new_rules_is_walked_as_a_new_one_is(tmp_path: Path) -> None:
    (tmp_path / "file1").touch()
    (tmp_path / "file2").touch()
    async with running() as actor:
        assert await found(actor, "file", tmp_path) == ["file1", "file2"]
        (tmp_path / ".ignore").write_text("*1\n")
        actor._threads.total_tokens = 1
        assert await found(actor, "file", tmp_path) == ["file2"]
