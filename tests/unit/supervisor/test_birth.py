from __future__ import annotations

import pytest

from roost.supervisor.birth import find_entry


def test_an_entry_is_found_by_its_name() -> None:
    found: object = find_entry("roost.supervisor.birth:find_entry")
    assert found is find_entry


@pytest.mark.parametrize("text", ["roost.supervisor.birth:none", "roost.supervisor.birth", "no:f"])
def test_an_entry_that_is_not_there_is_an_import_error(text: str) -> None:
    with pytest.raises(ImportError):
        find_entry(text)
