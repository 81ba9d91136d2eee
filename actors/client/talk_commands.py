"""The commands that talk to an agent: run, attach, send, clear."""

from __future__ import annotations

import os
import secrets
import sys
from typing import TYPE_CHECKING

import click

from roost.actors.client.context import Context, pass_context, print_json
from roost.actors.client.errors import ClientError, RpcError
from roost.actors.client.interactive import Conversation, new_message_id
from roost.actors.client.lookup import find_session
from roost.actors.client.options import named, not_empty
from roost.actors.client.prompts import open_stdin
from roost.actors.client.render import Terminal
from roost.actors.client.replies import Created, HistoryCleared, Sent, Session
from roost.actors.client.standard_files import standard_input

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.actors.client.connection import Connection

SANDBOXES = ("readOnly", "workspaceWrite", "dangerFullAccess")
PASSED_ON = ("PATH", "LANG", "VIRTUAL_ENV", "SSH_AUTH_SOCK")

APPROVE_ALL = click.option("--yes", is_flag=True, help="Approve whatever the agent asks for.")


@click.command()
@click.argument("objective", callback=not_empty)
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False),
    help="Its folder; this one if not given.",
)
@click.option("--provider", help="What thinks: script, or a provider of the configuration.")
@click.option("--model", help="The provider's model.")
@click.option("--sandbox", type=click.Choice(SANDBOXES), help="What its tools may touch.")
@click.option("--network", is_flag=True, help="Give its commands a network in their sandbox.")
@click.option("--unattended-allow", metavar="TOOLS", help="Run these (a,b) without asking.")
@click.option("--unattended-deny", metavar="TOOLS", help="Never run these (a,b).")
@click.option("--detach", is_flag=True, help="Print the agent's id and leave it alone.")
@APPROVE_ALL
@pass_context
def run(
    context: Context,
    objective: str,
    cwd: str | None,
    provider: str | None,
    model: str | None,
    sandbox: str | None,
    network: bool,
    unattended_allow: str | None,
    unattended_deny: str | None,
    detach: bool,
    yes: bool,
) -> None:
    """Create an agent, stream what it does, ask for approvals here.

    Ctrl-C interrupts the turn, twice leaves the agent alone. The exit status is the turn's: 0, 1 or 130.
    """
    params: dict[str, object] = {
        "objective": objective,
        "cwd": os.path.abspath(cwd or os.getcwd()),
        "envOverrides": {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)},
    }
    params |= {k: v for k, v in {"provider": provider, "model": model}.items() if v is not None}
    if network:
        policy = {"type": sandbox or "workspaceWrite", "networkAccess": True}
        params["metadata"] = {"sandbox": policy}
    elif sandbox is not None:
        params["metadata"] = {"sandbox": sandbox}
    for name, tools in (
        ("unattendedAllow", unattended_allow),
        ("unattendedDeny", unattended_deny),
    ):
        if tools is not None:
            params[name] = [tool.strip() for tool in tools.split(",") if tool.strip()]
    if detach:
        created = context.with_daemon(lambda c: create_agent(c, params))
        click.echo(created.agent_id)
        return
    sys.exit(context.with_daemon(lambda c: _run(c, params, yes), notifications=True))


async def create_agent(connection: Connection, params: Mapping[str, object]) -> Created:
    """Create an agent.

    Raises:
        ClientError: it was refused.
    """
    try:
        return await connection.call("agent.create", params, Created)
    except RpcError as error:
        if error.code != "SANDBOX_UNAVAILABLE":
            raise
        hint = (
            "`--sandbox dangerFullAccess` lets its tools do whatever you may, after your approval"
        )
        raise ClientError(f"{error}\n{hint}") from None


async def _run(connection: Connection, params: Mapping[str, object], approve_all: bool) -> int:
    terminal = Terminal()
    talk = Conversation(connection, terminal, lines=open_stdin(), approve_all=approve_all)
    created = await create_agent(connection, params)
    terminal.note(f"agent {created.agent_id}", dim=True)
    async with talk.open():
        await talk.attach(created.session_id, client_name())
        await talk.ended.wait()
    return talk.exit_status


