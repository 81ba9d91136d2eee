"""The daemon door: params of its methods as clients see them (P 6).

Params are strict. An empty text, list or object stands for an absent optional member where that makes no difference,
`UNSET` where it does. The params of realtime and of commands have modules of their own, and so do results and
notifications; `roost.schemas.export` knows which struct is whose.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

PROTOCOL_VERSION = "1.0.0"

Name = Annotated[str, Meta(min_length=1, pattern=r"\S")]
"""A text that must be there and not be blank."""
Given = Annotated[str, Meta(min_length=1)]
"""A text that may be absent, but not empty."""
Limit = Annotated[int, Meta(ge=1)]
JsonObject = dict[str, object]


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Base of the params of every method.

    `one_of` names members of which at least one must be there, `unpublished` members that are taken and not told of.
    """

    one_of: ClassVar[tuple[str, ...]] = ()
    unpublished: ClassVar[tuple[str, ...]] = ()


class Nothing(Params, frozen=True, kw_only=True):
    """The params of a method that has none."""


class ProtocolInfo(Params, frozen=True, kw_only=True):
    """A protocol version as an object."""

    version: Given


class Initialize(Params, frozen=True, kw_only=True):
    """`initialize`."""

    protocol_version: Given = ""
    protocol: ProtocolInfo | UnsetType = UNSET
    client_name: Given = ""
    auth_cookie: Given = ""
    capabilities: JsonObject = {}
    one_of: ClassVar[tuple[str, ...]] = ("protocol", "protocolVersion")

    def __post_init__(self) -> None:
        """Raise ValueError if there is no version."""
        if not self.protocol_version and not self.protocol:
            raise ValueError("requires protocol.version or protocolVersion")


class RequestCancel(Params, frozen=True, kw_only=True):
    """`request.cancel`."""

    request_id: Name | int
    reason: str | UnsetType = UNSET


class AgentCreate(Params, frozen=True, kw_only=True):
    """`agent.create`; the last two members are not in the published schema, clients send them."""

    objective: str | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    model: str = ""
    provider: str = ""
    profile: str = ""
    unattended_allow: list[Given] = []
    unattended_deny: list[Given] = []
    metadata: JsonObject = {}
    env_overrides: dict[str, str] = {}
    initial_content: list[object] | UnsetType = UNSET
    permission_mode: str = ""
    unpublished: ClassVar[tuple[str, ...]] = ("initialContent", "permissionMode")


class AgentList(Params, frozen=True, kw_only=True):
    """`agent.list`."""

    cursor: str = ""
    limit: Limit = 100


class AgentAttach(Params, frozen=True, kw_only=True):
    """`agent.attach`."""

    agent_id: Name
    client_id: Given = ""


class AgentStop(Params, frozen=True, kw_only=True):
    """`agent.stop`."""

    agent_id: Name
    reason: str = ""


class AgentLogs(Params, frozen=True, kw_only=True):
    """`agent.logs`."""

    agent_id: Name


class RunCancel(Params, frozen=True, kw_only=True):
    """`run.cancel`."""

    run_id: Name
    reason: str = ""


class SessionCreate(Params, frozen=True, kw_only=True):
    """`session.create`."""

    agent_id: Given = ""
    cwd: str | UnsetType = UNSET
    initial_prompt: str = ""
    metadata: JsonObject = {}


class SessionList(Params, frozen=True, kw_only=True):
    """`session.list`."""

    agent_id: Given = ""
    cursor: str = ""
    limit: Limit = 50


class SessionAttach(Params, frozen=True, kw_only=True):
    """`session.attach`."""

    session_id: Name
    client_id: Given = ""


class SessionDetach(Params, frozen=True, kw_only=True):
    """`session.detach`."""

    session_id: Name
    attachment_id: Given = ""
    client_id: Given = ""
    one_of: ClassVar[tuple[str, ...]] = ("attachmentId", "clientId")

    def __post_init__(self) -> None:
        """Raise ValueError if it does not say what to detach."""
        if not self.attachment_id and not self.client_id:
            raise ValueError("requires attachmentId or clientId")


class SessionTerminate(Params, frozen=True, kw_only=True):
    """`session.terminate`."""

    session_id: Name
    reason: str = ""


class SessionClear(Params, frozen=True, kw_only=True):
    """`session.clear`."""

    session_id: Name


class SessionSnapshot(Params, frozen=True, kw_only=True):
    """`session.snapshot`."""

    session_id: Name


class SessionTranscribe(Params, frozen=True, kw_only=True):
    """`session.transcript`."""

    session_id: Name


class SessionCancelTurn(Params, frozen=True, kw_only=True):
    """`session.cancelTurn`."""

    session_id: Name
    reason: str = ""


class McpServer(Params, frozen=True, kw_only=True):
    """How a server of tools is reached."""

    name: Given
    transport: Literal["stdio", "sse", "http", "websocket", "ws"] | UnsetType = UNSET
    command: str = ""
    args: list[str] = []
    endpoint: str = ""
    enabled: bool = True
    required: bool = False


class SessionMcpAddServer(Params, frozen=True, kw_only=True):
    """`session.mcp.addServer`."""

    session_id: Name
    config: McpServer


class TextBlock(Params, frozen=True, kw_only=True, rename=None):
    """A piece of a message."""

    type: Literal["text"]
    text: str


Content = Annotated[str, Meta(min_length=1)] | Annotated[list[TextBlock], Meta(min_length=1)]


class MessageSend(Params, frozen=True, kw_only=True):
    """`message.send`."""

    session_id: Name
    content: Content
    client_message_id: Given = ""
    metadata: JsonObject = {}


class MessageStream(MessageSend, frozen=True, kw_only=True):
    """`message.stream`."""

    stream_id: Given = ""


class ToolApprove(Params, frozen=True, kw_only=True):
    """`tool.approve`."""

    session_id: Name
    request_id: Name
    scope: Literal["once", "session", "agent"] = "once"


class ToolDeny(Params, frozen=True, kw_only=True):
    """`tool.deny`."""

    session_id: Name
    request_id: Name
    reason: str = ""


class ToolCancel(Params, frozen=True, kw_only=True):
    """`tool.cancel`."""

    session_id: Name
    request_id: Name
    reason: str = ""


class ElicitationRespond(Params, frozen=True, kw_only=True):
    """`elicitation.respond`."""

    session_id: Name
    request_id: Name | int
    kind: Literal["request_user_input", "mcp"]
    server_name: Given = ""
    response: JsonObject


class QuestionAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was answered to one question."""

    answers: list[str]


class QuestionAnswers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `response` to questions, by question id."""

    answers: dict[str, QuestionAnswer]


class PermissionList(Params, frozen=True, kw_only=True):
    """`permission.list`."""

    agent_id: Given = ""
    session_id: Given = ""


class FuzzySearch(Params, frozen=True, kw_only=True):
    """`fs.fuzzy_search`."""

    query: str
    roots: list[Given]
    cancellation_token: Given | None = None
