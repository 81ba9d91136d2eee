"""JSON lines of events from a file: bounded reading, and the verdict on each line."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from roost.actors.client.errors import ClientError
from roost.schemas.validation import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

STDIN: Final = "-"
# What a stored event may take in any spelling: six characters for one, and room for blanks.
MAX_LINE: Final = 16 * 1024 * 1024
COPY_BYTES: Final = 1024 * 1024


class Line(NamedTuple):
    """A line without its line end; `text` is None for one that is too long to be read."""

    number: int
    offset: int
    text: bytes | None


def read_lines(file: IO[bytes], *, limit: int = MAX_LINE) -> Iterator[Line]:
    """Yield the lines of a file from where it stands; a file that ends with a line end has no further line."""
    number = offset = 0
    while text := file.readline(limit + 1):
        number += 1
        start, offset = offset, offset + len(text)
        if len(text) > limit and not text.endswith(b"\n"):
            while rest := file.readline(limit):
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


@contextlib.contextmanager
def open_input(name: str, spool: Path | None = None) -> Generator[IO[bytes]]:
    """Open a file, or standard input for `-`; with `spool`, what cannot be read twice is first copied into that folder.

    Raises:
        ClientError: it cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        if name == STDIN:
            file: IO[bytes] = sys.stdin.buffer
        else:
            try:
                file = stack.enter_context(open(name, "rb"))
            except OSError as error:
                raise ClientError(f"cannot read {name}: {error.strerror}") from None
        if spool is not None and (name == STDIN or not file.seekable()):
            copy = stack.enter_context(tempfile.TemporaryFile(dir=spool))
            while data := file.read(COPY_BYTES):
                copy.write(data)
            copy.seek(0)
            file = copy
        yield file
