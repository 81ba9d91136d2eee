"""The backends, and one cage for the tests of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cage import BACKENDS, Cage, backend_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roost.schemas.boot import Backend


@pytest.fixture(scope="module")
def cage() -> Iterator[Cage]:
    with Cage() as made:
        yield made


@pytest.fixture(params=BACKENDS, scope="module")
def backend(request: pytest.FixtureRequest) -> Backend:
    return backend_of(request.param)
