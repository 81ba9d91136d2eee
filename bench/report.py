"""What a measurement says, and the table of all of them."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """One measured value; `met` is None where there is no bound to meet."""

    name: str
    value: str
    floor: str = ""
    bound: str = ""
    met: bool | None = None


def at_least(name: str, value: float, least: float, unit: str = "/s", floor: str = "") -> Figure:
    """Return a figure with a lower bound."""
    return Figure(
        name, f"{value:,.0f}{unit}", floor, f"at least {least:,.0f}{unit}", value >= least
    )


def at_most(name: str, value: float, most: float, unit: str, floor: str = "") -> Figure:
    """Return a figure with an upper bound."""
    return Figure(name, f"{value:,.3g} {unit}", floor, f"at most {most:g} {unit}", value <= most)


def table(figures: list[Figure]) -> str:
    """Return all figures as a Markdown table."""
    rows = ["| what | measured | floor | bound | met |", "| --- | ---: | ---: | --- | --- |"]
    for figure in figures:
        met = {None: "", True: "yes", False: "**no**"}[figure.met]
        rows.append(f"| {figure.name} | {figure.value} | {figure.floor} | {figure.bound} | {met} |")
    return "\n".join(rows)
