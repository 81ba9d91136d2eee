from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.desk import Actor, Book, with_actor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path, queued_messages=3, event_bytes=10_000)
    yield made
    # Whatever a test has done, the figures that are kept are those that are there.
    assert made.figures() == made.counted()
    made.close()


@pytest.fixture
def actor(book: Book) -> Actor:
    return with_actor(book)
