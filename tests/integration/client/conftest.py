from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.fake_daemon import FakeDaemon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import trio


@pytest.fixture
async def daemon(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "home")
    await nursery.start(fake.serve)
    yield fake
    nursery.cancel_scope.cancel()
