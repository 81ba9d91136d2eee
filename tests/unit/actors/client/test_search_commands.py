# pyright: reportPrivateUsage=false
from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from roost.actors.client.context import Context
from roost.actors.client.search_commands import FoundFile, _mark, _print, search

if TYPE_CHECKING:
    import pytest


def test_a_newline_in_a_name_does_not_look_like_another_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print([FoundFile(root="/r", path="a\n/etc/x\t\u2028", match_type="file", score=1)], {})
    assert capsys.readouterr().out == "a\ufffd/etc/x\ufffd\ufffd\n"
    assert "\n" not in _mark("a\nb", frozenset({1}))


def test_text_that_is_not_utf_8_is_refused_in_one_line() -> None:
    for arguments in (["\udcff"], ["a", "/tmp/\udcff"]):
        result = CliRunner().invoke(search, arguments, obj=Context(None))
        assert result.exit_code == 2
        assert result.output.splitlines()[-1].endswith("is not UTF-8")
