from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import create_agent, send_script, within
from tests.support.processes import stand_still
from tests.support.scenarios import brief, lines, refusal, request

if TYPE_CHECKING:
    from collections.abc import Generator

    from bench.daemon import Client, Json
    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

IN_FLIGHT, QUEUED = 32, 256
RATE, BURST = 50, 400


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    """A rate on the Unix socket too, where there is none as shipped."""
    return (f"limits.unix_rate={RATE}", f"limits.unix_burst={BURST}")


def test_scenario_09_the_33rd_long_running_request_is_refused_at_once(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    sessions = [create_agent(client)[1] for _ in range(2)]
    numbers = [
        send_script(client, sessions[index % 2], {"hang": True}) for index in range(IN_FLIGHT)
    ]
    error = refusal(client, send_script(client, sessions[0], {"say": "no"}))
    assert brief(error) == (
        -32000,
        "TOO_MANY_IN_FLIGHT_REQUESTS",
        "daemon connection has too many in-flight requests",
    )
    assert within(error, "data")["maxInFlightRequests"] == IN_FLIGHT
    # Short requests and control calls pass, and another connection has its own count.
    assert client.call("agent.list")["agents"]
    other = shared.client()
    free = create_agent(other)[1]
    assert other.answer(send_script(other, free, {"say": "x"}))["outcome"] == "completed"
    assert client.call("request.cancel", requestId=numbers[-1])["cancelled"] is True
    assert brief(refusal(client, numbers.pop()))[1] == "REQUEST_CANCELLED"
    # There is room again, and what was refused has had no effect.
    again = send_script(client, free, {"say": "again"})
    assert client.answer(again)["outcome"] == "completed"
    for number in reversed(numbers):
        client.call("request.cancel", requestId=number)
        assert brief(refusal(client, number))[1] == "REQUEST_CANCELLED"


@contextlib.contextmanager
def stopped(daemon: RunningDaemon, child_id: str) -> Generator[None]:
    """Have a process of the daemon stand still."""
    pid = daemon.pid(child_id)
    stand_still(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_scenario_09_a_request_over_the_queue_is_refused_ahead_of_those_that_wait(
    shared: RunningDaemon,
) -> None:
    client, other = shared.client(), shared.client()
    count = IN_FLIGHT + QUEUED
    with stopped(shared, "store"):
        client.sock.sendall(b"".join(request(n, "agent.list") for n in range(count + 3)))
        for answer, number in zip(lines(client, 3), range(count, count + 3), strict=True):
            assert answer["id"] == number
            error = within(answer, "error")
            assert brief(error) == (
                -32000,
                "TOO_MANY_QUEUED_REQUESTS",
                "daemon connection has too many queued requests",
            )
            assert within(error, "data")["maxQueuedRequests"] == QUEUED
        # Health and control calls are answered although everything else waits, also for this client.
        client.sock.sendall(request("p", "health.ping"))
        assert within(client.read(), "result")["ok"] is True
        # One that waits can be withdrawn, which makes room for another.
        client.sock.sendall(request("c", "request.cancel", requestId=count - 1))
        cancelled, reply = lines(client, 2)
        assert cancelled["id"] == count - 1
        assert within(cancelled, "error", "data")["code"] == "REQUEST_CANCELLED"
        assert within(reply, "result")["cancelled"] is True
        client.sock.sendall(request("late", "agent.list"))
        assert other.call("health.ping")["ok"] is True
    answers = lines(client, count)
    assert all("result" in answer for answer in answers)
    assert {answer["id"] for answer in answers} == {*range(count - 1), "late"}


def test_scenario_09_200_small_requests_in_one_write_are_all_answered(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    methods = ("agent.list", "health.ping", "session.list", "health.ready")
    client.sock.sendall(b"".join(request(n, methods[n % 4]) for n in range(200)))
    answers = lines(client, 200)
    assert sorted(int(str(answer["id"])) for answer in answers) == list(range(200))
    assert all("result" in answer for answer in answers)


def flood(client: Client) -> list[Json]:
    """Send pings until one is refused; return the answers."""
    answers: list[Json] = []
    while not any("error" in answer for answer in answers):
        client.sock.sendall(b"".join(request(n, "health.ping") for n in range(BURST)))
        answers += lines(client, BURST)
    return answers


def test_scenario_09_a_burst_passes_then_the_rate_holds_and_control_calls_always_pass(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    began = time.monotonic()
    answers = flood(client)
    passed = sum("result" in answer for answer in answers)
    # The bucket was full but for `initialize`, and has been filled since at no more than its rate.
    assert BURST - 1 <= passed <= BURST + (time.monotonic() - began) * RATE + 1
    error = next(within(answer, "error") for answer in answers if "error" in answer)
    assert brief(error) == (-32000, "RATE_LIMITED", "daemon connection rate limit exceeded")
    data = within(error, "data")
    assert (data["requestRatePerSecond"], data["requestBurst"]) == (RATE, BURST)
    assert data["retryAfterMs"] == 1000 // RATE
    # Even what is no request takes a token; a control call takes none, and asks for none.
    client.sock.sendall(b"[]\n" * 50)
    refused = {within(answer, "error", "data")["code"] for answer in lines(client, 50)}
    assert "RATE_LIMITED" in refused
    for number in range(50):
        assert client.call("request.cancel", requestId=f"none-{number}")["cancelled"] is False
        assert client.call("session.cancelTurn", sessionId="none")["cancelled"] is False
    assert shared.client().call("agent.list")["agents"] is not None
    time.sleep(int(str(data["retryAfterMs"])) / 1000 * 2)
    assert client.call("health.ping")["ok"] is True
