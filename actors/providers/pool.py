"""The HTTP side of one provider: one client, its bounds, its time limits, its retries.

A request is repeated only while nothing of its answer has been passed on.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Self

import trio

from roost.actors.providers.errors import (
    ProviderError,
    config,
    garbage,
    too_late,
)
from roost.actors.providers.http import chunks_of, make_client, mapped, read_body, refusal
from roost.actors.providers.wire.chat import ChatReader
from roost.actors.providers.wire.chat_request import encode_request
from roost.actors.providers.wire.models import Offered, read_models
from roost.actors.providers.wire.sse import MAX_EVENT_BYTES, SseReader
from roost.supervisor.backoff import Backoff

if TYPE_CHECKING:
    import httpx2

    from roost.config.model import Provider
    from roost.schemas.model import AskModel, ModelAnswer

PRELOAD = (
    "roost.actors.providers.actor",
    "httpcore2",
    "httpcore2._backends.trio",
    "h11",
    "truststore",
    "encodings.idna",
)
"""What else a first request would import; for whoever forks the process from a prepared one."""

MAX_LIST_BYTES = 4_194_304
MAX_MODELS = 2_000
# After the finish reason only the usage may follow, after [DONE] only the end: neither is worth a long wait.
USAGE_SECONDS = 5.0
END_SECONDS = 0.25
CLOSE_SECONDS = 1.0
MAX_WAIT_SECONDS = 60.0

RETRY = Backoff(long_life=float("inf"), first=0.5, longest=8.0, jitter=0.5)

PassOn = Callable[[str], Awaitable[None]]


class Pool:
    """Requests to one provider. Use it as an async context manager; leaving it closes the connections."""

    def __init__(
        self,
        name: str,
        settings: Provider,
        environment: Mapping[str, str],
        *,
        retry: Backoff = RETRY,
    ) -> None:
        self.name = name
        self._settings = settings
        self._environment = environment
        self._retry = retry
        self._slots = trio.Semaphore(settings.max_parallel)
        self._opening = trio.Lock()
        self._client: httpx2.AsyncClient | None = None
        self._not_before = 0.0

    def __repr__(self) -> str:
        return f"Pool({self.name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._client.aclose()

    async def ask(self, ask: AskModel, pass_on: PassOn) -> ModelAnswer:
        """Return the whole answer; its text is given to `pass_on` while it comes.

        The time limits stand still while `pass_on` waits, but for that of the whole request. Cancelled, it closes the
        connection, from which the server sees that it may stop.

        Raises:
            ProviderError: there is no answer.
        """
        settings = self._settings
        limit = settings.request_timeout or float("inf")
        with trio.move_on_after(limit):
            async with self._slots:
                return await self._ask_patiently(ask, pass_on)
        raise too_late("the model did not finish its answer", limit)

    async def list_models(self) -> list[Offered]:
        """Return the provider's models as its server tells them now; the caller bounds the time.

        Raises:
            ProviderError: the provider did not say.
        """
        client = await self._open_client()
        with mapped(self._settings):
            async with client.stream("GET", "models", headers=self._headers()) as response:
                if response.status_code != 200:
                    raise await refusal(response)
                body = await read_body(response, MAX_LIST_BYTES)
        return read_models(body)[:MAX_MODELS]

    async def _ask_patiently(self, ask: AskModel, pass_on: PassOn) -> ModelAnswer:
        attempts = 0
        while True:
            await trio.sleep_until(self._not_before)
            attempt = _Attempt(self._settings, ask, pass_on)
            try:
                return await attempt.run(await self._open_client(), self._headers())
            except ProviderError as error:
                if attempt.passed_on or attempts >= self._settings.max_retries:
                    raise
                if not error.retryable or error.code == "PROVIDER_TIMEOUT":
                    raise
                attempts += 1
                await self._wait_after(error, attempts)

    async def _wait_after(self, error: ProviderError, attempts: int) -> None:
        delay = self._retry.delay(attempts, 0.0, random.random())
        if error.wait is not None:
            delay += error.wait
        if (
            delay > MAX_WAIT_SECONDS
            or trio.current_time() + delay >= trio.current_effective_deadline()
        ):
            raise error
        if error.code == "PROVIDER_RATE_LIMITED":
            # Asking for others meanwhile would be refused as well, and prolong the limit.
            self._not_before = max(self._not_before, trio.current_time() + delay)
        await trio.sleep(delay)

    async def _open_client(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await make_client(self._settings)
            return self._client

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        key = self._key()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _key(self) -> str:
        settings = self._settings
        key = settings.key
        if not key and settings.key_env:
            key = self._environment.get(settings.key_env, "")
            if not key:
                raise config(f"the environment variable {settings.key_env} is not set")
        key = key.strip()
        if not (key.isascii() and key.isprintable()):
            raise config("the key has characters that no header can carry")
        return key


class _Attempt:
    """One request and the reading of its answer."""

    def __init__(self, settings: Provider, ask: AskModel, pass_on: PassOn) -> None:
        json_tools = settings.tool_mode == "json" and bool(ask.tools)
        self._settings = settings
        self._ask = ask
        self._pass_on = pass_on
        self._json_tools = settings.tool_mode == "json"
        self._reader = ChatReader(json_tools=json_tools)
        self._quiet = trio.CancelScope()
        self.passed_on = False

    async def run(self, client: httpx2.AsyncClient, headers: dict[str, str]) -> ModelAnswer:
        """Return the answer, or raise `ProviderError`."""
        body = encode_request(
            self._ask,
            default_model=self._settings.model,
            json_tools=self._json_tools,
            max_tokens=self._settings.max_tokens,
        )
        headers |= {"Accept": "text/event-stream"}
        try:
            with mapped(self._settings), self._quiet:
                self._expect_within(self._settings.event_timeout)
                async with client.stream(
                    "POST", "chat/completions", content=body, headers=headers
                ) as response:
                    await self._read(response)
        except ProviderError as error:
            # A connection that breaks after the last word has not taken anything from the answer.
            if not (self._reader.complete and error.code == "PROVIDER_NETWORK_ERROR"):
                raise
        if self._quiet.cancelled_caught and not self._reader.complete:
            raise too_late("nothing came from the model", self._settings.event_timeout)
        answer = self._reader.answer()
        await self._pass(self._reader.rest())
        return answer

    async def _read(self, response: httpx2.Response) -> None:
        if response.status_code != 200:
            raise await refusal(response)
        kind = response.headers.get("content-type", "").lower()
        if "json" in kind:
            # Not streamed although it was asked to be: the whole answer is one event.
            await self._take(
                [(await read_body(response, MAX_EVENT_BYTES)).decode("utf-8", "replace")]
            )
            return
        if "html" in kind:
            raise garbage("it is a web page; check base_url")
        events = SseReader()
        came = False
        async with chunks_of(response) as chunks:
            async for chunk in chunks:
                came = True
                await self._take(events.feed(chunk))
        await self._take(events.end())
        if came and not self._reader.begun:
            raise garbage("it has no events")

    async def _take(self, events: list[str]) -> None:
        """Pass on the text of events that came together in one piece."""
        if not events:
            return
        text = ""
        try:
            for event in events:
                text += self._reader.feed(event)
        finally:
            await self._pass(text)
        if self._reader.done:
            self._expect_within(END_SECONDS)
        elif self._reader.finish:
            self._expect_within(USAGE_SECONDS)
        else:
            self._expect_within(self._settings.event_timeout)

    async def _pass(self, text: str) -> None:
        if text:
            self.passed_on = True
            self._quiet.deadline = float("inf")
            await self._pass_on(text)

    def _expect_within(self, seconds: float) -> None:
        self._quiet.deadline = trio.current_time() + (seconds or float("inf"))
