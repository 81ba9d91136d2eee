"""The settings of the daemon, frozen; they travel to every child process as MessagePack.

The defaults are not here but in `defaults.toml`; only a provider, of which there are any number, has its own below.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

VERSION = "0.1.0"

# What travels and is stored has 64 bits.
MAX_INT = 2**63 - 1

Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_INT)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
# A time that there always is: here 0 does not mean that there is no limit.
Span = Annotated[float, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]

RESERVED_PROVIDERS = ("script", "acp")

NEED_RESTART = frozenset(
    {
        "websocket.enabled",
        "websocket.host",
        "websocket.port",
        "websocket.path",
        "websocket.allow_nonloopback",
        "store.wal_autocheckpoint",
        "store.reserve_mib",
        "agents.max_restarts",
        "agents.restart_period",
        "processes.start",
        "processes.start_timeout",
        "processes.max_restarts",
        "processes.restart_period",
        "sandbox.backend",
    }
)
"""The keys that a running daemon keeps as it was started with: its sockets, its processes, its open file.

Every other key is live: a reload changes it in all processes that use it.
"""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table of the configuration."""


class Daemon(Table, frozen=True, kw_only=True):
    """The daemon as a whole."""

    ready_timeout: Span
    stop_timeout: Seconds


class WebSocket(Table, frozen=True, kw_only=True):
    """The TCP listener: WebSocket, health and metrics on one port."""

    enabled: bool
    host: Annotated[str, msgspec.Meta(min_length=1)]
    port: Port
    path: Annotated[str, msgspec.Meta(pattern="^/")]
    allow_nonloopback: bool
    allowed_origins: tuple[str, ...]


class Limits(Table, frozen=True, kw_only=True):
    """How much of everything there may be."""

    connections: Count
    clients_per_connection: Count
    attachments_per_session: Count
    agent_processes: Count
    in_flight_requests: Count
    queued_requests: Count
    queued_messages: Count
    unix_rate: Amount
    unix_burst: Amount
    tcp_rate: Amount
    tcp_burst: Amount
    line_bytes: Count
    event_bytes: Count
    unsent_response_bytes: Count
    client_queue_bytes: Count
    link_bytes: Annotated[int, msgspec.Meta(ge=16_777_216, le=MAX_INT)]


class Store(Table, frozen=True, kw_only=True):
    """The event log."""

    delta_window_ms: Seconds
    group_drafts: Count
    wal_autocheckpoint: Count
    page_events: Count
    ledger_entries: Count
    min_free_mib: Amount
    reserve_mib: Amount
    ephemeral_idle: Seconds
    sessions: Amount
    session_events: Amount
    session_bytes: Amount


class Retention(Table, frozen=True, kw_only=True):
    """How much of the event log is kept; 0 is no limit."""

    session_bytes: Amount
    session_days: Amount
    total_bytes: Amount
    closed_days: Amount


class Agents(Table, frozen=True, kw_only=True):
    """Agents, unless `agent.create` says otherwise."""

    provider: Annotated[str, msgspec.Meta(min_length=1)]
    sandbox: Literal["readOnly", "workspaceWrite", "dangerFullAccess"]
    sandbox_network: bool
    hang_timeout: Seconds
    memory_limit: Count
    idle_timeout: Seconds
    max_iterations: Count
    max_restarts: Amount
    restart_period: Span
    start_at_once: Count
    nice: Annotated[int, msgspec.Meta(ge=0, le=19)]


class Approvals(Table, frozen=True, kw_only=True):
    """When a tool call waits for a person."""

    ask: Literal["read", "write", "external_effect", "never"]
    timeout: Seconds


class Threads(Table, frozen=True, kw_only=True):
    """The thread door."""

    announce: bool


class Tools(Table, frozen=True, kw_only=True):
    """The tools of agents."""

    timeout: Seconds
    shell_timeout: Seconds
    shell_timeout_max: Seconds
    parallel: Count
    result_bytes: Count


class Processes(Table, frozen=True, kw_only=True):
    """How child processes are started and kept."""

    start: Literal["zygote", "spawn"]
    start_timeout: Span
    max_restarts: Amount
    restart_period: Span


class Timeouts(Table, frozen=True, kw_only=True):
    """How long something may take."""

    handshake: Seconds
    link_call: Seconds
    turn: Seconds
    turn_unwind: Seconds
    agent_stop: Span
    client_stall: Seconds


class Search(Table, frozen=True, kw_only=True):
    """The search for files."""

    roots: tuple[str, ...]
    kept_roots: Count
    paths: Count
    watches: Amount


class Commands(Table, frozen=True, kw_only=True):
    """The commands of clients."""

    parallel: Count
    timeout: Seconds
    output_bytes: Amount
    kept_bytes: Count
    unread_bytes: Annotated[int, msgspec.Meta(ge=65_536, le=MAX_INT)]


class Log(Table, frozen=True, kw_only=True):
    """The daemon's own log files."""

    level: Literal["debug", "info", "warning", "error"]
    rotate_bytes: Count
    keep: Count


class Metrics(Table, frozen=True, kw_only=True):
    """`GET /metrics`."""

    open: bool


class Provider(Table, frozen=True, kw_only=True):
    """One model provider; `key` never shows in a `repr`."""

    type: Literal["openai-chat"] = "openai-chat"
    base_url: Annotated[str, msgspec.Meta(pattern="^https?://")]
    key: str = ""
    key_env: str = ""
    model: str = ""
    tool_mode: Literal["native", "json"] = "native"
    connect_timeout: Seconds = 10.0
    event_timeout: Seconds = 60.0
    request_timeout: Seconds = 600.0
    max_retries: Amount = 2
    max_parallel: Count = 64
    max_tokens: Amount = 0

    def __repr__(self) -> str:
        return f"Provider(type={self.type!r}, base_url={self.base_url!r}, model={self.model!r})"


class Sandbox(Table, frozen=True, kw_only=True):
    """What confines commands that are not to do everything, and how much they may take."""

    backend: Literal["auto", "bubblewrap", "landlock", "none"]
    hidden: tuple[str, ...]
    tasks: Amount
    data_bytes: Amount
    address_bytes: Amount
    file_bytes: Amount
    open_files: Annotated[int, msgspec.Meta(ge=64, le=MAX_INT)]


class Settings(Table, frozen=True, kw_only=True):
    """Everything that can be set."""

    daemon: Daemon
    websocket: WebSocket
    limits: Limits
    store: Store
    retention: Retention
    agents: Agents
    approvals: Approvals
    threads: Threads
    tools: Tools
    processes: Processes
    timeouts: Timeouts
    search: Search
    commands: Commands
    sandbox: Sandbox
    log: Log
    metrics: Metrics
    providers: dict[str, Provider] = {}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Settings)


def encode_settings(settings: Settings) -> bytes:
    """Return the settings as they travel to a child process that talks to model providers."""
    return _encoder.encode(settings)


def encode_without_keys(settings: Settings) -> bytes:
    """Return the settings as they travel to every other child process: without a provider's key."""
    providers = {
        name: msgspec.structs.replace(provider, key="")
        for name, provider in settings.providers.items()
    }
    return _encoder.encode(msgspec.structs.replace(settings, providers=providers))


def decode_settings(data: bytes) -> Settings:
    """Return the settings in `data`.

    Raises:
        msgspec.ValidationError: the bytes do not come from this version.
    """
    return _decoder.decode(data)


def key_variables(settings: Settings) -> frozenset[str]:
    """Return the environment variables that hold keys; no agent and no command may inherit them."""
    return frozenset(p.key_env for p in settings.providers.values() if p.key_env)
