"""What a command may touch, as a client or the configuration says it; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.config.model import Settings

PolicyType = Literal["dangerFullAccess", "readOnly", "workspaceWrite", "externalSandbox"]

TYPES: Final[tuple[PolicyType, ...]] = (
    "dangerFullAccess",
    "readOnly",
    "workspaceWrite",
    "externalSandbox",
)
PROFILES: Final[Mapping[str, PolicyType]] = {
    ":danger-full-access": "dangerFullAccess",
    ":read-only": "readOnly",
    ":workspace": "workspaceWrite",
}
FULL_READING = ("full", "fullAccess")
MAX_ROOTS = 64
_HUMP = re.compile(r"_([a-z])")


class PolicyError(ValueError):
    """It is no policy; the text says why, in the words of the protocol and without the name of the method."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Which files may be written, and whether there is a network.

    `dangerFullAccess` and `externalSandbox` are not confined here: with the second the caller vouches for the isolation.
    """

    type: PolicyType
    writable_roots: tuple[str, ...] = ()
    network: bool = False
    exclude_tmpdir: bool = False
    exclude_slash_tmp: bool = False

    @property
    def is_confined(self) -> bool:
        """Return whether the system has to hold the command to it."""
        return self.type in {"readOnly", "workspaceWrite"}

    @property
    def label(self) -> str:
        """Return the policy in the words shown to people."""
        if not self.is_confined:
            return self.type
        return f"{self.type}, {'network' if self.network else 'no network'}"


FULL_ACCESS: Final = Policy(type="dangerFullAccess")


def read_policy(given: Mapping[str, object], name: str = "sandboxPolicy") -> Policy:
    """Return the policy that an object of a client describes; members it does not know mean nothing.

    Raises:
        PolicyError: no type or an unknown one, a member of the wrong type, or a restriction that is not offered.
    """
    members = {_camel(key): value for key, value in given.items()}
    kind = _type_of(members, name)
    for member in ("access", "readOnlyAccess"):
        _refuse_restricted(members, member, name)
    return Policy(
        type=kind,
        writable_roots=_texts(members, "writableRoots", name) if kind == "workspaceWrite" else (),
        network=_network(members, kind, name),
        exclude_tmpdir=_flag(members, "excludeTmpdirEnvVar", name),
        exclude_slash_tmp=_flag(members, "excludeSlashTmp", name),
    )


def read_profile(given: Mapping[str, object]) -> Policy:
    """Return the policy behind a permission profile.

    Raises:
        PolicyError: it names none, or an unknown one.
    """
    wanted = given.get("id")
    if not isinstance(wanted, str) or not wanted.strip():
        raise PolicyError("param 'permissionProfile.id' must be a non-empty string")
    kind = PROFILES.get(wanted)
    if kind is None:
        raise PolicyError(f'unsupported permissionProfile: "{wanted[:64]}"')
    return Policy(type=kind)


def read_setting(text: str, *, network: bool = False) -> Policy:
    """Return the policy behind a stored or configured text: the name of a type, or a policy written as JSON.

    Raises:
        PolicyError: it is neither.
    """
    if not text.startswith("{"):
        return msgspec.structs.replace(read_policy({"type": text}), network=network)
    try:
        return read_policy(msgspec.json.decode(text, type=dict[str, object]))
    except msgspec.DecodeError as error:
        raise PolicyError(f"is not a policy: {error}") from error


def default_setting(settings: Settings) -> str:
    """Return the policy that the configuration gives to agents, as `read_setting` reads it."""
    agents = settings.agents
    confined = agents.sandbox != "dangerFullAccess"
    return write_setting(Policy(type=agents.sandbox, network=confined and agents.sandbox_network))


def write_setting(policy: Policy) -> str:
    """Return the text from which `read_setting` makes this policy."""
    if policy == Policy(type=policy.type):
        return policy.type
    members: dict[str, object] = {"type": policy.type}
    if policy.writable_roots:
        members["writableRoots"] = policy.writable_roots
    if policy.network:
        members["networkAccess"] = True if policy.is_confined else "enabled"
    if policy.exclude_tmpdir:
        members["excludeTmpdirEnvVar"] = True
    if policy.exclude_slash_tmp:
        members["excludeSlashTmp"] = True
    return msgspec.json.encode(members).decode()


def _camel(name: str) -> str:
    return _HUMP.sub(lambda found: found[1].upper(), name)


def _type_of(members: Mapping[str, object], name: str) -> PolicyType:
    given = next((members[key] for key in ("type", "kind", "value") if key in members), None)
    if not isinstance(given, str) or not given.strip():
        raise PolicyError(f"param '{name}.type' must be a non-empty string")
    wanted = _camel(given)
    for kind in TYPES:
        if wanted == kind:
            return kind
    raise PolicyError(f'unsupported {name} type: "{given[:64]}"')


def _flag(members: Mapping[str, object], member: str, name: str) -> bool:
    given = members.get(member)
    if given is None:
        return False
    if not isinstance(given, bool):
        raise PolicyError(f"param '{name}.{member}' must be a boolean")
    return given


def _network(members: Mapping[str, object], kind: PolicyType, name: str) -> bool:
    if kind == "dangerFullAccess":
        return False
    if kind != "externalSandbox":
        return _flag(members, "networkAccess", name)
    given = members.get("networkAccess")
    if given not in (None, "enabled", "restricted"):
        raise PolicyError(f"param '{name}.networkAccess' must be 'enabled' or 'restricted'")
    return given == "enabled"


def _texts(members: Mapping[str, object], member: str, name: str) -> tuple[str, ...]:
    given = members.get(member)
    if given is None:
        return ()
    try:
        texts = msgspec.convert(given, tuple[str, ...])
    except msgspec.ValidationError:
        raise PolicyError(f"param '{name}.{member}' must be an array of strings") from None
    if len(texts) > MAX_ROOTS:
        raise PolicyError(f"param '{name}.{member}' may have at most {MAX_ROOTS} entries")
    if any("\0" in text or not text for text in texts):
        raise PolicyError(f"param '{name}.{member}' must be an array of paths")
    return texts


def _refuse_restricted(members: Mapping[str, object], member: str, name: str) -> None:
    given = members.get(member)
    if isinstance(given, dict):
        given = cast("dict[str, object]", given).get("type")
    if given is None or (isinstance(given, str) and _camel(given) in FULL_READING):
        return
    raise PolicyError(f"unsupported {name} {member}: only full reading is offered")
