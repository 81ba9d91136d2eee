"""The realtime part of the daemon door: params of its methods and of its notifications (P 6.21 to 6.25, 7.9 to 7.16)."""

from __future__ import annotations

from typing import Literal

from roost.schemas.daemon import Given, Limit, Name, Params
from roost.schemas.results import Result

Voice = Literal[
    "alloy",
    "arbor",
    "ash",
    "ballad",
    "breeze",
    "cedar",
    "coral",
    "cove",
    "echo",
    "ember",
    "juniper",
    "maple",
    "marin",
    "sage",
    "shimmer",
    "sol",
    "spruce",
    "vale",
    "verse",
]


class WebsocketTransport(Params, frozen=True, kw_only=True, tag_field="type", tag="websocket"):
    """The daemon's own connection to the provider."""


class WebrtcTransport(Params, frozen=True, kw_only=True, tag_field="type", tag="webrtc"):
    """A connection of the client's to the provider, by its offer."""

    sdp: Given


class RealtimeStart(Params, frozen=True, kw_only=True):
    """`thread/realtime/start`."""

    thread_id: Name
    transport: WebsocketTransport | WebrtcTransport | None = None
    realtime_session_id: Given | None = None
    prompt: str | None = None
    output_modality: Literal["audio", "text"]
    voice: Voice | None = None


class AudioChunk(Params, frozen=True, kw_only=True):
    """A piece of sound, as Base64."""

    data: Given
    sample_rate: Limit
    num_channels: Limit
    samples_per_channel: Limit | None = None
    item_id: Given | None = None


class RealtimeAppendAudio(Params, frozen=True, kw_only=True):
    """`thread/realtime/appendAudio`."""

    thread_id: Name
    audio: AudioChunk


class RealtimeAppendText(Params, frozen=True, kw_only=True):
    """`thread/realtime/appendText`."""

    thread_id: Name
    text: Given


class RealtimeStop(Params, frozen=True, kw_only=True):
    """`thread/realtime/stop`."""

    thread_id: Name


class RealtimeEvent(Result, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every `thread/realtime/*` notification has."""

    thread_id: Given


class RealtimeStarted(RealtimeEvent, frozen=True, kw_only=True):
    """`thread/realtime/started`."""

    realtime_session_id: Given | None = None
    version: Literal["v1", "v2"]


class RealtimeItemAdded(RealtimeEvent, frozen=True, kw_only=True):
    """`thread/realtime/itemAdded`."""

    item: object


class RealtimeTranscriptDelta(RealtimeEvent, frozen=True, kw_only=True):
    """`thread/realtime/transcript/delta`."""

    role: str
    delta: str


class RealtimeTranscriptDone(RealtimeEvent, frozen=True, kw_only=True):
    """`thread/realtime/transcript/done`."""

    role: str
    text: str


class RealtimeOutputAudio(RealtimeEvent, frozen=True, kw_only=True):
    """`thread/realtime/outputAudio/delta`."""

    audio: AudioChunk


class RealtimeSdp(RealtimeEvent, frozen=True, kw_only=True):
    """`thread/realtime/sdp`."""

    sdp: Given


class RealtimeError(RealtimeEvent, frozen=True, kw_only=True):
    """`thread/realtime/error`."""

    message: Given


class RealtimeClosed(RealtimeEvent, frozen=True, kw_only=True):
    """`thread/realtime/closed`."""

    reason: str | None = None
