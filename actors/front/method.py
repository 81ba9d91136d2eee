"""What the protocol core knows of a method: its params, its lane, and what orders it."""

from __future__ import annotations

from typing import Literal

import msgspec

from roost.schemas.daemon import Nothing, Params

Lane = Literal["instant", "short", "long", "decision", "priority", "control"]
"""Who passes whom.

`instant` is answered before anything else is read. `short` ones wait when too many are at work. `long` ones, which may
take hours, are counted apart and refused. `decision`, `priority` and `control` pass every queue; only as many as may be at
work of one of the first two are, and the next is refused.
"""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A method of a door.

    `order` is the member of the params that names the resource, or empty; `unmetered` ones use no rate token. A `bare`
    one is answered at once and has no params: the shortest way through the core is for it. One that is not `advertised` is
    no part of the protocol.
    """

    name: str
    params: type[Params] = Nothing
    lane: Lane = "short"
    order: str = ""
    unmetered: bool = False
    implemented: bool = True
    bare: bool = False
    advertised: bool = True
