"""What the command line loads before it does anything, and its standard files when they are closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.commands import command, environ, redirected

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

LIMIT = 60
# Each takes as long to import as the whole of a small command, or longer.
HEAVY = {
    "argparse",
    "frizbee",
    "httpx2",
    "pathspec",
    "prometheus_client",
    "psutil",
    "rich",
    "setproctitle",
    "sqlite3",
    "tomllib",
    "roost.actors.client.doctor",
    "roost.actors.client.launch",
    "roost.config.load",
    "roost.schemas.unions",
}
OF_CONNECTIONS = {"msgspec", "ssl", "trio", "roost.actors.client.connection"}
REPORT = """
import json, sys
from roost.actors.client.cli import main
try:
    main()
finally:
    sys.stdout.flush()
    print(json.dumps(list(sys.modules)), file=sys.stderr)
"""


def loaded(home: Path, *arguments: str, status: int = 0) -> set[str]:
    """Return the names of the modules that a command has loaded when it has ended."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", REPORT, "--home", str(home), *arguments],
        capture_output=True,
        check=False,
        env=environ(),
        timeout=LIMIT,
    )
    assert ended.returncode == status, ended.stderr
    names: list[str] = json.loads(ended.stderr.splitlines()[-1])
    return set(names)


def in_shell(home: Path, redirection: str, *arguments: str) -> tuple[int, str]:
    """Run a command by a shell that redirects its files; return its exit status and what it says on standard error."""
    ended = subprocess.run(
        redirected(command(home, *arguments), redirection),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env=environ(),
        timeout=LIMIT,
    )
    assert ended.stdout == b""
    return ended.returncode, ended.stderr.decode()


def test_help_and_version_load_nothing_that_talks_to_a_daemon(tmp_path: Path) -> None:
    assert not loaded(tmp_path, "--help") & (HEAVY | OF_CONNECTIONS)
    assert not loaded(tmp_path, "--version") & (HEAVY | OF_CONNECTIONS - {"msgspec"})
    assert not loaded(tmp_path, "exec", "--help") & (HEAVY | OF_CONNECTIONS - {"msgspec"})


def test_a_command_that_finds_no_daemon_has_loaded_a_connection_and_no_more(tmp_path: Path) -> None:
    for arguments in (["exec", "true"], ["stop", "x"]):
        found = loaded(tmp_path, *arguments, status=3)
        assert found >= OF_CONNECTIONS
        assert not found & HEAVY


@pytest.mark.parametrize("argument", ["--help", "--version", "schema", "token", "status"])
@pytest.mark.parametrize(
    ("redirection", "error"),
    [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")],
)
def test_words_that_cannot_be_written_are_no_success(
    tmp_path: Path, argument: str, redirection: str, error: str
) -> None:
    expected = (1, f"roost: standard output: {error}\n")
    assert in_shell(tmp_path, redirection, argument) == expected
    assert in_shell(tmp_path, f"{redirection} 2>&-", argument) == (1, "")


def test_a_closed_output_that_is_not_written_to_is_no_error(tmp_path: Path) -> None:
    assert in_shell(tmp_path, ">&-", "approve")[0] == 3
    status, said = in_shell(tmp_path, ">&-", "exec", "--cwd", "/none", "true")
    assert status == 2
    assert "does not exist" in said


FILES = """
import os
from roost.actors.client.standard_files import fill_closed, open_outputs
fill_closed()
for number in (1, 2):
    try:
        os.write(number, b"x")
    except OSError:
        pass
    else:
        os._exit(1)
open_outputs()
os.write(1, b"x")
os.write(2, b"x")
"""


def test_a_daemon_that_takes_over_closed_outputs_can_write_to_them() -> None:
    ended = subprocess.run(
        redirected([sys.executable, "-P", "-c", FILES], "<&- >&- 2>&-"),
        check=False,
        env=environ(),
        timeout=LIMIT,
        cwd=os.sep,
    )
    assert ended.returncode == 0
