from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import trio

from roost.actors.errors import DaemonError
from roost.actors.front import auth, http
from roost.actors.front.cursor import make_cursor, read_cursor
from roost.actors.front.daemon_door import DOOR, NOT_YET
from roost.actors.front.door import Door, Entry
from roost.actors.front.health import is_supported
from roost.actors.front.promise import Places, Promise, start
from roost.actors.front.timers import Timers
from roost.schemas.daemon import Nothing

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.7"])
def test_versions_that_are_served(version: str) -> None:
    assert is_supported(version)


@pytest.mark.parametrize(
    "version", ["1.1", "2.0", "1", "v1.0", "1.0.0-beta", "1.0.", "", "\u0661.0"]
)
def test_versions_that_are_refused(version: str) -> None:
    assert not is_supported(version)


def test_the_door_knows_the_42_methods_and_says_which_are_not_wired() -> None:
    assert sum(method.advertised for method in DOOR.methods.values()) == 42
    assert {name for name, method in DOOR.methods.items() if not method.implemented} == set(NOT_YET)


def test_a_method_registered_twice_is_refused() -> None:
    door = Door()
    door.add(Entry("m", Nothing))
    with pytest.raises(ValueError, match="m is registered twice"):
        door.add(Entry("m", Nothing))


def test_a_cursor_belongs_to_its_list_and_filter() -> None:
    cursor = make_cursor("session", 12, "session_x", "agent_1")
    assert read_cursor("session", cursor, "agent_1") == (12, "session_x")
    for kind, text, filtered in (
        ("agent", cursor, ""),
        ("session", cursor, "agent_2"),
        ("session", "17", ""),
        ("session", cursor + "x", "agent_1"),
        ("session", "roost-session-list-v1:é", ""),
        ("session", "roost-session-list-v1:" + "a" * 2000, ""),
    ):
        with pytest.raises(DaemonError) as caught:
            read_cursor(kind, text, filtered)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_CURSOR"


def test_the_cookie_is_compared_without_white_space_around_it() -> None:
    assert auth.is_cookie(" abc\n", "abc")
    assert not auth.is_cookie("abd", "abc")
    assert not auth.is_cookie("", "")
    assert auth.bearer_of("bearer  abc ") == "abc"
    assert auth.bearer_of("Basic abc") == ""


def test_a_process_descends_from_its_ancestors_only() -> None:
    assert auth.descends_from(os.getpid(), os.getppid())
    assert not auth.descends_from(os.getppid(), os.getpid())
    assert not auth.descends_from(0, os.getpid())


def test_a_peer_that_has_ended_is_not_trusted() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert auth.is_trusted(auth.PeerIdentity(ended.pid, os.getuid()), 1) is False


def test_a_peer_of_another_user_is_not_trusted() -> None:
    assert auth.is_trusted(auth.PeerIdentity(os.getpid(), os.getuid() + 1), 2**22) is False
    assert auth.is_trusted(auth.PeerIdentity(os.getpid(), os.getuid()), 2**22) is True
    assert auth.is_trusted(None, 2**22) is None


def _head(*headers: str) -> http.Head:
    head = http.parse_head("\r\n".join(("GET /x?y=1 HTTP/1.1", *headers)).encode() + b"\r\n")
    assert head is not None
    return head


def test_the_head_of_a_request_is_read() -> None:
    head = _head("Host: a", "X-Y:  z ")
    assert (head.method, head.path, head.first("x-y")) == ("GET", "/x", "z")


@pytest.mark.parametrize(
    "data", [b"", b"GET", b"GET / HTTP/2\r\n", b"GET / HTTP/1.1\r\nno colon\r\n", b"\xff\xfe\r\n"]
)
def test_what_is_no_head_is_refused(data: bytes) -> None:
    assert http.parse_head(data) is None


