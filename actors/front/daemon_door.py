"""The daemon door: every method of protocol 1.0, each with its params, its lane, what orders it, and its handler.

A method without a handler is known and not wired: it is advertised as false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.front import (
    admin,
    approvals,
    archive,
    commands,
    conversation,
    creation,
    ending,
    health,
    logs,
    messages,
    search,
    sessions,
    stats,
)
from roost.actors.front.door import Door, Entry
from roost.schemas import command_exec as c, daemon as d
from roost.schemas.archive import EventsImport

if TYPE_CHECKING:
    from roost.actors.front.router import Caller

NOT_YET = (
    "session.mcp.addServer",
    "thread/realtime/start",
    "thread/realtime/appendAudio",
    "thread/realtime/appendText",
    "thread/realtime/stop",
    "thread/realtime/listVoices",
)

DOOR = Door()


def _initialize(caller: Caller, params: d.Initialize) -> bytes:
    return health.initialize(caller, params, DOOR.methods)


def _register() -> None:
    add = DOOR.add
    add(Entry("initialize", d.Initialize, instant=_initialize))
    add(Entry("request.cancel", d.RequestCancel, instant=health.cancel_request, unmetered=True))
    add(Entry("health.ping", d.Nothing, instant=health.ping))
    add(Entry("health.ready", d.Nothing, instant=health.ready))
    add(Entry("health.stats", d.Nothing, handler=stats.stats, lane="priority"))
    add(Entry("agent.create", d.AgentCreate, handler=creation.create_agent))
    add(Entry("agent.list", d.AgentList, handler=sessions.list_agents))
    add(Entry("agent.attach", d.AgentAttach, handler=sessions.attach_agent, order="agent_id"))
    add(Entry("agent.stop", d.AgentStop, handler=ending.stop_agent, order="agent_id"))
    add(Entry("agent.logs", d.AgentLogs, handler=logs.agent_logs))
    add(Entry("run.cancel", d.RunCancel, handler=ending.cancel_run, lane="control"))
    add(Entry("session.create", d.SessionCreate, handler=creation.create_session))
    add(Entry("session.list", d.SessionList, handler=sessions.list_sessions))
    add(Entry("fs.fuzzy_search", d.FuzzySearch, handler=search.search_files))
    add(Entry("daemon.reload", d.Nothing, handler=admin.reload_daemon))
    add(Entry("auth.login", d.Nothing, handler=admin.login))
    add(Entry("auth.whoami", d.Nothing, handler=admin.whoami))
    add(Entry("auth.logout", d.Nothing, handler=admin.logout))
    _register_of_sessions()
    _register_of_commands()
    add(
        Entry(
            archive.METHOD,
            EventsImport,
            handler=archive.import_events,
            order="import_id",
            advertised=False,
        )
    )
    for name in NOT_YET:
        add(Entry(name, d.Nothing))


def _register_of_sessions() -> None:
    add, order = DOOR.add, "session_id"
    add(Entry("session.attach", d.SessionAttach, handler=sessions.attach_session, order=order))
    add(Entry("session.detach", d.SessionDetach, handler=sessions.detach_session, order=order))
    add(
        Entry(
            "session.terminate", d.SessionTerminate, handler=ending.terminate_session, order=order
        )
    )
    add(Entry("session.clear", d.SessionClear, handler=conversation.clear_session, order=order))
    add(Entry("session.snapshot", d.SessionSnapshot, handler=conversation.snapshot_session))
    add(Entry("session.transcript", d.SessionTranscribe, handler=conversation.transcribe_session))
    add(Entry("tool.cancel", d.ToolCancel, handler=conversation.cancel_tool, lane="control"))
    add(
        Entry(
            "session.cancelTurn",
            d.SessionCancelTurn,
            handler=sessions.cancel_turn,
            lane="control",
        )
    )
    add(
        Entry(
            "message.send",
            d.MessageSend,
            handler=messages.send_message,
            lane="long",
            order=order,
        )
    )
    add(
        Entry(
            "message.stream",
            d.MessageStream,
            handler=messages.send_message,
            lane="long",
            order=order,
        )
    )
    add(Entry("tool.approve", d.ToolApprove, handler=approvals.approve_tool, lane="decision"))
    add(Entry("tool.deny", d.ToolDeny, handler=approvals.deny_tool, lane="decision"))
    add(
        Entry(
            "elicitation.respond",
            d.ElicitationRespond,
            handler=approvals.respond_elicitation,
            lane="decision",
        )
    )
    add(Entry("permission.list", d.PermissionList, handler=approvals.list_permissions))


def _register_of_commands() -> None:
    add, order = DOOR.add, "process_id"
    add(
        Entry(
            "commandExec.start",
            c.CommandStart,
            handler=commands.start_command,
            lane="long",
            order=order,
        )
    )
    add(Entry("commandExec.write", c.CommandWrite, handler=commands.write_command, order=order))
    add(Entry("commandExec.resize", c.CommandResize, instant=commands.resize_command))
    add(
        Entry(
            "commandExec.terminate",
            c.CommandTerminate,
            instant=commands.terminate_command,
            unmetered=True,
        )
    )


_register()
