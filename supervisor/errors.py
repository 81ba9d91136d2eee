"""The errors of the supervisor package, sorted by what the caller can do.

SupervisorError
├── SpecError              a bug in the caller: a wrong child spec
├── StartError             the child never got ready (carries its last words)
│   ├── StartRefused       it said that it cannot start: a restart would not help
│   └── ForkLost           the zygote ended while it forked: ask again
├── ChildCrashed           a child ended in a crash (carries its last words)
├── StopTimeout            it did not end in time; it has been killed
├── RestartLimitReached    too many restarts: the parent decides
├── TooManyChildren        a dynamic supervisor has as many as it may: try later
├── MailboxFull            try later
├── LinkFull               the other side does not read: try later
├── CallTimeout            no answer by the deadline; the answer, if it comes, is dropped
└── ActorGone              no such name, or it ended while a call was waiting
"""

from __future__ import annotations


class SupervisorError(Exception):
    """Base of the family."""


class SpecError(SupervisorError):
    """A child spec is wrong."""


class StartError(SupervisorError):
    """A child ended, or its time ran out, before it was ready."""

    def __init__(self, message: str, last_words: str = "") -> None:
        super().__init__(message)
        self.last_words = last_words


class StartRefused(StartError):
    """A child said that it cannot start, and that a restart would not help."""


class ForkLost(StartError):
    """The zygote ended, or stood still, before it had answered a request; no child of that request is kept."""


class ChildCrashed(SupervisorError):
    """A child that had been ready ended in a crash."""

    def __init__(self, message: str, last_words: str = "") -> None:
        super().__init__(message)
        self.last_words = last_words


class StopTimeout(SupervisorError):
    """A child did not end in time and has been killed."""


class RestartLimitReached(SupervisorError):
    """A supervisor's children crashed more often than its intensity allows."""


class TooManyChildren(SupervisorError):
    """A dynamic supervisor has as many children as it may have."""


class MailboxFull(SupervisorError):
    """A mailbox holds as many messages as it may."""


class LinkFull(SupervisorError):
    """A link holds as many unsent bytes as it may."""


class CallTimeout(SupervisorError):
    """A call was not answered by its deadline."""


class ActorGone(SupervisorError):
    """The actor asked does not exist, or ended before it answered."""
