"""One session at a terminal: its events are shown, what it asks is answered, Ctrl-C interrupts the turn."""

from __future__ import annotations

import secrets
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from roost.actors.client.errors import Disconnected, RpcError
from roost.actors.client.events import (
    ApprovalAsked,
    Closed,
    Event,
    QuestionAsked,
    Settled,
    StatusChanged,
    UserSaid,
    read_event,
)
from roost.actors.client.prompts import ask_questions, read_decision
from roost.actors.client.render import show
from roost.actors.client.replies import Attached, Cancelled, Decided, Nothing, Sent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from roost.actors.client.connection import Connection
    from roost.actors.client.prompts import LineInput
    from roost.actors.client.render import Terminal

INTERRUPTED = 130
CHOICES = "allow it? [y]es, [N]o, [a]lways in this session: "


def new_message_id() -> str:
    """Return an id by which the daemon knows a message that is sent again."""
    return f"msg_{secrets.token_hex(12)}"


class Conversation:
    """The terminal's side of one session.

    `lines` is where decisions are typed, `approve_all` gives them without asking. Nothing is shown before the message
    `only_from` begins its turn, if that is given; what waits for a decision is. `ended` comes with the end of a turn, or,
    with `stay`, when the user leaves.
    """

    def __init__(
        self,
        connection: Connection,
        terminal: Terminal,
        *,
        lines: LineInput | None,
        approve_all: bool = False,
        only_from: str = "",
        stay: bool = False,
    ) -> None:
        self.session_id = ""
        self.ended = trio.Event()
        self.exit_status = 0
        self._connection = connection
        self._terminal = terminal
        self._lines = lines
        self._approve_all = approve_all
        self._only_from = only_from
        self._stay = stay
        self._interrupted = False
        self._keyboard = trio.Lock()
        self._chat_scope = trio.CancelScope()
        self._asked: set[str] = set()
        self._attaching = False
        self._replayed: dict[str, ApprovalAsked | QuestionAsked] = {}
        self._wants_keyboard = False
        self._settled: set[str] = set()
        self._prompt_scope: trio.CancelScope | None = None
        self._prompt_id = ""
        self._to_ask, self._questions = trio.open_memory_channel[ApprovalAsked | QuestionAsked](256)

    async def attach(self, session_id: str, client_id: str) -> Attached:
        """Attach to the session; its events come from now on. What history has asked and decided is not asked again."""
        self.session_id = session_id
        params = {"sessionId": session_id, "clientId": client_id}
        self._attaching = True
        attached = await self._connection.call("session.attach", params, Attached)
        await self._connection.drained()
        self._attaching = False
        waiting, self._replayed = self._replayed, {}
        for event in waiting.values():
            await self._queue(event)
        return attached

    async def follow(self) -> None:
        """Show events until the connection ends.

        Raises:
            Disconnected: always, in the end.
        """
        async for notification in self._connection.notifications:
            event = read_event(notification)
            if event is not None:
                await self._take(event)
        raise Disconnected("the daemon closed the connection")

    async def _take(self, event: Event) -> None:
        match event:
            case UserSaid(message_id=message_id) if message_id == self._only_from:
                # The one who sent it knows what it says.
                self._only_from = ""
                return
            case ApprovalAsked() | QuestionAsked():
                await self._queue(event)
                return
            case Settled(request_id=request_id):
                self._settle(request_id)
            case StatusChanged() if event.over:
                # Nothing waits longer than its turn.
                self._replayed.clear()
            case _:
                pass
        if self._only_from:
            return
        show(self._terminal, event)
        self._notice_end(event)

    def _notice_end(self, event: Event) -> None:
        """A turn ends with a status; while a message is accepted and not begun the daemon never says idle."""
        match event:
            case StatusChanged() if event.over and self._stay:
                self._interrupted = False
            case StatusChanged() if event.over:
                self.exit_status = INTERRUPTED if self._interrupted else event.exit_status
                self.ended.set()
            case Closed():
                self.exit_status = INTERRUPTED
                self.ended.set()
            case _:
                pass

    async def _queue(self, event: ApprovalAsked | QuestionAsked) -> None:
        """Take what waits for a person; an attach repeats all of it."""
        if self._attaching:
            self._replayed[event.request_id] = event
        elif event.request_id not in self._asked:
            self._asked.add(event.request_id)
            await self._to_ask.send(event)

    def _settle(self, request_id: str) -> None:
        self._settled.add(request_id)
        self._replayed.pop(request_id, None)
        if self._prompt_id == request_id and self._prompt_scope is not None:
            self._prompt_scope.cancel()

    async def answer(self) -> None:
        """Ask the user about what waits, one after the other; a decision made elsewhere withdraws the question."""
        async for event in self._questions:
            if event.request_id in self._settled:
                continue
            self._wants_keyboard = True
            self._chat_scope.cancel()
            async with self._keyboard:
                self._wants_keyboard = False
                if event.request_id in self._settled:
                    continue
                show(self._terminal, event)
                with trio.CancelScope() as self._prompt_scope:
                    self._prompt_id = event.request_id
                    await self._answer_one(event)
                self._prompt_id = ""

    async def _answer_one(self, event: ApprovalAsked | QuestionAsked) -> None:
        try:
            if isinstance(event, ApprovalAsked):
                await self._decide(event)
            else:
                await self._respond(event)
        except RpcError as error:
            self._terminal.note(f"  {error.message}", dim=True)

    async def _decide(self, event: ApprovalAsked) -> None:
        approved, scope = True, "once"
        if not self._approve_all:
            self._terminal.prompt(CHOICES)
            line = await self._lines.read_line() if self._lines is not None else None
            if line is None:
                self._leave_open(event.request_id)
                return
            approved, scope = read_decision(line)
        params: dict[str, object] = {"sessionId": event.session_id, "requestId": event.request_id}
        if approved:
            params["scope"] = scope
        method = "tool.approve" if approved else "tool.deny"
        await self._connection.call(method, params, Decided)

    async def _respond(self, event: QuestionAsked) -> None:
        answers = None
        if self._lines is not None:
            answers = await ask_questions(self._terminal, self._lines, event.questions)
        if answers is None:
            self._leave_open(event.request_id)
            return
        params = {
            "sessionId": event.session_id,
            "requestId": event.request_id,
            "kind": "request_user_input",
            "response": {"answers": answers},
        }
        await self._connection.call("elicitation.respond", params, Nothing)

    def _leave_open(self, request_id: str) -> None:
        self._lines = None
        self._terminal.note(
            f"\n  nobody answers here; it waits: roost approve {request_id}, or roost deny {request_id}"
        )

    async def chat(self) -> None:
        """Send every line that is typed as a message, unless it answers a question; leave at the end of the input."""
        async with trio.open_nursery() as nursery:
            while self._lines is not None:
                line: str | None = ""
                async with self._keyboard:
                    if self._wants_keyboard:
                        # It came between two lines, when there was no wait to break off.
                        continue
                    with trio.CancelScope() as self._chat_scope:
                        line = await self._lines.read_line()
                if line is None:
                    self.ended.set()
                    return
                if line.strip():
                    nursery.start_soon(self._send_typed, line)

    async def _send_typed(self, text: str) -> None:
        try:
            await self.send(text, new_message_id())
        except RpcError as error:
            self._terminal.note(f"not accepted: {error}", fg="red")

    async def send(self, text: str, message_id: str) -> Sent:
        """Send a message and return when its turn has ended."""
        params = {"sessionId": self.session_id, "content": text, "clientMessageId": message_id}
        return await self._connection.call("message.send", params, Sent, within=float("inf"))

    async def watch_signals(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Interrupt the turn at the first Ctrl-C; at the second, or if none runs, leave the session alone."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                again = self._interrupted or number == signal.SIGTERM or not self.session_id
                if again or not await self._interrupt():
                    self._terminal.note("detached; the agent goes on", dim=True)
                    self.exit_status = INTERRUPTED
                    self.ended.set()

    async def _interrupt(self) -> bool:
        self._interrupted = True
        self._terminal.note("interrupting the turn; Ctrl-C again to detach", dim=True)
        params = {"sessionId": self.session_id, "reason": "interrupted by the user"}
        with trio.move_on_after(5):
            return (await self._connection.call("session.cancelTurn", params, Cancelled)).cancelled
        return True

    @asynccontextmanager
    async def open(self, *, signals: bool = True) -> AsyncGenerator[trio.Nursery]:
        """Show events and ask for decisions, and with `signals` mind Ctrl-C, until the block is left.

        Yields the nursery in which that happens.
        """
        async with trio.open_nursery() as nursery:
            if signals:
                await nursery.start(self.watch_signals)
            nursery.start_soon(self.follow)
            nursery.start_soon(self.answer)
            yield nursery
            nursery.cancel_scope.cancel()
        self._terminal.close_line()
