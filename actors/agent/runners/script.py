"""The embedded runner: no model, but real work through the real tools, and whatever a test's script asks for."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.agent.runner import CallRequest, CallResult, RunnerFailed, Sink, Thought
from roost.actors.agent.runners.steps import (
    Allocate,
    Crash,
    Fail,
    Hang,
    Say,
    Sleep,
    Step,
    UseTool,
    read_steps,
)
from roost.actors.agent.tools.toolbox import find_tool

if TYPE_CHECKING:
    from roost.schemas.turn import QueuedMessage

PIECES_AT_ONCE = 32
REPORT_CHARACTERS = 8_000
MIB = 1024 * 1024


class ScriptRunner:
    """Carries out the steps of one message; those of a message that steers come before what is left of them.

    `state` is the number of the step after the last call, and behind it those in front of which the `steers` came in.
    """

    def __init__(
        self,
        metadata: bytes,
        text: str,
        state: bytes = b"",
        steers: tuple[QueuedMessage, ...] = (),
    ) -> None:
        self._metadata = metadata
        self._text = text
        numbers = [int(number) for number in state.split() if number.isdigit()]
        self._next = numbers[0] if numbers else 0
        self._places = numbers[1:]
        self._known = steers
        self._heard: list[QueuedMessage] = []
        self._steps: list[Step] | None = None
        self._ballast: list[bytearray] = []

    def steer(self, message: QueuedMessage) -> None:
        """Carry out the steps of a message next."""
        self._heard.append(message)

    async def think(self, results: tuple[CallResult, ...], sink: Sink) -> Thought:
        """Carry out steps up to the next call or the end.

        Raises:
            RunnerFailed: a step is wrong, or says so.
        """
        steps = self._read()
        said: list[str] = []
        last = steps[self._next - 1] if 0 < self._next <= len(steps) else None
        if results and isinstance(last, UseTool) and last.report:
            await self._say(Say("".join(map(report, results))), sink, said)
        while self._next < len(steps):
            step = steps[self._next]
            self._next += 1
            if isinstance(step, UseTool):
                call = CallRequest(step.name, step.args)
                return Thought("".join(said), (call,), self._state())
            await self._do(step, sink, said)
        return Thought("".join(said))

    def _read(self) -> list[Step]:
        """Return all steps, with those of every message heard so far in their places."""
        if self._steps is None:
            self._steps = read_steps(self._metadata, self._text)
            _check_tools(self._steps)
            for place, message in zip(self._places, self._known, strict=False):
                self._steps[place:place] = read_steps(message.metadata, message.text)
        place = self._next
        heard, self._heard = self._heard, []
        for message in heard:
            steps = read_steps(message.metadata, message.text)
            _check_tools(steps)
            self._steps[place:place] = steps
            self._places.append(place)
            place += len(steps)
        return self._steps

    def _state(self) -> bytes:
        return " ".join(map(str, (self._next, *self._places))).encode()

    async def _do(self, step: Step, sink: Sink, said: list[str]) -> None:
        match step:
            case Say():
                await self._say(step, sink, said)
            case Sleep(seconds=seconds):
                await trio.sleep(seconds)
            case Fail(message=message):
                raise RunnerFailed(message.strip() or "Agent turn failed", code="SCRIPT_FAILED")
            case Hang(hard=hard):
                await sink.settled()
                await _hang(hard)
            case Crash(code=code):
                await sink.settled()
                _crash(code)
            case Allocate(mib=mib):
                self._ballast.append(bytearray(b"\1") * (mib * MIB))
                await trio.lowlevel.checkpoint()
            case UseTool():
                raise ValueError("a call is not a step to do here")

    async def _say(self, step: Say, sink: Sink, said: list[str]) -> None:
        text = step.text
        said.append(text)
        count = max(min(step.chunks, len(text)), 1)
        due = trio.current_time()
        begin = 0
        for number in range(1, count + 1):
            end = number * len(text) // count
            sink.text(text[begin:end])
            begin = end
            if step.interval and number < count:
                await sink.room()
                due += step.interval
                await trio.sleep_until(due)
            elif number % PIECES_AT_ONCE == 0:
                await sink.room()
        await sink.room()


async def _hang(hard: bool) -> None:
    while hard:
        select.select([], [], [], 3600)
    await trio.sleep_forever()


def _crash(code: int | None) -> None:
    if code is not None:
        os._exit(code)
    os.kill(os.getpid(), signal.SIGKILL)


def _check_tools(steps: list[Step]) -> None:
    for number, step in enumerate(steps):
        if isinstance(step, UseTool) and find_tool(step.name) is None:
            text = f"metadata.script[{number}]: there is no tool {step.name!r}"
            raise RunnerFailed(text[:200], code="INVALID_SCRIPT")


class _Known(msgspec.Struct, frozen=True):
    """What results have in them."""

    output: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    content: str | None = None
    files: list[str] | None = None
    path: str | None = None
    bytes: int | None = None


def report(result: CallResult) -> str:
    """Return what the runner says about the result of a call that a line of a message asked for."""
    if result.code:
        return f"{result.name} failed: {result.error} ({result.code})\n"
    try:
        found = msgspec.convert(result.result, _Known)
    except msgspec.ValidationError:
        return f"{_short(msgspec.json.encode(result.result).decode())}\n"
    if found.output is not None:
        text = found.output
        line = text if not text or text.endswith("\n") else f"{text}\n"
        ended = f"ended by {found.signal}" if found.signal else f"exit code {found.exit_code}"
        return f"{_short(line)}{ended}\n"
    if found.content is not None:
        return _short(found.content)
    if found.files is not None:
        return _short("".join(f"{file}\n" for file in found.files)) or "no such file\n"
    if found.path is not None and found.bytes is not None:
        return f"wrote {found.bytes} bytes to {found.path}\n"
    return f"{_short(msgspec.json.encode(result.result).decode())}\n"


def _short(text: str) -> str:
    if len(text) <= REPORT_CHARACTERS:
        return text
    half = REPORT_CHARACTERS // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"
