"""The closed table of what a person can do about a failed integration (L 3.5)."""

from __future__ import annotations

from typing import Final

_DOCS: Final = "https://kaji.dev/docs/integrations/recovery-v1#"

FIELDS: Final = ("reason_code", "recovery_code", "doc_url")
"""The fields that come together or not at all."""

ROWS: Final = frozenset(
    (error, reason, recovery, _DOCS + anchor)
    for error, reason, recovery, anchor in (
        (
            "INTEGRATION_AUTH_REQUIRED",
            "github_token_missing",
            "CONFIGURE_GITHUB_TOKEN",
            "github-token",
        ),
        ("INTEGRATION_AUTH_REQUIRED", "gmail_grant_missing", "CONNECT_GMAIL", "gmail-grant"),
        ("INTEGRATION_AUTH_REQUIRED", "gmail_scope_drift", "RECONNECT_GMAIL", "gmail-scope-drift"),
        ("INTEGRATION_AUTH_ERROR", "keychain_missing", "RESTORE_KEYCHAIN", "keychain-missing"),
        ("INTEGRATION_AUTH_ERROR", "keychain_locked", "UNLOCK_KEYCHAIN", "keychain-locked"),
        ("INTEGRATION_AUTH_ERROR", "keychain_corrupt", "RESET_GMAIL_GRANT", "keychain-corrupt"),
        (
            "INTEGRATION_AUTH_ERROR",
            "keychain_unsupported",
            "USE_SUPPORTED_KEYCHAIN",
            "keychain-unsupported",
        ),
        (
            "INTEGRATION_POLICY_REJECTED",
            "policy_rejected",
            "REVIEW_INTEGRATION_POLICY",
            "policy-rejected",
        ),
        ("INTEGRATION_API_ERROR", "api_rejected", "REVIEW_PROVIDER_REJECTION", "api-rejected"),
        (
            "INTEGRATION_API_ERROR",
            "transient_read_failed",
            "RETRY_INTEGRATION_READ",
            "transient-read",
        ),
        ("INTEGRATION_RATE_LIMITED", "rate_limited", "RETRY_AFTER_RATE_LIMIT", "rate-limited"),
        (
            "INTEGRATION_REDIRECT_REJECTED",
            "redirect_rejected",
            "REJECT_PROVIDER_REDIRECT",
            "redirect-rejected",
        ),
        (
            "INTEGRATION_RESPONSE_LIMIT",
            "response_limit_exceeded",
            "REDUCE_INTEGRATION_RESPONSE",
            "response-limit",
        ),
        (
            "TOOL_EXECUTION_FAILED",
            "github_mutation_unknown",
            "RECONCILE_GITHUB_MUTATION",
            "github-mutation-unknown",
        ),
        (
            "TOOL_EXECUTION_FAILED",
            "gmail_mutation_unknown",
            "RECONCILE_GMAIL_MUTATION",
            "gmail-mutation-unknown",
        ),
    )
)
"""`error_code`, `reason_code`, `recovery_code` and `doc_url` of every row."""
