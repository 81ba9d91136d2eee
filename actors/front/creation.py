"""agent.create and session.create: ids first, then one transaction in the store, then the answer."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import uuid_utils

from roost.actors.errors import DaemonError, InvalidArgument
from roost.actors.front.clock import now_ms
from roost.actors.front.summaries import agent_summary, session_summary
from roost.actors.front.workspace import check_folder, make_scratch
from roost.actors.sandbox.policy import (
    Policy,
    PolicyError,
    default_setting,
    read_policy,
    write_setting,
)
from roost.schemas import control
from roost.schemas.agent import AgentCreated, AgentSpec, CreateAgent
from roost.schemas.base import AgentId, Done, MessageId, SessionId
from roost.schemas.session import CreateSession, SessionRow, SessionSpec
from roost.schemas.turn import AcceptMessage

if TYPE_CHECKING:
    from roost.actors.front.promise import Promise
    from roost.actors.front.router import Call
    from roost.actors.front.services import Services
    from roost.config.model import Settings
    from roost.schemas.daemon import AgentCreate, SessionCreate
    from roost.schemas.results import AgentSummary, SessionSummary

FOLDER_SECONDS = 5.0
MAX_NAME = 256

_encode = msgspec.json.Encoder().encode


def new_id(kind: str) -> str:
    """Return a new id; it names the kind and is ordered by time."""
    return f"{kind}_{uuid_utils.uuid7()}"


def first_message(session_id: SessionId, text: str, at: int) -> AcceptMessage:
    """Return the message with which a conversation begins."""
    message_id = MessageId(new_id("message"))
    content = _encode(text)
    return AcceptMessage(
        session_id=session_id,
        message_id=message_id,
        stream_id=message_id,
        accepted_at=at,
        content=content,
        text=text,
        sha256=hashlib.sha256(content).digest(),
    )


async def create_agent(call: Call, params: AgentCreate) -> AgentSummary:
    """Record an agent with its first session and message; its process starts meanwhile."""
    services = call.services
    if params.permission_mode not in ("", "default"):
        text = f"agent.create permissionMode '{params.permission_mode[:64]}' is not supported"
        raise InvalidArgument(
            f"{text}; use unattendedAllow and unattendedDeny", _at("permissionMode")
        )
    text = _objective(params)
    sandbox = _sandbox(call.method, params.metadata, services)
    provider = _provider(params.provider, services.settings)
    _check_env(params.env_overrides)
    metadata = dict(params.metadata)
    if isinstance(params.instructions, str) and params.instructions.strip() not in ("", text):
        metadata["instructions"] = params.instructions
    encoded = _bounded(metadata, text, services.settings)
    agent_id, session_id, now = AgentId(new_id("agent")), SessionId(new_id("session")), now_ms()
    cwd = await _folder(services, call.method, params.cwd, agent_id)
    if params.env_overrides:
        await services.root.ask(control.Remember(child_id=agent_id, env=params.env_overrides), Done)
    allow, deny = _tools(params.unattended_allow), _tools(params.unattended_deny)
    spec = AgentSpec(
        agent_id=agent_id,
        created_at=now,
        cwd=cwd,
        scratch=not isinstance(params.cwd, str),
        objective=text,
        provider=provider,
        model=params.model[:MAX_NAME],
        profile=params.profile[:MAX_NAME],
        sandbox=sandbox,
        unattended=bool(allow or deny),
        unattended_allow=allow,
        unattended_deny=deny,
        metadata=encoded,
    )
    has_turn = not isinstance(params.initial_content, list)
    request = CreateAgent(
        spec=spec,
        session=_first_session(spec, session_id, {**metadata, "objective": text}, "agent.start"),
        message=first_message(session_id, text, now) if has_turn else None,
        has_env=bool(params.env_overrides),
    )
    created = await services.store.ask(request, AgentCreated)
    services.remember_agent(session_id, agent_id)
    services.announce(created.session)
    status = "running" if has_turn else created.agent.status
    return agent_summary(created.agent, status=status, session_id=session_id)


async def create_session(call: Call, params: SessionCreate) -> SessionSummary:
    """Record a session on a live agent, or with an agent of its own that starts with its first message."""
    services = call.services
    session_id, now = SessionId(new_id("session")), now_ms()
    prompt = params.initial_prompt
    message = first_message(session_id, prompt, now) if prompt.strip() else None
    encoded = _bounded(params.metadata, prompt, services.settings)
    if params.agent_id.strip():
        agent_id = AgentId(params.agent_id)
        cwd = ""
        if isinstance(params.cwd, str):
            cwd = await _folder(services, call.method, params.cwd, agent_id)
        session = SessionSpec(
            session_id=session_id,
            agent_id=agent_id,
            created_at=now,
            cwd=cwd,
            source=call.method,
            metadata=encoded,
        )
        row = await services.store.ask(CreateSession(session=session, message=message), SessionRow)
    else:
        agent_id = AgentId(new_id("agent"))
        settings = services.settings
        spec = AgentSpec(
            agent_id=agent_id,
            created_at=now,
            cwd=await _folder(services, call.method, params.cwd, agent_id),
            scratch=not isinstance(params.cwd, str),
            provider=_provider("", settings),
            sandbox=_sandbox(call.method, params.metadata, services),
            metadata=encoded,
        )
        session = _first_session(spec, session_id, params.metadata, call.method)
        request = CreateAgent(spec=spec, session=session, message=message)
        row = (await services.store.ask(request, AgentCreated)).session
    services.remember_agent(session_id, agent_id)
    services.announce(row)
    return session_summary(row, ())


def _first_session(
    spec: AgentSpec, session_id: SessionId, metadata: dict[str, object], source: str
) -> SessionSpec:
    return SessionSpec(
        session_id=session_id,
        agent_id=spec.agent_id,
        created_at=spec.created_at,
        cwd=spec.cwd,
        title=spec.objective[:MAX_NAME],
        model=spec.model,
        source=source,
        metadata=_encode({**metadata, "source": source}),
    )


def _bounded(metadata: dict[str, object], text: str, settings: Settings) -> bytes:
    """Return the metadata as JSON; with the first text it must be no larger than one stored event."""
    encoded = _encode(metadata)
    size, limit = len(encoded) + len(text.encode()), settings.limits.event_bytes
    if size > limit:
        what = f"metadata and first message are too large: {size} bytes, at most {limit} are stored"
        raise DaemonError(
            "INPUT_TOO_LARGE", what, {"limit": limit, "size": size, **_at("metadata")}
        )
    return encoded


def _at(member: str) -> dict[str, object]:
    return {"path": f"/{member}"}


def _objective(params: AgentCreate) -> str:
    """A blank objective does not fall back to the instructions; an absent one does."""
    found = params.objective if isinstance(params.objective, str) else params.instructions
    text = found.strip() if isinstance(found, str) else ""
    if isinstance(params.initial_content, list):
        if params.initial_content:
            what = "agent.create param 'initialContent' must be an empty array"
            raise InvalidArgument(what, _at("initialContent"))
    elif not text:
        raise InvalidArgument("agent.start requires a non-empty objective", _at("objective"))
    return text


def _sandbox(method: str, metadata: dict[str, object], services: Services) -> str:
    """Return the policy of an agent's tools as it is stored; one that is asked for must be one that can hold."""
    if "sandbox" not in metadata:
        return default_setting(services.settings)
    policy = _policy(method, metadata["sandbox"])
    backend = services.boot.backend
    if policy.is_confined and not backend.name:
        raise DaemonError(
            "SANDBOX_UNAVAILABLE",
            f"{policy.type} needs a sandbox, and none is available here: {backend.detail}",
            {"available": ["dangerFullAccess"]},
        )
    return write_setting(policy)


