from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.actors.errors import DaemonError
from roost.config.model import encode_settings
from tests.support.front import open_client, open_front, settings_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.front import Json


async def test_a_reload_wants_a_transport_that_authenticates(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            handle = await house.front.inprocess.open()
            with pytest.raises(DaemonError) as caught:
                await handle.request("daemon.reload")
            assert caught.value.code == "DAEMON_RELOAD_AUTHENTICATION_REQUIRED"
            text = "daemon reload requires authenticated daemon transport"
            assert caught.value.message == text


async def test_who_is_in_this_process_has_no_socket_to_be_known_by(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            handle = await house.front.inprocess.open()
            answer = msgspec.json.decode(await handle.request("auth.whoami"))
            assert answer == {"authenticated": False}


async def test_new_settings_count_for_connections_that_are_open(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            async with open_client(house) as one, open_client(house, "websocket") as two:
                limits: Json = {"unix_rate": 1, "unix_burst": 1, "tcp_rate": 1, "tcp_burst": 1}
                changed = settings_for(tmp_path, limits=limits)
                house.front.configure(encode_settings(changed))
                for client in (one, two):
                    await client.call("health.ping")
                    error = await client.refused("health.ping")
                    assert error["message"] == "daemon connection rate limit exceeded"
                house.front.configure(encode_settings(settings_for(tmp_path)))
                for client in (one, two):
                    for _ in range(3):
                        await client.call("health.ping")
