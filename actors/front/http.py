"""The TCP port's plain HTTP: health, metrics, and the checks before a WebSocket is opened.

The parser knows the head of a request and nothing else; every plain answer closes its connection.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

MAX_HEAD = 16 * 1024
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))

_REQUEST = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]{1,8192}) HTTP/1\.[01]")
# Blanks around a value are cut off afterwards: an expression that also knows them takes the third power of their number.
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):([^\x00-\x08\x0a-\x1f\x7f]*)")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"


class Head(NamedTuple):
    """The head of a request; header names are in lower case."""

    method: str
    path: str
    headers: list[tuple[str, str]]

    def all_of(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [value for key, value in self.headers if key == name]

    def first(self, name: str) -> str:
        """Return the first value of a header, or nothing."""
        return next(iter(self.all_of(name)), "")

    @property
    def wants_websocket(self) -> bool:
        """Whether this asks for a WebSocket."""
        return "websocket" in self.first("upgrade").lower()


def parse_head(data: bytes) -> Head | None:
    """Return the head in these bytes, which end with an empty line; None if they are none."""
    first, *lines = data.split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    if request is None:
        return None
    headers: list[tuple[str, str]] = []
    for line in lines:
        if not line:
            break
        header = _HEADER.fullmatch(line)
        if header is None:
            return None
        value = header[2].strip(b" \t").decode("latin-1")
        headers.append((header[1].decode().lower(), value))
    return Head(request[1].decode(), request[2].decode().partition("?")[0], headers)


def respond(status: int, body: bytes, content_type: str = TEXT) -> bytes:
    """Return a whole answer."""
    allow = "Allow: GET\r\n" if status == 405 else ""
    return (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
        f"X-Content-Type-Options: nosniff\r\n{allow}Connection: close\r\n\r\n"
    ).encode() + body


def switch(accept: str) -> bytes:
    """Return the answer after which the connection is a WebSocket, without extensions."""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


def is_host_allowed(head: Head, own_host: str, *, anywhere: bool) -> bool:
    """Return whether the one `Host` names this machine; a name that was rebound to it does not.

    With `anywhere` the daemon was told to listen beyond loopback, and any name will do.
    """
    hosts = head.all_of("host")
    if len(hosts) != 1:
        return False
    name = _host_name(hosts[0])
    return bool(name) and (anywhere or name in LOOPBACK or name == own_host.strip("[]").lower())


def is_origin_allowed(head: Head, allowed: tuple[str, ...]) -> bool:
    """Return whether every `Origin` is a page of this machine or one that was configured; none at all is no page."""
    return all(_is_own_page(origin) or origin in allowed for origin in head.all_of("origin"))


def _is_own_page(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
        return (
            parts.scheme == "http"
            and (parts.hostname or "") in LOOPBACK
            and not parts.path
            and not parts.query
            and "@" not in parts.netloc
        )
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """Return the name in `name`, `name:port`, `[v6]` or `[v6]:port`."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]/@\s]+))(?::\d{1,5})?", host.strip())
    return (match[1] or match[2]).lower() if match else ""
