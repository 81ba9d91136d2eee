from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.actors.providers import actor
from tests.support.scripted_model import ScriptedModel, scripted_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.fixture
async def server() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as running:
        yield running


@pytest.fixture(autouse=True)
def hidden(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note that the process wanted to hide its memory; that of the tests stays as it is."""
    noted: list[str] = []
    monkeypatch.setattr(actor, "hide_memory", lambda: noted.append("hidden"))
    return noted
