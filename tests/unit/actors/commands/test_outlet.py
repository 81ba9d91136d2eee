from __future__ import annotations

from roost.actors.commands.outlet import Outlet


class Tap:
    """A command with something held back."""

    def __init__(self, outlet: Outlet, held: int = 0) -> None:
        self.outlet = outlet
        self.held = held
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def flush(self) -> None:
        size, self.held = self.held, 0
        if size:
            self.outlet.sent(size)


def test_past_the_window_every_command_of_the_connection_is_paused() -> None:
    outlet = Outlet(100)
    taps = [Tap(outlet), Tap(outlet)]
    for number, tap in enumerate(taps):
        outlet.join(number, tap)
    outlet.sent(99)
    assert not any(tap.paused for tap in taps)
    outlet.sent(1)
    assert all(tap.paused for tap in taps)


def test_commands_go_on_when_half_of_the_window_has_been_taken() -> None:
    outlet = Outlet(100)
    tap = Tap(outlet)
    outlet.join(1, tap)
    outlet.sent(120)
    outlet.taken(69)
    assert tap.paused
    outlet.taken(1)
    assert not tap.paused


def test_a_command_that_joins_a_full_connection_is_paused() -> None:
    outlet = Outlet(100)
    outlet.join(1, Tap(outlet))
    outlet.sent(100)
    late = Tap(outlet)
    outlet.join(2, late)
    assert late.paused
    outlet.taken(100)
    assert not late.paused


def test_what_was_held_back_follows_as_far_as_the_window_goes() -> None:
    outlet = Outlet(100)
    first, second, third = Tap(outlet, 60), Tap(outlet, 60), Tap(outlet, 60)
    for number, tap in enumerate((first, second, third)):
        outlet.join(number, tap)
    outlet.sent(80)
    outlet.taken(80)
    assert (first.held, second.held, third.held) == (0, 0, 60)
    assert first.paused
    outlet.taken(120)
    assert third.held == 0


def test_it_is_unused_once_its_commands_have_left_and_all_is_taken() -> None:
    outlet = Outlet(100)
    outlet.join(1, Tap(outlet))
    outlet.sent(10)
    outlet.leave(1)
    assert not outlet.is_unused
    outlet.taken(10)
    assert outlet.is_unused
