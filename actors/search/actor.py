"""The search process: answers `Search` of the front; each search runs in a thread and looks whether it is still wanted."""

from __future__ import annotations

import gc
import logging
import os
import re
import socket
import sys
from collections import OrderedDict
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from roost.actors.errors import DaemonError, Internal, Overloaded
from roost.actors.logs import adjust_log
from roost.actors.search.corpus import DIRECTORY, Corpus
from roost.actors.search.index import Index, IsCold
from roost.actors.search.matching import MAX_FOUND, Cancelled, best
from roost.actors.search.roots import Root, Seen, resolve
from roost.actors.search.scoring import align, fold
from roost.actors.search.watch import Allowance
from roost.config.model import decode_settings
from roost.schemas.boot import decode_boot
from roost.schemas.search import Found, FoundPath, Search, StopSearch
from roost.schemas.unions import search_from_front
from roost.supervisor.actor import Process, ProcessActor
from roost.supervisor.errors import LinkFull
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.schemas.base import Message

T = TypeVar("T")

THREADS = 4
WALKS = 3
"""Searches at a time that walk through a root first: however many wait for that, the others have their threads."""
MAX_SEARCHES = 1_024
NICE = 5
SWITCH_SECONDS = 0.001
RETRY_AFTER_MS = 1_000

_NOT_UTF8 = re.compile("[\ud800-\udfff]")

_log = logging.getLogger(__name__)


