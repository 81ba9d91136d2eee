from __future__ import annotations

import pytest

from roost.supervisor.errors import SpecError
from roost.supervisor.switchboard import Table

TABLE = Table([("front", "store"), ("agent:*", "store"), ("front", "agent:*"), ("store", "front")])


@pytest.mark.parametrize(
    ("name", "peers"),
    [
        ("store", {"front", "agent:*"}),
        ("front", {"store", "agent:*"}),
        ("agent:1", {"store", "front"}),
        ("agent:", {"store", "front"}),
        ("providers", set[str]()),
    ],
)
def test_both_sides_of_a_pair_are_linked(name: str, peers: set[str]) -> None:
    assert set(TABLE.peers(name)) == peers
    assert len(TABLE.peers(name)) == len(peers)


@pytest.mark.parametrize("name", ["*agent", "a*b", ""])
def test_a_star_may_only_end_a_name(name: str) -> None:
    with pytest.raises(SpecError):
        Table([(name, "store")])
