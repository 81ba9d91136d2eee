"""The thread door: params of its requests as clients see them (T 3), and what those params are made of.

Members that the schema does not have are ignored. Where a member may be null, null and absent are the same. What is
answered is in `roost.schemas.thread_results`, what is told in `roost.schemas.thread_notifications`; the handlers of
`turn/*`, `model/list` and `schema/export` are in `roost.actors.front.thread_turns`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from roost.schemas.daemon import Params

THREAD_PROTOCOL_VERSION = "2026-06-02"

Size = Annotated[int, Meta(ge=0)]
"""A count that may be null: no bound."""
ApprovalDecision = Literal["allow", "deny"]
# Not equal to any other by identity: an empty text is one that was given.
_ABSENT = "(absent)"


class ThreadParams(Params, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Base of the params of every request; what is not known is ignored."""


class AppClientInfo(ThreadParams, frozen=True, kw_only=True):
    """Who the client is."""

    name: str
    title: str | None = None
    version: str | None = None


class AppClientCapabilities(ThreadParams, frozen=True, kw_only=True):
    """What the client wants.

    `line_bytes`, which no schema has, is how long a line that the client gets is at most; 0: as long as it is.
    """

    experimental_api: bool = False
    opt_out_notification_methods: list[str] = []
    line_bytes: Size = msgspec.field(default=0, name="roost.lineBytes")
    unpublished: ClassVar[tuple[str, ...]] = ("roost.lineBytes",)


class InitializeParams(ThreadParams, frozen=True, kw_only=True):
    """`initialize`; the schema demands capabilities, and the door takes it without them."""

    client_info: AppClientInfo
    capabilities: AppClientCapabilities | UnsetType = UNSET


class NoParams(ThreadParams, frozen=True, kw_only=True):
    """The params of a request that has none."""


class ThreadStartParams(ThreadParams, frozen=True, kw_only=True):
    """`thread/start`."""

    cwd: str | None = None
    title: str | None = None
    model: str | None = None
    ephemeral: bool = False


class ThreadResumeParams(ThreadParams, frozen=True, kw_only=True):
    """`thread/resume`."""

    thread_id: str
    subscribe: bool = True


class ThreadReadParams(ThreadParams, frozen=True, kw_only=True):
    """`thread/read`."""

    thread_id: str
    after_item_id: str | None = None


class ThreadListParams(ThreadParams, frozen=True, kw_only=True):
    """`thread/list`."""

    archived: bool | None = None
    include_archived: bool = False
    offset: Size | None = None
    limit: Size | None = None


class ThreadArchiveParams(ThreadParams, frozen=True, kw_only=True):
    """`thread/archive`."""

    thread_id: str


class ThreadUnsubscribeParams(ThreadParams, frozen=True, kw_only=True):
    """`thread/unsubscribe`, for clients with `experimentalApi` alone."""

    thread_id: str


class UserInput(ThreadParams, frozen=True, kw_only=True):
    """A piece of what a person says."""

    text: str


class TurnStartParams(ThreadParams, frozen=True, kw_only=True):
    """`turn/start`; the same `client_message_id` again is the same request (T 6.2)."""

    thread_id: str
    input: list[UserInput]
    model: str | None = None
    client_message_id: str | None = None
    unpublished: ClassVar[tuple[str, ...]] = ("clientMessageId",)


class TurnInterruptParams(ThreadParams, frozen=True, kw_only=True):
    """`turn/interrupt`."""

    thread_id: str
    turn_id: str


class TurnSteerParams(ThreadParams, frozen=True, kw_only=True):
    """`turn/steer`; Codex-style clients call the turn `expectedTurnId`. `turn_id` is there, whatever it was called."""

    thread_id: str
    turn_id: str = _ABSENT
    input: list[UserInput]
    client_message_id: str | None = None
    expected_turn_id: str | None = None
    unpublished: ClassVar[tuple[str, ...]] = ("clientMessageId", "expectedTurnId")

    def __post_init__(self) -> None:
        """Raise ValueError if it does not say which turn, or says two."""
        expected = self.expected_turn_id
        if self.turn_id is _ABSENT:
            if expected is None:
                raise ValueError("requires turnId")
            msgspec.structs.force_setattr(self, "turn_id", expected)
        elif expected not in (None, self.turn_id):
            both = f"turnId '{self.turn_id[:40]}' and expectedTurnId '{str(expected)[:40]}'"
            raise ValueError(f"{both} are not the same turn")


class ApprovalResolveParams(ThreadParams, frozen=True, kw_only=True):
    """`approval/resolve`."""

    thread_id: str
    turn_id: str
    request_id: str
    decision: ApprovalDecision


class ModelListParams(ThreadParams, frozen=True, kw_only=True):
    """`model/list`."""

    provider: str | None = None


REQUESTS: dict[str, type[ThreadParams]] = {
    "initialize": InitializeParams,
    "thread/start": ThreadStartParams,
    "thread/resume": ThreadResumeParams,
    "thread/read": ThreadReadParams,
    "thread/list": ThreadListParams,
    "thread/archive": ThreadArchiveParams,
    "turn/start": TurnStartParams,
    "turn/interrupt": TurnInterruptParams,
    "turn/steer": TurnSteerParams,
    "approval/resolve": ApprovalResolveParams,
    "model/list": ModelListParams,
    "schema/export": NoParams,
    "initialized": NoParams,
}
"""The 13 requests of the protocol with their params."""

EXPERIMENTAL: dict[str, type[ThreadParams]] = {"thread/unsubscribe": ThreadUnsubscribeParams}
"""Further requests, for clients that ask for them by `experimentalApi`."""