def test_a_header_of_blanks_takes_no_time() -> None:
    line = b"GET / HTTP/1.1\r\nx:" + b" " * 1_500
    began = time.process_time()
    assert http.parse_head(line + b"\x01\r\n") is None
    assert time.process_time() - began < 1
    head = http.parse_head(line + b"a b\t \r\n")
    assert head is not None
    assert head.first("x") == "a b"


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ((), True),
        (("Origin: http://localhost:5173",), True),
        (("Origin: http://127.0.0.1",), True),
        (("Origin: http://[::1]:80",), True),
        (("Origin: https://good.example",), True),
        (("Origin: null",), False),
        (("Origin: https://localhost",), False),
        (("Origin: http://localhost.evil.example",), False),
        (("Origin: http://localhost@evil.example",), False),
        (("Origin: http://localhost", "Origin: http://evil.example"), False),
        (("Origin: http://[",), False),
    ],
)
def test_origins(headers: tuple[str, ...], allowed: bool) -> None:
    assert http.is_origin_allowed(_head(*headers), ("https://good.example",)) is allowed


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        (("Host: localhost:7766",), True),
        (("Host: 127.0.0.1",), True),
        (("Host: [::1]:1",), True),
        (("Host: evil.example",), False),
        (("Host: localhost", "Host: localhost"), False),
        ((), False),
        (("Host: ",), False),
    ],
)
def test_hosts(headers: tuple[str, ...], allowed: bool) -> None:
    assert http.is_host_allowed(_head(*headers), "127.0.0.1", anywhere=False) is allowed


def test_a_coroutine_runs_at_once_and_goes_on_with_each_answer() -> None:
    first: Promise[int] = Promise()
    ends: list[object] = []

    async def work() -> int:
        return await first + 1

    start(work(), ends.append)
    assert not ends
    first.resolve(1)
    first.resolve(5)
    assert ends == [2]


def test_a_cancelled_coroutine_cleans_up_and_says_nothing() -> None:
    never: Promise[int] = Promise()
    ends: list[object] = []
    cleaned: list[bool] = []

    async def work() -> None:
        try:
            await never
        finally:
            cleaned.append(True)

    running = start(work(), ends.append)
    running.cancel()
    never.resolve(1)
    assert cleaned == [True]
    assert not ends


def test_places_are_given_in_order_and_one_that_is_not_wanted_any_more_is_skipped() -> None:
    places = Places(1)
    first, second, third, fourth = (places.ask() for _ in range(4))
    assert [place.done for place in (first, second, third, fourth)] == [True, False, False, False]
    places.give_back(second)
    places.give_back(first)
    assert (second.done, third.done, fourth.done) == (False, True, False)
    places.give_back(third)
    assert fourth.done
    places.give_back(fourth)
    assert places.ask().done
    assert not places.ask().done


def test_many_that_end_as_soon_as_they_are_let_in_do_not_nest_and_lose_no_place() -> None:
    places = Places(2)
    held = [places.ask(), places.ask()]
    ends: list[object] = []

    async def work(number: int) -> int:
        place = places.ask()
        try:
            await place
            return number
        finally:
            places.give_back(place)

    for number in range(5_000):
        start(work(number), ends.append)
    assert not ends
    places.give_back(held[0])
    assert ends == list(range(5_000))
    places.give_back(held[1])
    assert [places.ask().done for _ in range(3)] == [True, True, False]


def test_a_crash_is_an_internal_error_without_its_text() -> None:
    ends: list[object] = []

    async def work() -> None:
        raise RuntimeError("secret")

    start(work(), ends.append)
    (error,) = ends
    assert isinstance(error, DaemonError)
    assert error.code == "INTERNAL"
    assert "secret" not in error.message


async def test_timers_fire_in_order_and_not_when_cancelled(autojump_clock: MockClock) -> None:
    timers = Timers()
    fired: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        timers.after(2, lambda: fired.append("second"))
        timers.after(1, lambda: fired.append("first"))
        timers.after(1.5, lambda: fired.append("never")).cancel()
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert fired == ["first", "second"]
