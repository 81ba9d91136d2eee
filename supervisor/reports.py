"""One structured record for each start, ready, exit, restart and give-up of a child."""

from __future__ import annotations

from typing import Literal

import msgspec


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to a child.

    `how` says how it ended: by itself without an error, because it was asked to, or in a crash. `delay` is the wait
    before a restart, `lived` how long it had lived, both in seconds.
    """

    event: Literal["start", "ready", "exit", "restart", "give_up"]
    child_id: str
    parent: str
    generation: int
    kind: str = ""
    pid: int = 0
    how: Literal["", "normal", "shutdown", "crash"] = ""
    reason: str = ""
    lived: float = 0.0
    delay: float = 0.0
    last_words: str = ""
