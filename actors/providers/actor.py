"""The providers process: the links to its peers, and one actor for each model provider.

Keys are known here only: the process cannot be looked into by others of its user.
"""

from __future__ import annotations

import logging
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

import trio

from roost.actors.errors import InvalidArgument
from roost.actors.logs import adjust_log
from roost.actors.providers.deltas import DeltaJoiner
from roost.actors.providers.errors import ProviderError
from roost.actors.providers.pool import Pool
from roost.actors.providers.provider import ProviderActor, Request
from roost.config.model import Provider, decode_settings
from roost.schemas.boot import decode_boot
from roost.schemas.model import (
    AskModel,
    DropKeys,
    ListModels,
    Load,
    ModelInfo,
    Models,
    StopModel,
    TakeLoad,
)
from roost.schemas.unions import providers_from_peer
from roost.supervisor.actor import Process, ProcessActor
from roost.supervisor.errors import LinkFull
from roost.supervisor.kernel import hide_memory
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from roost.actors.providers.catalogue import Listing
    from roost.schemas.base import Message

MAX_LISTINGS = 64

_log = logging.getLogger(__name__)


class ProvidersActor(ProcessActor):
    """Answers `AskModel` and `ListModels` of agents and of the front."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        settings = decode_settings(decode_boot(process.start.payload).settings)
        self._settings = settings.providers
        self._default = settings.agents.provider
        self._environment = {**os.environ, **process.start.env}
        self._queue_bytes = settings.limits.link_bytes
        self._joiner = DeltaJoiner()
        self._links: dict[str, Link] = {}
        self._requests: dict[tuple[Link, int], Request] = {}
        self._listings = 0
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._providers = {
            name: self._provider(name, provider) for name, provider in self._settings.items()
        }

    async def open(self) -> None:
        """Start the actors of the providers; none of them asks its server anything yet."""
        hide_memory()
        await self.process.nursery.start(self._run)

    def link_up(self, name: str, generation: int, handle: int) -> None:
        """Take over the link to `agent:<id>` or `front`; what an older one of that name had asked is given up."""
        old = self._links.get(name)
        if old is not None:
            old.close()
        self._links[name] = Link(
            socket.socket(fileno=handle),
            self.process.poller,
            name=name,
            decoder=providers_from_peer,
            handler=self,
            queue_bytes=self._queue_bytes,
        )

    def configure(self, payload: bytes) -> None:
        """Take over new settings; requests under way are carried out by those that they began with."""
        settings = decode_settings(payload)
        log = settings.log
        adjust_log(level=log.level, rotate_bytes=log.rotate_bytes, keep=log.keep)
        self._queue_bytes = settings.limits.link_bytes
        for link in self._links.values():
            link.set_bound(self._queue_bytes)
        before, self._settings = self._settings, settings.providers
        self._default = settings.agents.provider
        for name in {*before, *self._settings}:
            if before.get(name) != self._settings.get(name):
                self._renew(name)

    async def wind_down(self, reason: str, grace: float) -> None:
        """Give every request up, wait until its connection is closed, and close the links."""
        self._scope.cancel()
        await self._ended.wait()
        for link in list(self._links.values()):
            link.flush()
            link.close()

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Handle what a peer says."""
        match message:
            case AskModel():
                self._ask(Request(link, ref, message))
            case StopModel(stream=stream):
                request = self._requests.get((link, stream))
                if request is not None:
                    request.scope.cancel()
            case ListModels(provider=name):
                self._start_listing(link, ref, name)
            case TakeLoad():
                _reply(link, ref, Load(requests=len(self._requests)))
            case DropKeys():
                for each in self._settings:
                    self._renew(each)
            case _:
                _log.error("unexpected message from %s: %s", link.name, type(message).__name__)

    def on_closed(self, link: Link) -> None:
        """Give up what this peer had asked: nobody waits for it."""
        if self._links.get(link.name) is link:
            del self._links[link.name]
        for request in list(self._requests.values()):
            if request.link is link:
                request.scope.cancel()

    async def _run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._joiner.run)
                    for provider in self._providers.values():
                        nursery.start_soon(provider.run)
                    task_status.started()
        finally:
            self._ended.set()

    def _renew(self, name: str) -> None:
        """Serve a provider by its settings as they are now, with connections and a key of their own, or no more."""
        old = self._providers.pop(name, None)
        if old is not None:
            old.retire()
        settings = self._settings.get(name)
        if settings is not None:
            new = self._providers[name] = self._provider(name, settings)
            if self._nursery is not None:
                self._nursery.start_soon(new.run)

    def _provider(self, name: str, settings: Provider) -> ProviderActor:
        make_pool = partial(Pool, name, settings, self._environment)
        return ProviderActor(name, make_pool, self._joiner, self._forget)

    def _ask(self, request: Request) -> None:
        try:
            if request.key in self._requests:
                raise InvalidArgument(f"stream {request.ask.stream} is in use")
            self._provider_named(request.ask.provider).ask(request)
        except (InvalidArgument, ProviderError) as error:
            _reply(request.link, request.ref, error.refused())
            return
        self._requests[request.key] = request
        self.process.set_working(True)

    def _forget(self, request: Request) -> None:
        self._requests.pop(request.key, None)
        self.process.set_working(bool(self._requests))

    def _provider_named(self, name: str) -> ProviderActor:
        found = self._providers.get(name)
        if found is None:
            raise ProviderError("PROVIDER_NOT_FOUND", f"no provider is called {name!r}")
        return found

    def _start_listing(self, link: Link, ref: int, name: str) -> None:
        try:
            wanted = [self._provider_named(name)] if name else self._in_order()
            if self._listings >= MAX_LISTINGS:
                text = "too many lists of models are asked for at once"
                raise ProviderError("PROVIDER_RATE_LIMITED", text, retryable=True)
        except ProviderError as error:
            _reply(link, ref, error.refused())
            return
        self._listings += 1
        self.process.nursery.start_soon(self._list, link, ref, wanted)

    async def _list(self, link: Link, ref: int, wanted: list[ProviderActor]) -> None:
        found: dict[str, Listing] = {}

        async def ask(provider: ProviderActor) -> None:
            found[provider.name] = await provider.list_models()

        try:
            async with trio.open_nursery() as nursery:
                for provider in wanted:
                    nursery.start_soon(ask, provider)
        finally:
            self._listings -= 1
        # One whose settings have been taken out meanwhile has no models any more.
        names = [provider.name for provider in wanted if provider.name in self._settings]
        models = [
            model for name in names for model in _models_of(name, self._settings[name], found[name])
        ]
        failed = {name: error.message for name in names if (error := found[name].error) is not None}
        _reply(link, ref, Models(models=tuple(models), failed=failed))

    def _in_order(self) -> list[ProviderActor]:
        """Return the providers as configured, the one that agents have unless they name another before all others."""
        names = sorted(self._settings, key=lambda name: name != self._default)
        return [self._providers[name] for name in names if name in self._providers]


def _models_of(name: str, settings: Provider, listing: Listing) -> list[ModelInfo]:
    """Return the models that the provider tells, or told last, with the configured one before all others."""
    calls_tools = settings.tool_mode == "json"
    models = [
        ModelInfo(
            provider=name,
            id=model.id,
            name=model.name,
            context_length=model.context_length,
            tools=calls_tools or model.tools is not False,
        )
        for model in listing.models
    ]
    if settings.model:
        if all(model.id != settings.model for model in models):
            models.append(ModelInfo(provider=name, id=settings.model))
        models.sort(key=lambda model: model.id != settings.model)
    return models


def _reply(link: Link, ref: int, message: Message) -> None:
    try:
        link.reply(ref, message)
    except LinkFull:
        _log.error("%s does not read; an answer is lost", link.name)
