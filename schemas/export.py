"""The JSON Schema of the daemon door, made from the structs that decode it; pure.

What a schema says is what every daemon says: a blank text where an id must be, for one, is refused by the daemon alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from roost.schemas import (
    admin as a,
    command_exec as c,
    daemon as d,
    notifications as n,
    realtime as r,
    results as res,
)
from roost.schemas.errors import RpcCode
from roost.schemas.json_schema import DRAFT, Definitions, Schema, Shape, link

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REQUESTS: Final[Mapping[str, type[d.Params]]] = {
    "initialize": d.Initialize,
    "request.cancel": d.RequestCancel,
    "agent.create": d.AgentCreate,
    "agent.list": d.AgentList,
    "agent.attach": d.AgentAttach,
    "agent.stop": d.AgentStop,
    "agent.logs": d.AgentLogs,
    "run.cancel": d.RunCancel,
    "session.create": d.SessionCreate,
    "session.list": d.SessionList,
    "session.attach": d.SessionAttach,
    "session.detach": d.SessionDetach,
    "session.terminate": d.SessionTerminate,
    "session.clear": d.SessionClear,
    "session.snapshot": d.SessionSnapshot,
    "session.transcript": d.SessionTranscribe,
    "session.cancelTurn": d.SessionCancelTurn,
    "session.mcp.addServer": d.SessionMcpAddServer,
    "message.send": d.MessageSend,
    "message.stream": d.MessageStream,
    "thread/realtime/start": r.RealtimeStart,
    "thread/realtime/appendAudio": r.RealtimeAppendAudio,
    "thread/realtime/appendText": r.RealtimeAppendText,
    "thread/realtime/stop": r.RealtimeStop,
    "thread/realtime/listVoices": d.Nothing,
    "tool.approve": d.ToolApprove,
    "tool.deny": d.ToolDeny,
    "tool.cancel": d.ToolCancel,
    "elicitation.respond": d.ElicitationRespond,
    "permission.list": d.PermissionList,
    "fs.fuzzy_search": d.FuzzySearch,
    "commandExec.start": c.CommandStart,
    "commandExec.write": c.CommandWrite,
    "commandExec.resize": c.CommandResize,
    "commandExec.terminate": c.CommandTerminate,
    "health.ping": d.Nothing,
    "health.ready": d.Nothing,
    "health.stats": d.Nothing,
    "daemon.reload": d.Nothing,
    "auth.login": d.Nothing,
    "auth.whoami": d.Nothing,
    "auth.logout": d.Nothing,
}
"""Every method of the protocol with its params; only those that take `Nothing` may come without `params`."""

RESULTS: Final[Mapping[str, Shape]] = {
    "initialize": res.Initialized,
    "request.cancel": res.CancelResult,
    "agent.create": res.AgentSummary,
    "agent.list": res.AgentListResult,
    "agent.attach": res.AgentAttached,
    "agent.stop": res.AgentStopped,
    "agent.logs": res.AgentLogsResult,
    "run.cancel": res.RunCancelled,
    "session.create": res.SessionSummary,
    "session.list": res.SessionListResult,
    "session.attach": res.Attached,
    "session.detach": res.Detached,
    "session.terminate": res.Terminated,
    "session.cancelTurn": res.TurnCancelResult,
    "message.send": res.MessageDone,
    "message.stream": res.MessageDone,
    "tool.approve": res.Decided,
    "tool.deny": res.Decided,
    "elicitation.respond": res.Answered,
    "permission.list": res.PermissionListResult,
    "health.stats": res.Stats,
    "daemon.reload": a.ReloadResult,
    "auth.login": a.LoginResult,
    "auth.whoami": a.LoginResult,
    "auth.logout": a.LoginResult,
    "session.clear": res.HistoryCleared,
    "session.snapshot": res.SnapshotResult,
    "session.transcript": res.TranscriptResult,
    "tool.cancel": res.Decided,
    "fs.fuzzy_search": res.FoundFiles,
    "commandExec.start": c.CommandResult,
    "commandExec.write": c.CommandTold,
    "commandExec.resize": c.CommandTold,
    "commandExec.terminate": c.CommandTold,
}
"""The results that have a struct."""

NOTIFICATIONS: Final[Mapping[str, Shape]] = {
    "commandExec.outputDelta": c.OutputDelta,
    "event.message_chunk": n.MessageChunk,
    "event.tool_request": n.ToolRequest,
    "event.permission_request": n.PermissionRequest,
    "event.user_input_request": n.UserInputRequest,
    "event.mcp_elicitation_request": n.McpElicitationRequest,
    "event.agent_status": n.AgentStatusEvent,
    "event.session_event": n.SessionEvent,
    "thread/realtime/started": r.RealtimeStarted,
    "thread/realtime/itemAdded": r.RealtimeItemAdded,
    "thread/realtime/transcript/delta": r.RealtimeTranscriptDelta,
    "thread/realtime/transcript/done": r.RealtimeTranscriptDone,
    "thread/realtime/outputAudio/delta": r.RealtimeOutputAudio,
    "thread/realtime/sdp": r.RealtimeSdp,
    "thread/realtime/error": r.RealtimeError,
    "thread/realtime/closed": r.RealtimeClosed,
}
"""Every notification of the protocol with its params."""

_ID: Final[Schema] = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]}
_ERROR: Final[Schema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "code": {"type": "integer", "enum": list(get_args(RpcCode))},
        "message": {"type": "string", "minLength": 1},
        "data": True,
    },
    "required": ["code", "message"],
}


def daemon_schema() -> Schema:
    """Return the schema of every message of the daemon door, and of the results by method."""
    maker = Definitions()
    envelopes: Schema = {
        "Request": {"oneOf": [_request(name, maker.ref(s)) for name, s in REQUESTS.items()]},
        "Notification": {
            "oneOf": [
                _envelope({"method": {"const": name}, "params": maker.ref(shape)})
                for name, shape in NOTIFICATIONS.items()
            ]
        },
        "SuccessResponse": _envelope({"id": link("RequestId"), "result": {"type": "object"}}),
        "ErrorResponse": _envelope(
            {
                "id": {"oneOf": [link("RequestId"), {"type": "null"}]},
                "error": link("ErrorObject"),
            }
        ),
    }
    results = {method: maker.ref(shape) for method, shape in RESULTS.items()}
    return {
        "$schema": DRAFT,
        "$id": "urn:roost:daemon-protocol",
        "title": "Roost daemon protocol",
        "x-roost-version": d.PROTOCOL_VERSION,
        "x-roost-methods": list(REQUESTS),
        "x-roost-notifications": list(NOTIFICATIONS),
        "x-roost-results": results,
        "oneOf": [link(name) for name in envelopes],
        "definitions": {"RequestId": _ID, "ErrorObject": _ERROR, **envelopes, **maker.made},
    }


def _envelope(members: Mapping[str, object], optional: Iterable[str] = ()) -> Schema:
    properties = {"jsonrpc": {"const": "2.0"}, **members}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _request(method: str, params: Schema) -> Schema:
    members = {"id": link("RequestId"), "method": {"const": method}, "params": params}
    return _envelope(members, ("params",) if REQUESTS[method] is d.Nothing else ())
