"""What the log keeps about a person's message besides its text."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from roost.schemas.event import JsonObject
    from roost.schemas.turn import QueuedMessage

DISPLAY: Final = "displayUserMessage"

_read_object = msgspec.json.Decoder(dict[str, object]).decode


def said_with(message: QueuedMessage, *, steering: bool = False, model: str = "") -> JsonObject:
    """Return the metadata of a message's `user.message`.

    `message_id`; `stream_id`, `client_message_id` and `displayUserMessage` as they were given; `input`: the texts that were
    joined, if they are more than one; `source`: `steer` for a message that came into a running turn; `model`: who answers.
    """
    metadata: JsonObject = {"message_id": message.message_id}
    named = {
        "stream_id": message.stream_id,
        "client_message_id": message.client_message_id,
        "source": "steer" if steering else "",
        "model": model,
    }
    metadata.update((name, text) for name, text in named.items() if text)
    if message.input:
        metadata["input"] = list(message.input)
    given: JsonObject = {}
    if message.metadata:
        with suppress(msgspec.MsgspecError):
            given = _read_object(message.metadata)
    if DISPLAY in given:
        metadata[DISPLAY] = given[DISPLAY]
    return metadata