def client_name() -> str:
    """Return a name for this terminal that no other client has."""
    return f"roost-{os.getpid()}-{secrets.token_hex(4)}"


@click.command()
@click.argument("agent", required=False, callback=named)
@click.option("--after", type=click.IntRange(min=0), help="Begin behind this event of the log.")
@APPROVE_ALL
@pass_context
def attach(context: Context, agent: str, after: int | None, yes: bool) -> None:
    """Watch an agent (the newest one if none is named) and talk to it.

    What is typed is sent as messages. Ctrl-C interrupts a turn, or leaves; so does the end of the input.
    """
    session = context.with_daemon(lambda connection: find_session(connection, agent))
    cursors = {} if after is None else {"roost.cursors": {session.session_id: after}}
    sys.exit(
        context.with_daemon(
            lambda connection: _attach(connection, session, yes),
            notifications=True,
            capabilities=cursors,
        )
    )


async def _attach(connection: Connection, session: Session, approve_all: bool) -> int:
    terminal = Terminal()
    lines = open_stdin()
    talk = Conversation(connection, terminal, lines=lines, approve_all=approve_all, stay=True)
    terminal.note(f"agent {session.agent_id}; Ctrl-C or Ctrl-D leaves", dim=True)
    async with talk.open() as nursery:
        await talk.attach(session.session_id, client_name())
        if lines is not None and sys.stdin.isatty():
            nursery.start_soon(talk.chat)
        await talk.ended.wait()
    return talk.exit_status


@click.command()
@click.argument("agent", callback=not_empty)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def clear(context: Context, agent: str, as_json: bool) -> None:
    """Let an agent forget its conversation and what was approved for it; the agent and its log stay.

    It is refused while a turn runs.
    """

    async def main(connection: Connection) -> HistoryCleared:
        session = await find_session(connection, agent)
        params = {"sessionId": session.session_id}
        return await connection.call("session.clear", params, HistoryCleared)

    cleared = context.with_daemon(main)
    if as_json:
        print_json({"sessionId": cleared.session_id, "clearedAt": cleared.cleared_at})
    else:
        click.echo(f"{cleared.session_id} begins anew")


@click.command()
@click.argument("agent", callback=not_empty)
@click.argument("text", callback=not_empty)
@click.option(
    "--json", "as_json", is_flag=True, help="Print only how the turn ended, for programs."
)
@APPROVE_ALL
@pass_context
def send(context: Context, agent: str, text: str, as_json: bool, yes: bool) -> None:
    """Send a message to an agent and stream its answer.

    A text of - is read from standard input. The exit status is the turn's: 0, 1 or 130.
    """
    message = standard_input().read() if text == "-" else text

    async def main(connection: Connection) -> int:
        session = await find_session(connection, agent)
        return await _send(connection, session, message, as_json, yes)

    sys.exit(context.with_daemon(main, notifications=True))


async def _send(
    connection: Connection, session: Session, text: str, as_json: bool, approve_all: bool
) -> int:
    terminal = Terminal(out=_nowhere, err=_nowhere) if as_json else Terminal()
    message_id = new_message_id()
    talk = Conversation(
        connection,
        terminal,
        lines=None if as_json else open_stdin(),
        approve_all=approve_all,
        only_from=message_id,
        stay=True,
    )
    sent: Sent | None = None
    async with talk.open() as nursery:

        async def deliver() -> None:
            nonlocal sent
            sent = await talk.send(text, message_id)
            # The answer comes behind the last event of the turn; that one is to be shown first.
            await connection.drained()
            talk.ended.set()

        await talk.attach(session.session_id, client_name())
        nursery.start_soon(deliver)
        await talk.ended.wait()
    if as_json and sent is not None:
        print_json({"messageId": sent.message_id, "turnId": sent.turn_id, "outcome": sent.outcome})
    return (
        sent.terminal.code if sent is not None and sent.terminal is not None else talk.exit_status
    )


def _nowhere(text: str) -> None:
    """Write nothing."""