def _policy(method: str, wanted: object) -> Policy:
    try:
        given: object = {"type": wanted} if isinstance(wanted, str) else wanted
        policy = read_policy(msgspec.convert(given, dict[str, object]), "metadata.sandbox")
        if policy.type == "externalSandbox":
            raise PolicyError("param 'metadata.sandbox': externalSandbox is for commands only")
    except PolicyError as error:
        raise InvalidArgument(f"{method} {error}", _at("metadata/sandbox")) from None
    except msgspec.ValidationError:
        text = f"{method} param 'metadata.sandbox' must be a string or an object"
        raise InvalidArgument(text, _at("metadata/sandbox")) from None
    return policy


def _provider(wanted: str, settings: Settings) -> str:
    name = wanted.strip() or settings.agents.provider
    allowed = ["script", *sorted(settings.providers)]
    if name not in allowed:
        text = f"there is no provider '{name[:64]}'; there are: {', '.join(allowed)}"
        raise InvalidArgument(text, _at("provider"))
    return name


def _tools(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _check_env(env: dict[str, str]) -> None:
    for name, value in env.items():
        if not name.strip() or "=" in name or "\0" in name + value:
            shown = name[:64].replace("\0", "")
            what = f"agent.create envOverrides has a name or value that cannot be set: '{shown}'"
            raise InvalidArgument(what, _at("envOverrides"))


async def _folder(services: Services, method: str, cwd: object, agent_id: AgentId) -> str:
    work = (
        partial(check_folder, method, cwd)
        if isinstance(cwd, str)
        else partial(make_scratch, services.boot.home, agent_id)
    )
    found: Promise[str] = services.in_thread(work, FOLDER_SECONDS)
    return await found
