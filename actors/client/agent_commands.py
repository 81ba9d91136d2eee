"""The commands that list, read and end agents: ps, logs, stop."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
import msgspec
import trio

from roost.actors.client.context import Context, pass_context, print_json
from roost.actors.client.errors import ClientError
from roost.actors.client.events import clean, read_event
from roost.actors.client.lookup import find_agent, find_session, list_agents, list_sessions
from roost.actors.client.options import named, not_empty
from roost.actors.client.render import Terminal, format_age, print_table, show
from roost.actors.client.replies import Agent, Attached, Logs, Session, Stats, Stopped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roost.actors.client.connection import Connection

FOLLOW_STEP = 0.25
READ_SIZE = 256 * 1024
MAX_BACK = 4 * 1024 * 1024
NARROW = 60


class SessionLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session as `ps` lists it."""

    session_id: str
    status: str
    created_at: str


class AgentLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent as `ps` lists it; `waiting` says that it waits for a decision, `error` why its process died."""

    agent_id: str
    status: str
    created_at: str
    objective: str
    cwd: str
    sessions: tuple[SessionLine, ...]
    waiting: bool
    error: str


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Closed sessions as well.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def ps(context: Context, show_all: bool, as_json: bool) -> None:
    """List agents: what they do, who waits for a decision, why one died."""
    lines = context.with_daemon(lambda connection: _collect(connection, show_all))
    if as_json:
        print_json(msgspec.to_builtins(lines))
    elif lines:
        head = ("AGENT", "STATUS", "AGE", "SESSIONS", "OBJECTIVE", "NOTE")
        print_table(head, [_row(line) for line in lines])
    else:
        click.echo('no agents; start one with: roost run "…"', err=True)


async def _collect(connection: Connection, show_all: bool) -> list[AgentLine]:
    agents = await list_agents(connection)
    sessions = await list_sessions(connection)
    stats = await connection.call("health.stats", {}, Stats)
    errors = {node.child_id.removeprefix("agent:"): node.last_error for node in stats.tree}
    own: dict[str, list[Session]] = {}
    for session in sessions:
        if show_all or session.status != "closed":
            own.setdefault(session.agent_id, []).append(session)
    return [
        _line(agent, own.get(agent.agent_id, []), errors.get(agent.agent_id, ""))
        for agent in agents
    ]


def _line(agent: Agent, sessions: Sequence[Session], error: str) -> AgentLine:
    told = agent.metadata.get("error") or error
    return AgentLine(
        agent_id=agent.agent_id,
        status=agent.status,
        created_at=agent.created_at,
        objective=agent.objective,
        cwd=agent.cwd,
        sessions=tuple(
            SessionLine(session_id=s.session_id, status=s.status, created_at=s.created_at)
            for s in sessions
        ),
        waiting=any(s.status == "waiting" for s in sessions),
        error=told if isinstance(told, str) else "",
    )


def _row(line: AgentLine) -> tuple[str, ...]:
    objective = " ".join(line.objective.split())
    return (
        line.agent_id,
        line.status,
        format_age(line.created_at),
        str(len(line.sessions)),
        objective if len(objective) <= NARROW else f"{objective[: NARROW - 1]}…",
        "waits for a decision: roost approve" if line.waiting else line.error,
    )


@click.command()
@click.argument("agent", callback=not_empty)
@click.option("--reason", default="stopped by the user", help="What the log says.")
@pass_context
def stop(context: Context, agent: str, reason: str) -> None:
    """End an agent and its sessions for good."""

    async def main(connection: Connection) -> tuple[str, bool]:
        found = await find_agent(connection, agent)
        params = {"agentId": found.agent_id, "reason": reason}
        return found.agent_id, (await connection.call("agent.stop", params, Stopped)).stopped

    agent_id, stopped = context.with_daemon(main)
    click.echo(f"{agent_id} {'stopped' if stopped else 'had already ended'}")


@click.command()
@click.argument("agent", required=False, callback=named)
@click.option("-f", "--follow", is_flag=True, help="Go on as more comes.")
@click.option("--process", is_flag=True, help="What the agent's process said on standard error.")
@click.option("--daemon", is_flag=True, help="The daemon's own log.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=100, help="Lines of a log file.")
@click.option("--json", "as_json", is_flag=True, help="The transcript, for programs.")
@pass_context
def logs(
    context: Context,
    agent: str,
    follow: bool,
    process: bool,
    daemon: bool,
    lines: int,
    as_json: bool,
) -> None:
    """Show the transcript of an agent (the newest one if none is named), or a log file."""
    if as_json and (daemon or process or follow):
        raise click.UsageError("--json is for the transcript, not for a log file or --follow")
    if daemon:
        context.run(lambda: _show_file(context.home.daemon_log, lines, follow))
    elif process:
        found = context.with_daemon(lambda connection: find_agent(connection, agent))
        path = context.home.agent_log(found.agent_id)
        context.run(lambda: _show_file(path, lines, follow))
    elif follow:
        session = context.with_daemon(lambda connection: find_session(connection, agent))
        capabilities: dict[str, object] = {"roost.cursors": {session.session_id: 0}}
        context.with_daemon(
            lambda connection: _follow_session(connection, session.session_id),
            notifications=True,
            capabilities=capabilities,
        )
    else:
        answer = context.with_daemon(lambda connection: _transcript(connection, agent))
        if as_json:
            print_json(msgspec.json.decode(answer))
        else:
            click.echo(clean(msgspec.json.decode(answer, type=Logs).transcript))


async def _transcript(connection: Connection, agent: str) -> bytes:
    agent_id = agent
    try:
        agent_id = (await find_agent(connection, agent)).agent_id
    except ClientError:
        # An agent that has ended is in no list, and still has its transcript.
        if not agent:
            raise
    return await connection.call_raw("agent.logs", {"agentId": agent_id})


async def _follow_session(connection: Connection, session_id: str) -> None:
    terminal = Terminal()
    params = {"sessionId": session_id, "clientId": f"roost-logs-{os.getpid()}"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.call, "session.attach", params, Attached)
        async for notification in connection.notifications:
            event = read_event(notification)
            if event is not None:
                show(terminal, event)


async def _show_file(path: Path, lines: int, follow: bool) -> None:
    try:
        file = path.open("rb")
    except OSError as error:
        raise ClientError(f"cannot read {path}: {error.strerror}") from None
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_BACK))
        tail = file.read(MAX_BACK).splitlines(keepends=True)
        for line in tail[-lines:] if lines else ():
            _write(line)
        while follow:
            data = file.read(READ_SIZE)
            if data:
                _write(data)
            elif _was_replaced(path, file.fileno()):
                break
            else:
                await trio.sleep(FOLLOW_STEP)
    if follow:
        await _show_file(path, sys.maxsize, follow=True)


def _write(data: bytes) -> None:
    sys.stdout.write(clean(data.decode("utf-8", "replace")))
    sys.stdout.flush()


def _was_replaced(path: Path, fd: int) -> bool:
    """Return whether the log was rotated: the name leads to another file."""
    try:
        return path.stat().st_ino != os.fstat(fd).st_ino
    except OSError:
        return False
