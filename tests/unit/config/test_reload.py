from __future__ import annotations

import msgspec

from roost.config.load import default_settings
from roost.config.model import NEED_RESTART, Provider, Settings
from roost.config.reload import settle


def changed(settings: Settings, table: str, **members: object) -> Settings:
    new = msgspec.structs.replace(getattr(settings, table), **members)
    return msgspec.structs.replace(settings, **{table: new})


def every_key() -> list[tuple[str, str]]:
    return [
        (table, key)
        for table in Settings.__struct_fields__
        if table != "providers"
        for key in getattr(default_settings(), table).__struct_fields__
    ]


def another(value: object) -> object:
    """Return a value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return "other"
        case _:
            return ("x",)


def test_the_keys_that_need_a_restart_are_keys() -> None:
    assert {f"{table}.{key}" for table, key in every_key()} >= NEED_RESTART


def test_every_key_is_either_taken_over_or_waits_for_a_restart() -> None:
    settings = default_settings()
    for table, key in every_key():
        value = getattr(getattr(settings, table), key)
        other = another(value)
        wanted = changed(settings, table, **{key: other})
        change = settle(settings, wanted)
        name = f"{table}.{key}"
        if name in NEED_RESTART:
            assert (change.changed, change.need_restart) == ((), (name,))
            assert change.settings == settings
        else:
            assert (change.changed, change.need_restart) == ((name,), ())
            assert change.settings == wanted


def test_what_waits_for_a_restart_goes_on_waiting_beside_what_changes() -> None:
    settings = default_settings()
    wanted = changed(settings, "websocket", port=1, allowed_origins=("https://a",))
    first = settle(settings, wanted)
    assert first.changed == ("websocket.allowed_origins",)
    assert first.need_restart == ("websocket.port",)
    assert first.settings.websocket.port == settings.websocket.port
    again = settle(first.settings, wanted)
    assert (again.changed, again.need_restart) == ((), ("websocket.port",))
    assert settle(first.settings, settings).changed == ("websocket.allowed_origins",)


def test_a_provider_counts_as_one_key_and_its_secret_is_not_named() -> None:
    settings = default_settings()
    one = Provider(base_url="http://a", key="secret")
    two = msgspec.structs.replace(one, key="other")
    with_one = msgspec.structs.replace(settings, providers={"a": one})
    with_two = msgspec.structs.replace(settings, providers={"a": two, "b": one})
    assert settle(settings, with_one).changed == ("providers.a",)
    change = settle(with_one, with_two)
    assert change.changed == ("providers.a", "providers.b")
    assert settle(with_two, settings).settings.providers == {}
