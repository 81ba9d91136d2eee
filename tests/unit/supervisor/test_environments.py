from __future__ import annotations

from roost.supervisor.environments import Environments


def test_an_environment_is_kept_in_place_of_an_earlier_one() -> None:
    kept = Environments()
    assert kept.of("a") == {}
    assert kept.keep("a", {"X": "1"})
    assert kept.keep("a", {"Y": "2"})
    assert kept.of("a") == {"Y": "2"}


def test_without_room_the_earlier_one_stays() -> None:
    kept = Environments(limit=10)
    assert kept.keep("a", {"X": "1" * 9})
    assert not kept.keep("b", {"Y": "2"})
    assert not kept.keep("a", {"X": "1" * 10})
    assert kept.of("a") == {"X": "1" * 9}
    assert kept.keep("a", {"X": "1"})
    assert kept.keep("b", {"Y": "2"})
