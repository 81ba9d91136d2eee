from __future__ import annotations

import pytest

from roost.actors.sandbox.environment import looks_secret, make_environment


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "openai_api_key",
        "MY_APIKEY",
        "X-API-KEY".replace("X-", "X_"),
        "AWS_ACCESS_KEY_ID",
        "PRIVATE_KEY",
        "MY_TOKEN_FILE",
        "GITHUB_TOKEN",
        "SSH_AUTH_SOCK",
        "DB_PASSWORD",
        "INPUT_GITHUB_TOKEN",
        "INPUT_ALL_INPUTS",
        "ALL_INPUTS",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AGENC_DAEMON_COOKIE",
        "SECRET",
    ],
)
def test_a_name_that_looks_secret_is_known(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "TOKENIZER",
        "XDG_SESSION_COOKIE",
        "LC_TOKEN",
        "AUTHOR",
        "INPUT_NAME",
        "INPUT_PATH",
        "KEYBOARD",
        "MONKEY",
        "PWD",
    ],
)
def test_a_plain_name_is_none(name: str) -> None:
    assert not looks_secret(name)


def test_a_command_gets_the_daemons_environment_with_what_its_client_wants() -> None:
    own = {"PATH": "/bin", "MY_TOKEN": "t", "LANG": "C", "EDITOR": "vi"}
    wanted = {"LANG": "de", "EDITOR": None, "NEW": "", "OTHER_TOKEN": "x", "NONE_SUCH": None}
    env, dropped = make_environment(own, wanted)
    assert env == {"PATH": "/bin", "LANG": "de", "NEW": ""}
    assert dropped == ("OTHER_TOKEN",)
