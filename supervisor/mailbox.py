"""A bounded mailbox inside a process: casts, calls with deadlines, one reader.

"Full" is answered by `MailboxFull` to who does not wait and by waiting to who does. A closed mailbox answers
everybody, those who wait for an answer included, with `ActorGone`.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import trio

from roost.supervisor.errors import ActorGone, CallTimeout, MailboxFull

M = TypeVar("M")
A = TypeVar("A")


class Letter(Generic[M, A]):
    """A message as the actor gets it; `reply` answers a call and does nothing for a cast."""

    __slots__ = ("_answers", "_done", "message")

    def __init__(self, message: M, done: trio.Event | None) -> None:
        self.message = message
        self._done = done
        self._answers: list[A | ActorGone] = []

    def reply(self, answer: A) -> None:
        """Answer a call; the first answer counts."""
        self._settle(answer)

    def refuse(self, error: ActorGone) -> None:
        """Fail a call: the actor ended before it answered."""
        self._settle(error)

    def answer(self) -> A:
        """Return the answer, or raise the error, that settled the call."""
        answer = self._answers[0]
        if isinstance(answer, ActorGone):
            raise answer
        return answer

    def _settle(self, answer: A | ActorGone) -> None:
        if self._done is not None and not self._done.is_set():
            self._answers.append(answer)
            self._done.set()


class Mailbox(Generic[M, A]):
    """Messages of the type M, answers of the type A."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.closed = False
        self._limit = limit
        self._letters: deque[Letter[M, A]] = deque()
        self._unanswered: set[Letter[M, A]] = set()
        self._senders = trio.lowlevel.ParkingLot()
        self._readers = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._letters)

    def cast_nowait(self, message: M) -> None:
        """Put a message in without waiting.

        Raises:
            MailboxFull: there is no room; nothing was put in.
            ActorGone: the mailbox is closed.
        """
        self._put(Letter(message, None))

    async def cast(self, message: M, *, timeout: float) -> None:  # noqa: ASYNC109
        """Put a message in; wait for room if need be. Cancelled, nothing was put in.

        Raises:
            MailboxFull: there was no room for `timeout` seconds.
            ActorGone: the mailbox is closed, or was closed meanwhile.
        """
        await self._put_soon(Letter(message, None), trio.current_time() + timeout)

    async def call(self, message: M, *, timeout: float) -> A:  # noqa: ASYNC109
        """Put a message in and return the answer. Cancelled or timed out, the message may still be handled.

        Raises:
            MailboxFull: there was no room for `timeout` seconds.
            CallTimeout: no answer came within `timeout` seconds; one that comes later is dropped.
            ActorGone: the mailbox is closed, or was closed before the answer came.
        """
        deadline = trio.current_time() + timeout
        done = trio.Event()
        letter: Letter[M, A] = Letter(message, done)
        await self._put_soon(letter, deadline)
        self._unanswered.add(letter)
        try:
            with trio.move_on_at(deadline):
                await done.wait()
        finally:
            self._unanswered.discard(letter)
        if not done.is_set():
            raise CallTimeout(f"{self.name} did not answer within {timeout} s")
        return letter.answer()

    async def receive(self) -> Letter[M, A]:
        """Return the next letter. Cancelled, none is lost.

        Raises:
            ActorGone: the mailbox is closed.
        """
        while not self._letters:
            if self.closed:
                raise ActorGone(f"{self.name} is closed")
            await self._readers.park()
        letter = self._letters.popleft()
        self._senders.unpark()
        return letter

    def close(self) -> None:
        """Refuse everything from now on; what lies in the box is dropped, calls fail with `ActorGone`. Idempotent."""
        self.closed = True
        self._letters.clear()
        for letter in list(self._unanswered):
            letter.refuse(ActorGone(f"{self.name} is gone"))
        self._senders.unpark_all()
        self._readers.unpark_all()

    def _put(self, letter: Letter[M, A]) -> None:
        if self.closed:
            raise ActorGone(f"{self.name} is gone")
        if len(self._letters) >= self._limit:
            raise MailboxFull(f"{self.name} holds {self._limit} messages")
        self._letters.append(letter)
        self._readers.unpark()

    async def _put_soon(self, letter: Letter[M, A], deadline: float) -> None:
        with trio.move_on_at(deadline):
            while not self.closed and len(self._letters) >= self._limit:
                await self._senders.park()
        self._put(letter)
