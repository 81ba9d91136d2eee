"""A door: a protocol as clients see it, its methods by name, each with its handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from roost.actors.front.method import Lane, Method
from roost.schemas.daemon import Nothing, Params

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from roost.actors.front.promise import Promise
    from roost.actors.front.router import Call, Caller

P = TypeVar("P", bound=Params)

Outcome = msgspec.Struct | msgspec.Raw
"""A result; one that is JSON already is sent as it is."""


class Entry(Generic[P]):
    """A method of a door with its handler: `instant` returns the JSON of its result, the others are coroutines."""

    def __init__(
        self,
        name: str,
        params: type[P],
        *,
        handler: Callable[[Call, P], Coroutine[Promise[object], None, Outcome]] | None = None,
        instant: Callable[[Caller, P], bytes] | None = None,
        lane: Lane = "short",
        order: str = "",
        unmetered: bool = False,
        advertised: bool = True,
    ) -> None:
        self.method = Method(
            name=name,
            params=params,
            lane="instant" if instant is not None else lane,
            order=order,
            unmetered=unmetered or lane == "control",
            implemented=handler is not None or instant is not None,
            bare=instant is not None and params is Nothing,
            advertised=advertised,
        )
        self._params = params
        self._handler = handler
        self.instant = instant

    def answer(self, caller: Caller, params: Params) -> bytes:
        """Return the result of an instant method as JSON."""
        assert self.instant is not None
        assert isinstance(params, self._params)
        return self.instant(caller, params)

    def begin(self, call: Call, params: Params) -> Coroutine[Promise[object], None, Outcome]:
        """Return the coroutine that makes the result."""
        assert self._handler is not None
        assert isinstance(params, self._params)
        return self._handler(call, params)


class Door:
    """A protocol as clients see it: its methods by name. A name used twice is an error at import.

    A connection that came in by it may choose `thread` instead.
    """

    def __init__(self) -> None:
        self.thread: Door | None = None
        self.entries: dict[str, Entry[Params]] = {}
        self.bare: dict[str, Callable[[Caller, Nothing], bytes]] = {}
        self.methods: dict[str, Method] = {}

    def add(self, entry: Entry[P]) -> None:
        """Register a method.

        Raises:
            ValueError: the name is taken.
        """
        name = entry.method.name
        if name in self.entries:
            raise ValueError(f"method {name} is registered twice")
        self.entries[name] = entry  # type: ignore[assignment]  # its params are decoded with its own struct
        self.methods[name] = entry.method
        if entry.method.bare and entry.instant is not None:
            self.bare[name] = entry.instant  # type: ignore[assignment]  # a bare one takes `Nothing`
