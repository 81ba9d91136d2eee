"""What the pool needs of the HTTP library: a client with its bounds, and errors without the library's texts."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import httpx2
import trio

from roost.actors.providers.errors import (
    ProviderError,
    config,
    garbage,
    network,
    of_status,
    over_limit,
)
from roost.actors.providers.wire.chat import read_reason

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping

    from roost.config.model import Provider

IDLE_CONNECTIONS = 8
IDLE_CONNECTION_SECONDS = 30.0
MAX_REFUSAL_BYTES = 65_536
REFUSAL_SECONDS = 5.0

# The libraries log addresses at level info and headers below it.
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


async def make_client(settings: Provider) -> httpx2.AsyncClient:
    """Return a client for the provider; it has not connected yet."""
    url = settings.base_url.rstrip("/") + "/"
    host = httpx2.URL(url).host
    verify: ssl.SSLContext | bool = False
    if url.startswith("https:"):
        # Reading the certificates takes 0.1 s, in which nothing else would be served.
        verify = await trio.to_thread.run_sync(lambda: httpx2.create_ssl_context())
    return httpx2.AsyncClient(
        base_url=url,
        verify=verify,
        # A proxy from the environment is for the world outside.
        trust_env=not (host in ("localhost", "::1") or host.startswith("127.")),
        headers={"Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(
            connect=settings.connect_timeout or None,
            read=None,
            write=settings.event_timeout or None,
            pool=None,
        ),
        limits=httpx2.Limits(
            max_connections=settings.max_parallel,
            max_keepalive_connections=IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_CONNECTION_SECONDS,
        ),
    )


@contextmanager
def mapped(settings: Provider) -> Generator[None]:
    """Turn the HTTP library's errors into ours, without their texts."""
    try:
        yield
    except httpx2.ConnectTimeout:
        raise network(f"no connection within {settings.connect_timeout:g} s") from None
    except httpx2.ConnectError:
        raise network("no connection to the provider") from None
    except httpx2.TimeoutException:
        raise network("the provider does not read the request") from None
    except httpx2.ProxyError:
        raise network("the proxy refuses the connection") from None
    except httpx2.RemoteProtocolError as error:
        # The same class says that the peer hung up and that it speaks no HTTP.
        if str(error).startswith(("Server disconnected", "peer closed")):
            raise network("the provider hung up") from None
        raise garbage("it is no HTTP") from None
    except httpx2.NetworkError:
        raise network("the connection to the provider broke") from None
    except httpx2.DecodingError:
        raise garbage("it is compressed wrongly") from None
    except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        raise config("the request cannot be sent; check base_url and the key") from None


async def refusal(response: httpx2.Response) -> ProviderError:
    """Return the error that a response other than 200 stands for."""
    reason = ""
    with trio.move_on_after(REFUSAL_SECONDS):
        try:
            reason = read_reason(await read_body(response, MAX_REFUSAL_BYTES))
        except (ProviderError, httpx2.HTTPError):
            reason = ""
    return of_status(response.status_code, reason, retry_after(response.headers))


@asynccontextmanager
async def chunks_of(response: httpx2.Response) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Give the body in chunks, which need not be read to the end."""
    chunks = response.aiter_bytes()
    try:
        yield chunks
    finally:
        # The library's generators lie seven deep. Closing the outer one leaves the inner ones to the garbage collector,
        # which trio warns of; a cancelled read ends all of them.
        with trio.CancelScope(shield=True) as scope, suppress(httpx2.HTTPError):
            scope.cancel()
            async for _ in chunks:
                pass


async def read_body(response: httpx2.Response, limit: int) -> bytes:
    """Return the whole body, or raise `ProviderError` when it is over the limit."""
    body = bytearray()
    async with chunks_of(response) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > limit:
                raise over_limit("total_response", limit)
    return bytes(body)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the headers ask to wait, or None if they do not."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if not text:
            continue
        try:
            seconds: float | None = float(text) * unit
        except ValueError:
            seconds = _until(text)
        if seconds is not None and seconds >= 0.0 and seconds != float("inf"):
            return seconds
    return None


def _until(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)
