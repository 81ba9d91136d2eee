"""Requests for the thread door by the contract's schema, right and changed ones, mostly about what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bench.schema_cases import Cases
from bench.thread_rules import MODELS, Json, with_ids

if TYPE_CHECKING:
    from random import Random

    from bench.thread_rules import Thread, Threads

# They are asked for more often than the others.
OFTEN = (
    "turn/start",
    "turn/start",
    "turn/steer",
    "turn/interrupt",
    "approval/resolve",
    "approval/resolve",
)


class Requests:
    """An endless supply of them; `live` are the threads that they are mostly about, `items` the ids of items."""

    def __init__(self, schema: Json, random: Random, world: Threads) -> None:
        self._random = random
        self._world = world
        self._cases = Cases(with_ids(schema), random, self._known)
        self._methods = [*sorted(self._cases.requests), *OFTEN]
        self._number = 0
        self._named: Thread | None = None
        self.live: list[Thread] = []
        self.items: list[str] = []

    def number(self) -> int:
        """Return an id that no request has had."""
        self._number += 1
        return self._number

    def greeting(self, *, right: bool) -> Json:
        """Return a request `initialize`, or a changed one."""
        made: Json = {**self._cases.request("initialize"), "id": self.number()}
        return made if right else cast("Json", self._cases.changed(made).message)

    def next(self) -> Json:
        """Return a request, as often changed as right, with an id of its own if it has one."""
        method = self._random.choice(self._methods)
        self._named = self._focus(method)
        right = self._cases.request(method)
        if self._random.random() < 0.5:
            right = cast("Json", self._cases.changed(right).message)
        number = self.number()
        if isinstance(right.get("id"), str):
            return {**right, "id": f"r{number}"}
        # What is no id stays; what is one is this request's own.
        return {**right, "id": number} if type(right.get("id")) is int else right

    def _focus(self, method: str) -> Thread | None:
        """Return the thread that a request is to be about: mostly one that has something for it."""
        ready = {
            "approval/resolve": [thread for thread in self.live if thread.asked],
            "turn/steer": [thread for thread in self.live if thread.turn is not None],
            "turn/interrupt": [thread for thread in self.live if thread.turn is not None],
            "turn/start": [thread for thread in self.live if thread.turn is None],
        }.get(method)
        choice = ready if ready and self._random.random() < 0.8 else self.live
        return self._random.choice(choice) if choice else None

    def _known(self, _: str, member: str) -> object:
        """Return a text for a member, mostly one that means something now."""
        random = self._random
        if random.random() < 0.15:
            return None
        thread = self._named
        if member == "threadId":
            old = list(self._world.all)[-20:]
            return random.choice(old) if random.random() < 0.15 or thread is None else thread.id
        match member:
            case "turnId" if thread is not None and thread.turns:
                return thread.turns[-1].id if random.random() < 0.85 else thread.turns[0].id
            case "requestId" if thread is not None and thread.asked:
                return random.choice(list(thread.asked)[-2:])
            case "afterItemId" if self.items:
                return random.choice(self.items)
            case "model":
                return random.choice((*MODELS, "", "none"))
            case "provider":
                return random.choice(("local", "none"))
            case "cwd":
                return "/tmp"
            case "text":
                return f"say {random.randrange(1_000)}"
            case _:
                return None
