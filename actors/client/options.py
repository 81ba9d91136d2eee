"""What is refused of options and arguments as a wrong use, beyond what their types refuse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


def finite(
    _context: click.Context, _option: click.Parameter, seconds: float | None
) -> float | None:
    """Return the value; refuse what is no number, which is in every range."""
    if seconds is not None and not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} is no number of seconds")
    return seconds


def not_empty(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """Return the value; refuse an empty one, which is mostly a variable of a script that was not set."""
    if text is not None and not text.strip():
        raise click.BadParameter("it is empty")
    return text


def named(context: click.Context, parameter: click.Parameter, text: str | None) -> str:
    """Return the value of what need not be given, then ""; an empty one that was given is refused."""
    return not_empty(context, parameter, text) or ""


def all_named(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> Sequence[str]:
    """Return the values; refuse an empty one."""
    for text in texts:
        not_empty(context, parameter, text)
    return texts
