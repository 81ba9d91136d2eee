"""JSON lines of events from a file: bounded reading, and the verdict on each line."""

from __future__ import annotations

import contextlib
import io
import shlex
import tempfile
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from roost.actors.client.errors import ClientError
from roost.actors.client.events import clean
from roost.actors.client.standard_files import standard_input
from roost.schemas.validation import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

STDIN: Final = "-"
# What a stored event may take in any spelling: six characters for one, and room for blanks.
MAX_LINE: Final = 16 * 1024 * 1024
COPY_BYTES: Final = 1024 * 1024
# How compressed files begin, and what unpacks them.
COMPRESSED: Final = (
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
)


class Line(NamedTuple):
    """A line without its line end; `text` is None for one that is too long to be read."""

    number: int
    offset: int
    text: bytes | None


def read_lines(file: IO[bytes], *, limit: int = MAX_LINE) -> Iterator[Line]:
    """Yield the lines of a file from where it stands; a file that ends with a line end has no further line.

    Raises:
        ClientError: it cannot be read on.
    """
    number = offset = 0
    while text := read_bytes(file.readline, limit + 1):
        number += 1
        start, offset = offset, offset + len(text)
        if len(text) > limit and not text.endswith(b"\n"):
            while rest := read_bytes(file.readline, limit):
                offset += len(rest)
                if rest.endswith(b"\n"):
                    break
            yield Line(number, start, None)
        else:
            yield Line(number, start, text.rstrip(b"\r\n"))


def judge_line(text: bytes | None) -> Verdict:
    """Return the verdict on a line as a stored event by itself; a blank line is none."""
    if text is None:
        return Verdict(
            ok=False,
            code="EVENT_SCHEMA_INCOMPATIBLE",
            path="/",
            message=f"the line is longer than {MAX_LINE // 1024 // 1024} MiB",
        )
    return judge(text)


def read_bytes(read: Callable[[int], bytes], size: int) -> bytes:
    """Return what `read` returns.

    Raises:
        ClientError: it cannot be read.
    """
    try:
        return read(size)
    except OSError as error:
        raise ClientError(f"the input cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def open_input(name: str, command: str, spool: Path | None = None) -> Generator[IO[bytes]]:
    """Open a file, or standard input for `-`; with `spool`, what cannot be read twice is first copied into that folder.

    Raises:
        ClientError: it cannot be opened, or copied, or is compressed; then the text tells how to give it to `command`.
    """
    with contextlib.ExitStack() as stack:
        if name == STDIN:
            file: IO[bytes] = standard_input().buffer
        else:
            try:
                file = stack.enter_context(open(name, "rb"))
            except OSError as error:
                raise ClientError(f"cannot read {name}: {error.strerror}") from None
        if spool is not None and (name == STDIN or not file.seekable()):
            file = stack.enter_context(_copied(file, spool))
        _refuse_compressed(file, name, command)
        yield file


@contextlib.contextmanager
def _copied(file: IO[bytes], folder: Path) -> Generator[IO[bytes]]:
    try:
        copy = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 # closed below, whatever it says then
    except OSError as error:
        raise _no_room(folder, error) from None
    try:
        try:
            while data := read_bytes(file.read, COPY_BYTES):
                copy.write(data)
            copy.seek(0)
        except OSError as error:
            raise _no_room(folder, error) from None
        yield copy
    finally:
        # What it still holds could not be written, and is closed with it all the same.
        with contextlib.suppress(OSError):
            copy.close()


def _no_room(folder: Path, error: OSError) -> ClientError:
    return ClientError(f"the input cannot be copied into {folder}: {error.strerror}")


def _refuse_compressed(file: IO[bytes], name: str, command: str) -> None:
    head = _head(file)
    for magic, kind, tool in COMPRESSED:
        if head.startswith(magic):
            what, given = ("standard input", "FILE") if name == STDIN else (name, shlex.quote(name))
            text = f"{what} is compressed ({kind}); unpack it: {tool} {given} | roost events {command} -"
            raise ClientError(clean(text))


def _head(file: IO[bytes]) -> bytes:
    """Return how a file goes on, without taking it."""
    if isinstance(file, io.BufferedReader):
        try:
            return file.peek(1)
        except OSError:
            # The first line will tell.
            return b""
    if not file.seekable():
        return b""
    at = file.tell()
    head = file.read(8)
    file.seek(at)
    return head
