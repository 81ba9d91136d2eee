"""The commands that decide: approve and deny; without an id they list what waits."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click
import msgspec
import trio

from roost.actors.client.autostart import ensure_daemon
from roost.actors.client.connection import open_connection
from roost.actors.client.context import Context, pass_context, print_json
from roost.actors.client.errors import ClientError, RpcError
from roost.actors.client.events import ApprovalAsked, QuestionAsked, describe_call, read_event
from roost.actors.client.lookup import list_sessions, match_id
from roost.actors.client.options import named
from roost.actors.client.render import print_table
from roost.actors.client.replies import Attached, Decided
from roost.actors.client.talk_commands import client_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.client.connection import Connection
    from roost.actors.client.replies import Session
    from roost.config.paths import Home

ATTACHED_AT_ONCE = 32

Asked = ApprovalAsked | QuestionAsked
JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")


@click.command()
@click.argument("request", required=False, callback=named)
@click.option(
    "--scope",
    type=click.Choice(["once", "session", "agent"]),
    default="once",
    help="Whether the same may be done again without asking.",
)
@JSON
@pass_context
def approve(context: Context, request: str, scope: str, as_json: bool) -> None:
    """Allow a tool call; without an id, list what waits."""
    if not request:
        _list(context, as_json)
        return
    _decide(context, "tool.approve", request, {"scope": scope}, as_json)


@click.command()
@click.argument("request", required=False, callback=named)
@click.option("--reason", help="Why not; the agent is told.")
@JSON
@pass_context
def deny(context: Context, request: str, reason: str | None, as_json: bool) -> None:
    """Refuse a tool call; without an id, list what waits."""
    if not request:
        _list(context, as_json)
        return
    further = {"reason": reason} if reason else {}
    _decide(context, "tool.deny", request, further, as_json)


def _decide(
    context: Context, method: str, request: str, further: dict[str, str], as_json: bool
) -> None:
    async def main() -> tuple[str, str]:
        asked = _pick(await list_pending(context.home), request)
        if isinstance(asked, QuestionAsked):
            raise ClientError("that is a question; answer it with `roost attach`")
        params: dict[str, object] = {
            "sessionId": asked.session_id,
            "requestId": asked.request_id,
            **further,
        }
        async with open_connection(context.home) as connection:
            answer = await connection.call(method, params, Decided)
        return asked.request_id, answer.decision

    request_id, decision = context.run(main)
    if as_json:
        print_json({"requestId": request_id, "decision": decision})
    else:
        click.echo(f"{request_id} {decision}")


def _pick(pending: Sequence[Asked], text: str) -> Asked:
    found = match_id(text, [asked.request_id for asked in pending], "request")
    for asked in pending:
        if asked.request_id == found:
            return asked
    raise ClientError(f"nothing waits under {text!r}; `roost approve` lists what does")


def _list(context: Context, as_json: bool) -> None:
    pending = context.run(lambda: list_pending(context.home))
    if as_json:
        print_json([_to_json(asked) for asked in pending])
    elif not pending:
        click.echo("nothing waits for a decision", err=True)
    else:
        rows = [(asked.request_id, *_describe(asked), asked.session_id) for asked in pending]
        print_table(("REQUEST", "WHAT", "WHY", "SESSION"), rows)


def _to_json(asked: Asked) -> object:
    """Return what waits with the names that the daemon's answers have, as all output for programs."""
    kind = "approval" if isinstance(asked, ApprovalAsked) else "question"
    members = {_camel(name): value for name, value in msgspec.structs.asdict(asked).items()}
    return msgspec.to_builtins({"kind": kind, **members})


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _describe(asked: Asked) -> tuple[str, str]:
    if isinstance(asked, ApprovalAsked):
        return describe_call(asked.tool, asked.input, 2_000), asked.reason or asked.policy
    return "; ".join(question.text for question in asked.questions), ""


async def list_pending(home: Home) -> list[Asked]:
    """Return every approval and question that waits, in all sessions.

    Raises:
        ClientError: as for any request.
    """
    await ensure_daemon(home)
    async with open_connection(home) as connection:
        waiting = [s for s in await list_sessions(connection) if s.status == "waiting"]
    found: list[Asked] = []
    for start in range(0, len(waiting), ATTACHED_AT_ONCE):
        found += await _pending_of(home, waiting[start : start + ATTACHED_AT_ONCE])
    return found


async def _pending_of(home: Home, sessions: Sequence[Session]) -> list[Asked]:
    """Attach to some sessions for a moment; an attach is answered after everything that waits has been told.

    Each is attached at the end of its log, so that no event is taken from who has not seen it yet.
    """
    found: dict[str, Asked] = {}
    ends = {s.session_id: s.last_sequence for s in sessions if s.last_sequence is not None}
    cursors = {"roost.cursors": ends}

    async def collect(connection: Connection) -> None:
        async for notification in connection.notifications:
            event = read_event(notification)
            if isinstance(event, ApprovalAsked | QuestionAsked):
                found[event.request_id] = event

    async with open_connection(home, notifications=True, capabilities=cursors) as connection:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, connection)
            for session in sessions:
                params = {"sessionId": session.session_id, "clientId": client_name()}
                # A session may have been closed meanwhile.
                with contextlib.suppress(RpcError):
                    await connection.call("session.attach", params, Attached)
            await connection.drained()
            nursery.cancel_scope.cancel()
    return list(found.values())
