from __future__ import annotations

import json

import pytest

from roost.actors.providers.errors import ProviderError
from roost.actors.providers.wire.models import Offered, read_models


def _only(**model: object) -> Offered:
    (found,) = read_models(json.dumps({"data": [{"id": "m", **model}]}).encode())
    return found


def test_a_list_of_models_is_read_with_each_id_once() -> None:
    body = b'{"data":[{"id":"b","x":1},{"id":"a"},{"id":"b"},{"id":""}],"y":0}'
    assert [model.id for model in read_models(body)] == ["b", "a"]
    assert read_models(b'[{"id":"a"}]') == read_models(b'{"data":[{"id":"a"}]}')
    assert read_models(b"[]") == []


@pytest.mark.parametrize(
    "body", [b"no", b'{"data":1}', b"{}", b"[1]", b'{"data":[{}]}', b'{"data":[{"id":1}]}', b""]
)
def test_what_is_no_list_of_models_is_an_error(body: bytes) -> None:
    with pytest.raises(ProviderError, match="no list of models"):
        read_models(body)


@pytest.mark.parametrize(
    "said",
    [
        {"context_length": 4096},
        {"context_window": 4096},
        {"max_model_len": 4096},
        {"max_context_length": 4096},
        {"max_input_tokens": 4096},
        {"meta": {"n_ctx_train": 4096}},
        {"meta": {"n_ctx": 4096, "n_ctx_train": 8192}},
    ],
)
def test_the_length_of_the_context_is_found_under_each_of_its_names(
    said: dict[str, object],
) -> None:
    assert _only(**said).context_length == 4096


@pytest.mark.parametrize("odd", [True, -1, 0, 1.5, "4096", None, 2**63, [1]])
def test_a_context_that_is_no_length_is_not_told(odd: object) -> None:
    assert _only(context_length=odd, meta=odd).context_length == 0


def test_a_name_is_told_and_anything_else_under_its_member_is_not() -> None:
    assert _only(name="Model M").name == "Model M"
    assert _only(name="x", display_name="Model M").name == "Model M"
    assert _only(name=1, display_name={}).name == ""
    assert len(_only(name="x" * 1000).name) == 200


def test_whether_a_model_calls_tools_is_known_only_where_its_server_says_so() -> None:
    assert _only().tools is None
    assert _only(supported_parameters="tools").tools is None
    assert _only(supported_parameters=["temperature", "tools"]).tools is True
    assert _only(supported_parameters=[1, "temperature"]).tools is False
