from __future__ import annotations

from hypothesis import given, strategies as st

from roost.actors.store.cuts import Cut, Cutter

Row = tuple[int, str, int]


def rows(*turns: str, size: int = 10) -> list[Row]:
    return [(number, turn, size) for number, turn in enumerate(turns, 1)]


def cut(log: list[Row], cutter: Cutter, *, ended: bool = False) -> Cut:
    if not any(cutter.take(*row) for row in log) and ended:
        cutter.take_end()
    return cutter.cut


def test_the_oldest_turns_go_until_enough_is_gone() -> None:
    log = rows("a", "a", "b", "b", "c", "c")
    assert cut(log, Cutter(1)) == Cut(2, 20, ("a",))
    assert cut(log, Cutter(20)) == Cut(2, 20, ("a",))
    assert cut(log, Cutter(21)) == Cut(4, 40, ("a", "b"))


def test_the_last_turn_stays_unless_it_is_said_to_have_ended() -> None:
    log = rows("a", "b", "b")
    assert cut(log, Cutter(1000)) == Cut(1, 10, ("a",))
    assert cut(log, Cutter(1000), ended=True) == Cut(3, 30, ("a", "b"))


def test_what_stands_in_front_of_all_turns_goes_with_the_first() -> None:
    assert cut(rows("", "", "a", "b"), Cutter(1)) == Cut(3, 30, ("a",))
    assert cut(rows("", ""), Cutter(1)) == Cut()


def test_what_no_turn_wrote_belongs_to_the_turn_before_it() -> None:
    assert cut(rows("a", "", "", "b"), Cutter(1)) == Cut(3, 30, ("a",))


def test_a_log_without_any_turn_can_go_when_it_has_ended() -> None:
    assert cut(rows("", ""), Cutter(1000), ended=True) == Cut(2, 20, ())
    assert cut([], Cutter(1000), ended=True) == Cut()


def test_a_turn_that_may_not_go_keeps_all_after_it() -> None:
    log = rows("a", "b", "c", "d")
    asked: list[int] = []

    def may_go(last: int) -> bool:
        asked.append(last)
        return last != 2

    assert cut(log, Cutter(1000, may_go), ended=True) == Cut(1, 10, ("a",))
    assert asked == [1, 2]


def test_one_cut_takes_a_bounded_number_of_turns() -> None:
    assert cut(rows("a", "b", "c", "d"), Cutter(1000, max_turns=2)) == Cut(2, 20, ("a", "b"))


@given(
    st.lists(st.integers(1, 5), max_size=20),
    st.integers(0, 3),
    st.integers(1, 400),
    st.booleans(),
)
def test_a_cut_is_always_between_two_turns_and_no_longer_than_needed(
    lengths: list[int], before: int, excess: int, ended: bool
) -> None:
    names = [""] * before
    for number, length in enumerate(lengths):
        names += [f"t{number}"] * length
    log = rows(*names, size=7)
    found = cut(log, Cutter(excess), ended=ended)
    gone, kept = log[: found.upto], log[found.upto :]
    assert found.size == sum(row[2] for row in gone)
    assert not {row[1] for row in gone} & {row[1] for row in kept}
    assert set(found.turn_ids) == {row[1] for row in gone} - {""}
    if not ended and lengths:
        assert kept
    if found.turn_ids[:-1]:
        last = found.turn_ids[-1]
        assert sum(row[2] for row in gone if row[1] != last) < excess
