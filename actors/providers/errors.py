"""The one error of the providers service, made from what went wrong at a model's server (pure).

No text of it repeats a key, a prompt or the body of an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from roost.actors.errors import DaemonError

if TYPE_CHECKING:
    from roost.schemas.base import Refused

ProviderCode = Literal[
    "PROVIDER_NOT_FOUND",
    "PROVIDER_CONFIG_ERROR",
    "PROVIDER_AUTH_ERROR",
    "PROVIDER_RATE_LIMITED",
    "PROVIDER_NETWORK_ERROR",
    "PROVIDER_API_ERROR",
    "PROVIDER_OUTPUT_LIMIT",
    "PROVIDER_TIMEOUT",
]

# What servers call these two, and what it means for the user; nothing else of an answer's text is repeated.
_TOO_LONG = "the conversation is longer than the model's context"
_NO_MODEL = "the provider has no such model"
KNOWN_REASONS = {
    "context_length_exceeded": _TOO_LONG,
    "exceed_context_size_error": _TOO_LONG,
    "model_not_found": _NO_MODEL,
    "not_found_error": _NO_MODEL,
}


class ProviderError(DaemonError):
    """A request to a model failed; `retryable` says whether the same request may be tried again.

    `wait` is how many seconds the server asked to be left alone, or None.
    """

    def __init__(
        self,
        code: ProviderCode,
        message: str,
        *,
        retryable: bool = False,
        wait: float | None = None,
        status: int = 0,
        data: dict[str, object] | None = None,
    ) -> None:
        members = dict(data or {})
        if status:
            members["status"] = status
        if wait is not None:
            members["retryAfterMs"] = round(wait * 1000)
        super().__init__(code, message, members)
        self.retryable = retryable
        self.wait = wait

    def refused(self) -> Refused:
        """Return the answer to a call that this error ended."""
        return msgspec.structs.replace(super().refused(), retryable=self.retryable)


def of_status(status: int, reason: str = "", wait: float | None = None) -> ProviderError:
    """Return the error for an HTTP status other than 200; `reason` is the server's own identifier for it."""
    known = KNOWN_REASONS.get(reason)
    if status in (401, 403):
        return ProviderError("PROVIDER_AUTH_ERROR", "the provider refuses the key", status=status)
    if status == 429:
        return ProviderError(
            "PROVIDER_RATE_LIMITED",
            "the provider limits how often it may be asked",
            retryable=True,
            wait=wait,
            status=status,
        )
    if 300 <= status < 400:
        text = "the provider redirects elsewhere; check base_url"
        return ProviderError("PROVIDER_CONFIG_ERROR", text, status=status)
    text = known or f"the provider answered with status {status}"
    if status == 404 and known is None:
        text += "; check base_url and the model"
    return ProviderError(
        "PROVIDER_API_ERROR", text, retryable=status >= 500, wait=wait, status=status
    )


def garbage(what: str) -> ProviderError:
    """Return the error for an answer that is none."""
    return ProviderError("PROVIDER_API_ERROR", f"the provider's answer is not understood: {what}")


def network(what: str) -> ProviderError:
    """Return the error for a connection that failed."""
    return ProviderError("PROVIDER_NETWORK_ERROR", what, retryable=True)


def too_late(what: str, seconds: float) -> ProviderError:
    """Return the error for a time limit that passed."""
    return ProviderError("PROVIDER_TIMEOUT", f"{what} within {seconds:g} s", retryable=True)


def config(what: str) -> ProviderError:
    """Return the error for settings that cannot work."""
    return ProviderError("PROVIDER_CONFIG_ERROR", what)


def over_limit(dimension: str, limit: int) -> ProviderError:
    """Return the error for an answer over a bound; `dimension` is one of L 12."""
    text = f"the model's answer is over its limit of {limit} ({dimension})"
    data: dict[str, object] = {"dimension": dimension, "limit": limit}
    return ProviderError("PROVIDER_OUTPUT_LIMIT", text, data=data)
