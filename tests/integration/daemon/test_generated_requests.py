"""Requests made from the schema, right and changed ones, on a real daemon: answers are as the schema and the tables say."""

from __future__ import annotations

import pytest

from bench.daemon import running_daemon
from bench.fuzz_requests import SETTINGS, fuzz

MESSAGES = 500


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["unix", "websocket"])
def test_what_the_schema_refuses_is_refused_and_nothing_else_but_by_a_rule(transport: str) -> None:
    with running_daemon(*SETTINGS) as daemon:
        done = fuzz(daemon, transport, MESSAGES, 11)
        assert done.wrong == []
        assert min(done.sent.values()) > MESSAGES // 3
        assert done.codes["result"] > MESSAGES // 3
        assert {"event.permission_request", "event.user_input_request"} <= set(done.notes)
        assert daemon.process.poll() is None
