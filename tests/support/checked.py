"""Every message that a client of the tests reads is held against the schema, where jsonschema-rs is installed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, object]


def check_message(message: Json) -> None:
    """Fail if a message of the daemon is not of the schema."""
    _checker()(message)


@functools.cache
def _checker() -> Callable[[Json], None]:
    try:
        from bench.schema_check import checker
    except ImportError:
        return lambda message: None
    return checker()
