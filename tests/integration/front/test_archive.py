from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from tests.support.front import Json, open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

METHOD = "roost.events.import"


async def test_imports_are_for_the_local_socket_only(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house:
            async with open_client(house, "websocket") as client:
                params: Json = {"importId": "import-one", "step": "abort"}
                answer = await client.answer(await client.send(METHOD, params))
    assert "METHOD_NOT_FOUND" in str(answer["error"])
