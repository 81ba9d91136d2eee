"""One agent, end to end, in a temporary home: `python -P -m roost.actors.client.demo`, or `make demo`.

Starts a daemon, creates an agent on the embedded runner, streams a turn in which the agent asks for a shell command and
is allowed it, shows the supervision tree, and stops everything.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from roost.actors.client.connection import only_error, open_connection
from roost.actors.client.errors import ClientError
from roost.actors.client.interactive import Conversation, new_message_id
from roost.actors.client.launch import start_daemon, stop_daemon
from roost.actors.client.render import Terminal, format_duration, tree_lines
from roost.actors.client.replies import Created, Stats
from roost.actors.client.talk_commands import client_name
from roost.config.errors import ConfigError
from roost.config.paths import Home
from roost.supervisor import identity

if TYPE_CHECKING:
    from roost.actors.client.connection import Connection

COMMAND = "echo hello from a supervised agent && uname -s"
LIMIT = 60.0
STEP = {"bold": True, "fg": "green"}


async def show_daemon(home: Home, terminal: Terminal) -> int:
    """Run the whole show and return its exit status; the daemon is stopped however it ends."""
    started = trio.current_time()
    terminal.note(f"== starting a daemon in {home.path}", **STEP)
    state = await start_daemon(home, {})
    pid = state.root.pid if state.root is not None else 0
    terminal.note(f"ready in {trio.current_time() - started:.2f} s (root is process {pid})")
    try:
        async with open_connection(home, notifications=True) as connection:
            status = await _talk(connection, terminal, home)
        await _show_tree(home, terminal)
    finally:
        with trio.CancelScope(shield=True):
            terminal.note("== stopping", **STEP)
            await stop_daemon(home)
    left = identity.find_by_environment("ROOST_INSTANCE", home.instance)
    took = format_duration(trio.current_time() - started)
    terminal.note(f"done in {took}; processes of the daemon that are left: {len(left)}")
    return status if not left else 1


async def _talk(connection: Connection, terminal: Terminal, home: Home) -> int:
    terminal.note("== an agent on the embedded runner, which is no model", **STEP)
    params: dict[str, object] = {
        "objective": "show what a supervised agent does",
        "initialContent": [],
        "cwd": str(home.path.parent),
        "provider": "script",
        "metadata": {"sandbox": "dangerFullAccess"},
    }
    created = await connection.call("agent.create", params, Created)
    terminal.note(f"agent {created.agent_id}")
    talk = Conversation(connection, terminal, lines=None, approve_all=True)
    async with talk.open(signals=False):
        await talk.attach(created.session_id, client_name())
        terminal.note(f"== a message to it: $ {COMMAND}", **STEP)
        sent = await talk.send(f"$ {COMMAND}", new_message_id())
        await connection.drained()
    return sent.terminal.code if sent.terminal is not None else 1


async def _show_tree(home: Home, terminal: Terminal) -> None:
    terminal.note("== the supervision tree", **STEP)
    async with open_connection(home) as connection:
        stats = await connection.call("health.stats", {}, Stats)
    for line in tree_lines(stats.tree):
        terminal.say(f"{line}\n")


async def _limited(home: Home) -> int:
    with trio.fail_after(LIMIT):
        return await show_daemon(home, Terminal())


def main() -> int:
    """Run the demo in a temporary home and return its exit status."""
    with tempfile.TemporaryDirectory(prefix="roost-demo-") as folder:
        try:
            return trio.run(_limited, Home(Path(folder) / "home", explicit=True))
        except* (ClientError, ConfigError, trio.TooSlowError) as group:
            sys.stderr.write(f"the demo failed: {only_error(group)}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
