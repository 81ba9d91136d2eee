"""fs.fuzzy_search: checks what a client asks, has the search service do it, and lets a newer search end an older one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, InvalidArgument, Overloaded
from roost.actors.front.gateway import Lost
from roost.actors.front.promise import Promise
from roost.schemas.control import StartService
from roost.schemas.results import FoundFile, FoundFiles
from roost.schemas.search import MAX_QUERY, MAX_ROOTS, Found, FoundPath, Search, StopSearch

if TYPE_CHECKING:
    from roost.actors.front.router import Call
    from roost.actors.front.services import Services
    from roost.schemas.daemon import FuzzySearch

METHOD = "fs.fuzzy_search"
SERVICE = "search"


async def search_files(call: Call, params: FuzzySearch) -> FoundFiles:
    """Return the paths that fit best.

    With a token the older search of this connection that has it ends at once, without a result. Where the service dies
    meanwhile it is asked once more; a search changes nothing.
    """
    _check(params)
    under_way = _UnderWay(call, params)
    under_way.begin()
    try:
        if not params.query or not params.roots:
            return FoundFiles(files=[])
        return await under_way.result
    finally:
        under_way.end()


class _UnderWay:
    """One search from its request to its answer."""

    def __init__(self, call: Call, params: FuzzySearch) -> None:
        self.result: Promise[FoundFiles] = Promise()
        self._services: Services = call.services
        self._call = call
        token = (params.cancellation_token or "").strip()
        self._key = (call.caller.number, token) if token else None
        self._search = Search(
            number=call.services.next_search(), query=params.query, roots=tuple(params.roots)
        )
        self._asked: Promise[Found] = Promise()
        self._again = True

    def begin(self) -> None:
        """End the older search, and ask the service."""
        searches = self._services.searches
        if self._key is not None:
            older = searches.pop(self._key, None)
            searches[self._key] = self._abort
            if older is not None:
                older()
        if self._search.query and self._search.roots:
            self._call.on_cancel = _given_up
            self._ask()

    def end(self) -> None:
        """Forget the search, which may have been cancelled; the token is free if no newer search has it."""
        if not self.result.done:
            self._stop()
        if self._key is not None and self._services.searches.get(self._key) == self._abort:
            del self._services.searches[self._key]

    def _ask(self) -> None:
        gateway = self._services.search
        if gateway.link is not None and gateway.link.closed:
            gateway.disconnect(gateway.link)
        if gateway.link is None:
            self._services.root.cast(StartService(name=SERVICE))
        answer = self._asked = gateway.ask(self._search, Found, repeat=False)

        def take() -> None:
            try:
                found = answer.result()
            except Lost as error:
                self._ask_again(error)
            except DaemonError as error:
                self._stop()
                self.result.fail(error)
            else:
                self.result.resolve(FoundFiles(files=[_shown(path) for path in found.paths]))

        answer.then(take)

    def _ask_again(self, lost: Lost) -> None:
        """Ask the next incarnation of the service, unless this search has met the end of one already."""
        if self._again:
            self._again = False
            self._ask()
        else:
            text = "the search service ended during this search, twice"
            self.result.fail(Overloaded("OVERLOADED", text, lost.data))

    def _abort(self) -> None:
        """Answer without a result: a newer search has come."""
        self._stop()
        self.result.resolve(FoundFiles(files=[]))

    def _stop(self) -> None:
        self._again = False
        self._services.search.cast(StopSearch(number=self._search.number))
        # What still waits for a link is not sent over the next one.
        self._asked.resolve(Found())


def _given_up(_reason: str) -> None:
    """Do nothing: the handler is closed with its request, and `end` does all.

    A method of the search would hold the search, which holds its call: what was found would wait for a collection of
    cycles, and a collection of many such takes the front 20 ms.
    """


def _check(params: FuzzySearch) -> None:
    """Refuse what the decoder let through.

    Raises:
        InvalidArgument: a value is wrong.
    """
    if len(params.query) > MAX_QUERY:
        raise _wrong("query", f"must not be longer than {MAX_QUERY} characters")
    if len(params.roots) > MAX_ROOTS:
        raise _wrong("roots", f"must not have more than {MAX_ROOTS} paths")
    if not all(root.strip() for root in params.roots):
        raise _wrong("roots", "must not contain empty paths")
    if not all(os.path.isabs(root) for root in params.roots):
        raise _wrong("roots", "must contain absolute paths")
    if params.cancellation_token is not None and not params.cancellation_token.strip():
        raise _wrong("cancellationToken", "must not be empty")


def _wrong(param: str, text: str) -> InvalidArgument:
    return InvalidArgument(f"{METHOD} param '{param}' {text}", {"path": f"/{param}"})


def _shown(found: FoundPath) -> FoundFile:
    return FoundFile(
        root=found.root,
        path=found.path,
        match_type=found.kind,
        file_name=found.path.rpartition("/")[2],
        score=found.score,
        indices=found.indices,
    )
