"""Every input of the turn machine at every moment: what must hold of each turn, whatever comes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from roost.actors.agent.calls import (
    ALREADY_STARTED,
    EXECUTION_FAILED,
    NOT_ALLOWED,
    NOT_CLAIMED,
    TIMED_OUT,
    Completed,
    Failed,
    Logged,
)
from roost.actors.agent.effects import Refuse, Verdict
from roost.actors.agent.runner import CallRequest, RunnerFailed, Thought
from roost.actors.agent.turn import MAX_TEXT_BYTES, State
from tests.unit.actors.agent.machine import ASK, QUESTION
from tests.unit.actors.agent.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.schemas.approval import PendingState

VERDICTS: dict[str, Verdict] = {"x": ASK, "pask": ASK, "q": QUESTION, "no": Refuse(NOT_ALLOWED)}
BATCHES = ("p", "pp", "ppppppp", "pppbppp", "b", "bb", "xp", "xx", "aaaaaa", "q", "qpx", "nbp", "n")
TOOLS = {"x": "x", "a": "pask", "q": "q", "n": "no", "p": "p", "b": "b"}
ENDS = (Completed("ok"), EXECUTION_FAILED, TIMED_OUT, Failed("no", "CODE", outcome="failed"))
REFUSALS = (ALREADY_STARTED, *NOT_CLAIMED)
STEPS = 60
WALKS = 250


class Walk:
    """One turn and what may happen to it next, the likely things more often."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(VERDICTS, max_iterations=3)

    def step(self) -> None:
        choices = self.choices()
        actions = [action for action, weight in choices.items() if weight]
        (action,) = self.random.choices(actions, [choices[action] for action in actions])
        action()

    def choices(self) -> dict[Callable[[], None], float]:
        world = self.world
        return {
            self.think: 6 if world.thinking else 0,
            self.stream: 1 if world.thinking else 0,
            self.fail: 0.2 if world.thinking else 0,
            world.stop_thought: 2 if world.stopping_thought else 0,
            world.answer: 10 if world.drafts else 0,
            self.refuse: 0.5 if world.drafts else 0,
            self.decide: 3 if world.rows else 0,
            self.tell: 5 if world.news else 0,
            world.permit: 6 if world.queue else 0,
            world.expire_queue: 0.5 if world.queue or world.limited else 0,
            world.expire_wait: 1 if world.waits else 0,
            self.end_tool: 3 if world.running else 0,
            self.unwind: 3 if world.stopped else 0,
            self.recall: 2 if world.recalls else 0,
            world.steer: 0.3,
            world.tell_unread: 3 if world.asked else 0.5 if world.unread else 0,
            world.cancel: 0.15,
            world.limit: 0.15,
        }

    def think(self) -> None:
        batch = self.random.choice(("", *BATCHES))
        text = self.random.choice(("", "text"))
        calls = tuple(CallRequest(TOOLS[name], {"n": name}) for name in batch)
        self.world.thinking = False
        self.world.take(self.world.machine.thought(Thought(text, calls, b"state")))

    def stream(self) -> None:
        self.world.machine.sent()
        size = self.random.choice((1, 1, 1, MAX_TEXT_BYTES + 1))
        self.world.take(self.world.machine.text(size))

    def fail(self) -> None:
        self.world.thinking = False
        self.world.take(self.world.machine.runner_failed(RunnerFailed("x")))

    def refuse(self) -> None:
        self.world.answer(self.random.choice(REFUSALS))

    def decide(self) -> None:
        row = self.random.choice(list(self.world.rows.values()))
        states: dict[str, tuple[PendingState, ...]] = {
            "approval": ("approved", "approved", "denied"),
            "question": ("answered", "cancelled"),
        }
        self.world.decide(row.request_id, self.random.choice(states[row.kind]))

    def tell(self) -> None:
        self.world.tell(again=self.random.random() < 0.2)

    def end_tool(self) -> None:
        self.world.end_tool(self.random.choice(ENDS))

    def unwind(self) -> None:
        self.world.end_tool(None)

    def recall(self) -> None:
        self.world.recall(self.random.choice(ENDS))


@pytest.mark.parametrize("part", range(8))
def test_whatever_happens_the_log_is_right_and_the_turn_comes_to_its_end(part: int) -> None:
    for seed in range(part * WALKS, (part + 1) * WALKS):
        walk = Walk(seed)
        try:
            for _ in range(STEPS):
                walk.step()
            walk.world.finish()
            check_end(walk.world)
        except Exception as error:
            raise AssertionError(f"walk {seed}: {error!r}, log {walk.world.log}") from error


def check_end(world: World) -> None:
    assert world.machine.state is State.ENDED
    assert not world.running
    assert not world.permits
    assert len(world.ended) == 1
    assert all(state is Logged.ENDED for state in world.calls.values())
    assert set(world.names) == set(world.calls)
    assert not [row for row in world.rows.values() if row.state == "open"]
    assert "running" not in world.ledger.values()
    assert world.read == [f"steer{number}" for number in range(1, world.steers + 1)]
    outcome = world.ended[0].outcome
    if world.cancelled:
        assert (world.log[-1], outcome) == ("cancellation.completed", "interrupted")
    elif world.late:
        assert (world.log[-1], outcome) == ("agent.turn.failed", "failed")
