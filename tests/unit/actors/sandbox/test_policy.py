from __future__ import annotations

import pytest

from roost.actors.sandbox.policy import (
    Policy,
    PolicyError,
    read_policy,
    read_profile,
    read_setting,
    write_setting,
)


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({"type": "dangerFullAccess"}, Policy(type="dangerFullAccess")),
        ({"kind": "read_only"}, Policy(type="readOnly")),
        ({"value": "workspace_write"}, Policy(type="workspaceWrite")),
        ({"type": "readOnly", "networkAccess": True}, Policy(type="readOnly", network=True)),
        ({"type": "readOnly", "networkAccess": None}, Policy(type="readOnly")),
        ({"type": "readOnly", "writableRoots": ["/x"]}, Policy(type="readOnly")),
        ({"type": "readOnly", "access": {"type": "fullAccess"}}, Policy(type="readOnly")),
        (
            {"type": "workspaceWrite", "writable_roots": ["/x", "y"], "exclude_slash_tmp": True},
            Policy(type="workspaceWrite", writable_roots=("/x", "y"), exclude_slash_tmp=True),
        ),
        (
            {"type": "workspaceWrite", "excludeTmpdirEnvVar": True},
            Policy(type="workspaceWrite", exclude_tmpdir=True),
        ),
        ({"type": "externalSandbox"}, Policy(type="externalSandbox")),
        (
            {"type": "externalSandbox", "networkAccess": "enabled"},
            Policy(type="externalSandbox", network=True),
        ),
        ({"type": "dangerFullAccess", "unknown": 1}, Policy(type="dangerFullAccess")),
    ],
)
def test_a_policy_is_read_as_the_protocol_writes_it(
    given: dict[str, object], policy: Policy
) -> None:
    assert read_policy(given) == policy


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "param 'sandboxPolicy.type' must be a non-empty string"),
        ({"type": " "}, "param 'sandboxPolicy.type' must be a non-empty string"),
        ({"type": 1}, "param 'sandboxPolicy.type' must be a non-empty string"),
        ({"type": "open"}, 'unsupported sandboxPolicy type: "open"'),
        ({"type": "readOnly", "networkAccess": 1}, "'sandboxPolicy.networkAccess' must be a bool"),
        ({"type": "externalSandbox", "networkAccess": True}, "must be 'enabled' or 'restricted'"),
        ({"type": "readOnly", "access": "restricted"}, "unsupported sandboxPolicy access"),
        (
            {"type": "workspaceWrite", "readOnlyAccess": {"type": "restricted"}},
            "unsupported sandboxPolicy readOnlyAccess",
        ),
        ({"type": "workspaceWrite", "writableRoots": "/x"}, "must be an array of strings"),
        ({"type": "workspaceWrite", "writableRoots": [""]}, "must be an array of paths"),
        ({"type": "workspaceWrite", "writableRoots": ["a\0"]}, "must be an array of paths"),
        ({"type": "workspaceWrite", "writableRoots": ["x"] * 65}, "at most 64"),
        ({"type": "workspaceWrite", "excludeSlashTmp": "yes"}, "must be a boolean"),
    ],
)
def test_what_is_no_policy_is_refused_in_the_words_of_the_protocol(
    given: dict[str, object], text: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(given)
    assert text in str(caught.value)


def test_a_profile_names_a_policy() -> None:
    assert read_profile({"id": ":read-only"}).type == "readOnly"
    assert read_profile({"id": ":workspace"}).type == "workspaceWrite"
    assert read_profile({"id": ":danger-full-access"}).type == "dangerFullAccess"
    for given in ({}, {"id": ":nothing"}, {"id": 1}):
        with pytest.raises(PolicyError, match="permissionProfile"):
            read_profile(given)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(type="readOnly"),
        Policy(type="externalSandbox", network=True),
        Policy(type="workspaceWrite", network=True, writable_roots=("/a", "b")),
        Policy(type="workspaceWrite", exclude_tmpdir=True, exclude_slash_tmp=True),
    ],
)
def test_a_policy_is_stored_and_read_back(policy: Policy) -> None:
    assert read_setting(write_setting(policy)) == policy


def test_a_plain_policy_is_stored_as_its_name() -> None:
    assert write_setting(Policy(type="readOnly")) == "readOnly"
    with pytest.raises(PolicyError):
        read_setting("nothing")
    with pytest.raises(PolicyError):
        read_setting("{")


def test_a_policy_is_shown_with_its_network() -> None:
    assert Policy(type="readOnly").label == "readOnly, no network"
    assert Policy(type="workspaceWrite", network=True).label == "workspaceWrite, network"
    assert Policy(type="dangerFullAccess").label == "dangerFullAccess"