class _Kept:
    """An index, and who may use it."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.lock = trio.Lock()
        self.users = 0
        self.is_stale = False
        """Whether it goes by settings that are not in force any more."""


class _Job:
    """One search under way."""

    def __init__(self, link: Link, ref: int, search: Search) -> None:
        self.link = link
        self.ref = ref
        self.search = search
        self.stopped = False

    def cancelled(self) -> bool:
        return self.stopped


class SearchActor(ProcessActor):
    """Keeps the indexes of the roots that were searched last."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        settings = decode_settings(decode_boot(process.start.payload).settings)
        self._settings = settings.search
        self._queue_bytes = settings.limits.link_bytes
        self._link: Link | None = None
        self._jobs: dict[int, _Job] = {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._allowance = Allowance(settings.search.watches)
        self._threads = trio.CapacityLimiter(THREADS)
        self._walks = trio.CapacityLimiter(WALKS)
        self._dropping = trio.Lock()

    async def open(self) -> None:
        """Make room for the others: what a search needs of a processor comes after what clients wait for."""
        os.nice(NICE)
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.set_threshold(50_000, 20, 50)
        await trio.lowlevel.checkpoint()

    def link_up(self, name: str, generation: int, handle: int) -> None:
        """Take over the link to the front; what came over an older one is given up."""
        self._stop_all()
        old = self._link
        self._link = Link(
            socket.socket(fileno=handle),
            self.process.poller,
            name=name,
            decoder=search_from_front,
            handler=self,
            queue_bytes=self._queue_bytes,
        )
        if old is not None:
            old.close()

    def configure(self, payload: bytes) -> None:
        """Take over new settings: searches that come later go by them."""
        settings = decode_settings(payload)
        log, before = settings.log, self._settings
        adjust_log(level=log.level, rotate_bytes=log.rotate_bytes, keep=log.keep)
        self._settings = settings.search
        self._queue_bytes = settings.limits.link_bytes
        if self._link is not None:
            self._link.set_bound(self._queue_bytes)
        # Below nothing none is given out until enough have come back.
        self._allowance.give_back(settings.search.watches - before.watches)
        if (before.paths, before.watches) != (settings.search.paths, settings.search.watches):
            for one in self._kept.values():
                one.is_stale = True

    async def wind_down(self, reason: str, grace: float) -> None:
        """Give every search up."""
        self._stop_all()
        await trio.lowlevel.checkpoint()

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Handle what the front says."""
        match message:
            case Search():
                self._begin(_Job(link, ref, message))
            case StopSearch(number=number):
                job = self._jobs.get(number)
                if job is not None:
                    job.stopped = True
            case _:
                _log.error("unexpected message from %s: %s", link.name, type(message).__name__)

    def on_closed(self, link: Link) -> None:
        """Give up what came over that link."""
        if self._link is link:
            self._link = None
            self._stop_all()
            self.process.miss_link("front", lambda: self._link is not None)

    def _stop_all(self) -> None:
        for job in self._jobs.values():
            job.stopped = True

    def _begin(self, job: _Job) -> None:
        if len(self._jobs) >= MAX_SEARCHES:
            text = "too many searches are under way"
            _reply(job, Overloaded("OVERLOADED", text, {"retryAfterMs": RETRY_AFTER_MS}).refused())
            return
        self._jobs[job.search.number] = job
        self.process.set_working(True)
        self.process.nursery.start_soon(self._run, job)

    async def _run(self, job: _Job) -> None:
        try:
            answer: Message = await self._answer(job)
        except DaemonError as error:
            answer = error.refused()
        except Cancelled:
            answer = Found()
        except Exception:  # noqa: BLE001 - a fault of one search, whatever it is, must not end the others
            _log.exception("a search crashed")
            answer = Internal().refused()
        finally:
            if self._jobs.get(job.search.number) is job:
                del self._jobs[job.search.number]
            self.process.set_working(bool(self._jobs))
        _reply(job, answer)

    async def _answer(self, job: _Job) -> Found:
        texts, allowed = job.search.roots, self._settings.roots
        roots = await self._in_thread(lambda: resolve(texts, allowed))
        await self._drop_stale()
        kept = {root.real: self._keep(root.real) for root in roots}
        try:
            async with AsyncExitStack() as locks:
                for real in sorted(kept):
                    await locks.enter_async_context(kept[real].lock)
                if job.stopped:
                    raise Cancelled
                await self._renew([one for one in kept.values() if one.is_stale])
                indexes = [(root, kept[root.real].index) for root in roots]
                return await self._find(indexes, job)
        finally:
            for one in kept.values():
                one.users -= 1
            self._drop_some()

    async def _find(self, indexes: Sequence[tuple[Root, Index]], job: _Job) -> Found:
        if not any(index.is_cold for _, index in indexes):
            try:
                return await self._in_thread(lambda: _search(indexes, job, walks=False))
            except IsCold:
                pass  # such as after new rules
        walk = partial(_search, indexes, job, walks=True)
        return await trio.to_thread.run_sync(walk, limiter=self._walks)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._threads)

    def _keep(self, real: str) -> _Kept:
        """Return the index of a root, as used once more."""
        found = self._kept.get(real)
        if found is None:
            index = Index(real, self._allowance, most=self._settings.paths)
            found = self._kept[real] = _Kept(index)
        self._kept.move_to_end(real)
        found.users += 1
        return found

    def _drop_some(self) -> None:
        """Forget the roots that were not searched for longest, as far as there are too many, or too many paths."""
        paths = sum(len(one.index) for one in self._kept.values())
        dropped: list[Index] = []
        for real, one in list(self._kept.items()):
            if len(self._kept) <= self._settings.kept_roots and paths <= self._settings.paths:
                break
            if not one.users:
                paths -= len(one.index)
                dropped.append(self._kept.pop(real).index)
        if dropped:
            self.process.nursery.start_soon(self._in_thread, lambda: _close(dropped))

    async def _drop_stale(self) -> None:
        """Forget what nobody uses and goes by older settings: what it watches counts for those that come now."""
        async with self._dropping:
            stale = [real for real, one in self._kept.items() if one.is_stale and not one.users]
            dropped = [self._kept.pop(real).index for real in stale]
            if dropped:
                await self._in_thread(lambda: _close(dropped))

    async def _renew(self, stale: list[_Kept]) -> None:
        """Have indexes that were in use go by the settings of now; who calls has their locks."""
        most = self._settings.paths
        for one in stale:
            one.is_stale = False
            index = one.index
            await self._in_thread(partial(index.renew, most))


def _close(indexes: list[Index]) -> None:
    """Close indexes and give their memory back, which takes long enough to be done in a thread."""
    while indexes:
        indexes.pop().close()


def _search(indexes: Sequence[tuple[Root, Index]], job: _Job, *, walks: bool) -> Found:
    """Return the best matches below all roots; runs in a thread."""
    query = fold(job.search.query)
    seen = Seen()
    hits: list[tuple[int, str, int]] = []
    for number, (root, index) in enumerate(indexes):
        corpus = _refresh(index, job, walks=walks)
        hidden = seen.hides(root, index.aliases)
        found = best(corpus, query, hidden=hidden, cancelled=job.cancelled)
        seen.add(root, index.aliases)
        hits += [(worth, path, number) for worth, path in found]
    hits.sort()
    return Found(paths=tuple(_found(indexes, hit, query) for hit in hits[:MAX_FOUND]))


def _refresh(index: Index, job: _Job, *, walks: bool) -> Corpus:
    try:
        return index.refresh(job.cancelled, walks=walks)
    except (Cancelled, IsCold):
        raise
    except Exception:
        index.close()  # nobody knows what it is worth; the next search begins anew
        raise


def _found(
    indexes: Sequence[tuple[Root, Index]], hit: tuple[int, str, int], query: str
) -> FoundPath:
    worth, path, number = hit
    root, index = indexes[number]
    return FoundPath(
        root=root.text,
        path=_NOT_UTF8.sub("\ufffd", path),
        kind="directory" if index.corpus.kind(path) == DIRECTORY else "file",
        score=-worth,
        indices=align(path, query, -worth),
    )


def _reply(job: _Job, message: Message) -> None:
    try:
        job.link.reply(job.ref, message)
    except LinkFull:
        _log.error("%s does not read; an answer is lost", job.link.name)
