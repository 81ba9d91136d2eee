"""The actor of one provider: its requests are its children, and its failures are its own."""

from __future__ import annotations

import logging
import random
import traceback
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.errors import Internal
from roost.actors.providers.catalogue import Catalogue, Listing
from roost.actors.providers.errors import ProviderError, too_late
from roost.schemas.base import Refused
from roost.supervisor.backoff import Backoff
from roost.supervisor.errors import ActorGone, CallTimeout, LinkFull, MailboxFull
from roost.supervisor.mailbox import Letter, Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.actors.providers.deltas import DeltaJoiner
    from roost.actors.providers.pool import Pool
    from roost.schemas.base import Message
    from roost.schemas.model import AskModel
    from roost.supervisor.link import Link

MAX_REQUESTS = 4_096
MAX_REQUEST_BYTES = 268_435_456
LIST_SECONDS = 5.0
LIST_SLACK = 0.5
RESTART = Backoff()

_log = logging.getLogger(__name__)


class Request:
    """One `AskModel` of one peer; cancelling its scope gives it up, answered or not."""

    def __init__(self, link: Link, ref: int, ask: AskModel) -> None:
        self.link = link
        self.ref = ref
        self.ask = ask
        self.scope = trio.CancelScope()
        self.size = sum(len(message.content) for message in ask.messages)

    @property
    def key(self) -> tuple[Link, int]:
        """Return what no two open requests have in common."""
        return self.link, self.ask.stream


class _Tell(msgspec.Struct, frozen=True):
    """Asks for the provider's models."""


_Letter = Letter[Request | _Tell, Listing]


class ProviderActor:
    """Requests to one provider. `ended` is told of each request that needs no more attention."""

    def __init__(
        self,
        name: str,
        make_pool: Callable[[], Pool],
        joiner: DeltaJoiner,
        ended: Callable[[Request], None],
    ) -> None:
        self.name = name
        self._make_pool = make_pool
        self._joiner = joiner
        self._ended = ended
        self._mailbox: Mailbox[Request | _Tell, Listing] = Mailbox(name, MAX_REQUESTS)
        self._catalogue = Catalogue()
        self._running: set[Request] = set()
        self._bytes = 0
        self._retired = False
        self._taking = trio.CancelScope()

    def ask(self, request: Request) -> None:
        """Take a request over.

        Raises:
            ProviderError: there are too many already.
        """
        full = self._bytes + request.size > MAX_REQUEST_BYTES
        if full or len(self._running) >= MAX_REQUESTS:
            raise _too_many()
        try:
            self._mailbox.cast_nowait(request)
        except MailboxFull:
            raise _too_many() from None
        self._bytes += request.size

    async def list_models(self) -> Listing:
        """Return the provider's models as they were told last; they are asked for, if that is a while ago."""
        try:
            return await self._mailbox.call(_Tell(), timeout=LIST_SECONDS + LIST_SLACK)
        except (ActorGone, CallTimeout):
            return Listing(error=too_late("no list of models", LIST_SECONDS))
        except MailboxFull:
            return Listing(error=_too_many())

    def retire(self) -> None:
        """Carry out what has been asked and end then; another takes what is asked from now on."""
        self._retired = True
        self._taking.cancel()

    async def run(self) -> None:
        """Serve until cancelled or retired; after a crash its open requests are refused and it starts anew."""
        crashes = 0
        while True:
            began = trio.current_time()
            try:
                await self._serve()
            except* Exception as group:  # noqa: BLE001 (a crash here must not end the other providers)
                _log.error("provider %s crashed: %s", self.name, _where(group))
            self._refuse_running()
            if self._retired:
                self._mailbox.close()
                return
            lived = trio.current_time() - began
            crashes = 0 if lived >= RESTART.long_life else crashes + 1
            await trio.sleep(RESTART.delay(crashes, lived, random.random()))

    async def _serve(self) -> None:
        async with self._make_pool() as pool, trio.open_nursery() as nursery:
            self._taking = trio.CancelScope()
            if self._retired:
                self._taking.cancel()
            with self._taking:
                # What lies in the mailbox is received without a wait, so also by one that is retired.
                while True:
                    letter = await self._mailbox.receive()
                    if isinstance(letter.message, Request):
                        self._running.add(letter.message)
                        nursery.start_soon(self._carry_out, pool, letter.message)
                    else:
                        nursery.start_soon(self._list, pool, letter)

    async def _carry_out(self, pool: Pool, request: Request) -> None:
        with request.scope:
            answer = await self._answer(pool, request)
            await self._send(request, answer)
        self._finish(request)

    async def _answer(self, pool: Pool, request: Request) -> Message:
        async def pass_on(text: str) -> None:
            self._joiner.add(request.link, request.ask.stream, text)
            # An agent that does not read holds its own model, and nothing else.
            await request.link.drained()

        try:
            return await pool.ask(request.ask, pass_on)
        except ProviderError as error:
            return error.refused()
        except Exception as error:  # noqa: BLE001 (a crash here must not end the other requests)
            _log.error("a request to provider %s crashed: %s", self.name, _where(error))
            return Internal().refused()

    async def _send(self, request: Request, answer: Message) -> None:
        link = request.link
        while not self._joiner.flush(link, request.ask.stream):
            await link.drained()
        while True:
            try:
                link.reply(request.ref, answer)
            except LinkFull:
                await link.drained()
            else:
                return

    async def _list(self, pool: Pool, letter: _Letter) -> None:
        try:
            letter.reply(await self._catalogue.take(pool.list_models, LIST_SECONDS))
        except Exception as error:  # noqa: BLE001 (as above)
            _log.error("listing the models of %s crashed: %s", self.name, _where(error))
            letter.reply(Listing(error=ProviderError("PROVIDER_API_ERROR", "internal error")))

    def _finish(self, request: Request) -> None:
        if request not in self._running:
            return
        self._running.discard(request)
        self._bytes -= request.size
        self._joiner.drop(*request.key)
        self._ended(request)

    def _refuse_running(self) -> None:
        refused = Refused(
            code="PROVIDER_NETWORK_ERROR", message="the request was interrupted", retryable=True
        )
        for request in list(self._running):
            try:
                request.link.reply(request.ref, refused)
            except LinkFull:
                _log.error("%s does not read; an answer is lost", request.link.name)
            self._finish(request)


def _too_many() -> ProviderError:
    text = "too many requests to this provider wait"
    return ProviderError("PROVIDER_RATE_LIMITED", text, retryable=True)


def _where(error: BaseException) -> str:
    """Return kind and place of an exception; its text may repeat what must not be logged."""
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    if inner:
        return _where(inner[0])
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__} at {places}"
