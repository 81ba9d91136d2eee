from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from roost.supervisor.spawn import child_argv, child_env

if TYPE_CHECKING:
    import pytest


def test_the_working_folder_is_never_on_the_path_of_a_child() -> None:
    assert child_argv("some.module", "7") == [sys.executable, "-P", "-m", "some.module", "7"]


def test_an_uninstalled_checkout_passes_on_its_import_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roost.supervisor.spawn._installed", lambda: False)
    monkeypatch.setattr("roost.__path__", ["/checkout/roost"])
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert child_env()["PYTHONPATH"].split(os.pathsep) == ["/checkout", "/somewhere"]


def test_an_installed_one_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.supervisor.spawn._installed", lambda: True)
    assert child_env() == dict(os.environ)
