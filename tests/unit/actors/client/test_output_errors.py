from __future__ import annotations

import gzip
import os
import resource
import sqlite3
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from roost.actors.client.cli import cli, main
from roost.actors.client.context import RoostGroup
from roost.actors.client.errors import ClientError
from roost.actors.client.importing import Importer
from roost.actors.client.log_lines import open_input
from roost.actors.client.outfile import new_file
from roost.actors.client.standard_files import output_bytes
from roost.config.paths import Home
from tests.support.log_files import event, fill_store, lines, log

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

NO_SPACE = "No space left on device"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    fill_store(home / "store.db", log("s-one", 300))
    return home


@contextmanager
def full_output() -> Generator[None]:
    """Have standard output go to a device that is full."""
    with open("/dev/full", "w") as full, redirect_stdout(full):
        yield


def ended(*arguments: str) -> int | str | None:
    """Run the command in this process, with its own standard files; return its exit status."""
    with pytest.raises(SystemExit) as caught:
        cli(list(arguments), prog_name="roost")
    return caught.value.code


@contextmanager
def small_files(size: int = 4096) -> Generator[None]:
    """Let no file grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "arguments",
    [
        ["events", "export", "--all"],
        ["events", "verify", "LINES"],
        ["events", "verify", "--json", "LINES"],
        ["events", "import", "--json", "LINES"],
        ["events", "tail", "s-one"],
        ["events", "tail", "s-one", "-f"],
        ["du"],
        ["schema"],
    ],
)
def test_a_full_output_is_one_line_and_status_1(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    bad = tmp_path / "lines"
    bad.write_bytes(b"{}\n" * 3)
    named = [str(bad) if one == "LINES" else one for one in arguments]
    with full_output():
        assert ended("--home", str(home), *named) == 1
    assert capfd.readouterr().err == f"roost: standard output: {NO_SPACE}\n"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_for_a_full_output_is_one_line_too(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["roost", option])
    with full_output(), pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capfd.readouterr().err == f"roost: standard output: {NO_SPACE}\n"


def test_what_is_written_without_a_flush_counts_too(
    capfd: pytest.CaptureFixture[str],
) -> None:
    @click.group(cls=RoostGroup)
    def group() -> None:
        """Hold one command."""

    @group.command()
    def say() -> None:
        sys.stdout.write("words")

    with full_output(), pytest.raises(SystemExit) as caught:
        group(["say"])
    assert caught.value.code == 1
    assert capfd.readouterr().err == f"roost: standard output: {NO_SPACE}\n"


def test_other_errors_of_the_system_name_their_file(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_folder(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/the/home")

    monkeypatch.setattr("roost.actors.client.backup_commands.prepare_home", no_folder)
    assert ended("--home", str(home), "restore", __file__) == 1
    assert capfd.readouterr().err == "roost: /the/home: Permission denied\n"


def test_export_to_a_full_device_says_so(home: Path) -> None:
    found = CliRunner().invoke(
        cli, ["--home", str(home), "events", "export", "--all", "-o", "/dev/full"]
    )
    assert found.exit_code == 1
    assert found.stderr == f"roost: cannot write /dev/full: {NO_SPACE}\n"


def test_export_to_a_full_disk_says_so_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with small_files(40_000):
        found = CliRunner().invoke(
            cli, ["--home", str(home), "events", "export", "--all", "-o", str(target)]
        )
    assert found.exit_code == 1
    assert found.stderr == f"roost: cannot write {target}: File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_pipe_whose_reader_leaves_is_an_error_of_the_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def write() -> None:
        with new_file(Home(tmp_path / "home", explicit=True), str(pipe)) as file:
            os.close(reader)
            file.write(b"x" * 100_000)

    with pytest.raises(ClientError, match="Broken pipe"):
        write()


def test_what_fails_while_a_device_is_written_is_what_is_raised(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="mine"),
        new_file(Home(tmp_path / "home", explicit=True), "/dev/null"),
    ):
        raise ValueError("mine")


@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "daemon.lock", "config.toml"])
def test_no_command_writes_over_the_daemons_own_files(home: Path, name: str) -> None:
    target = home / name
    before = target.read_bytes() if target.exists() else b""
    for arguments in (["backup", "--force"], ["events", "export", "--all", "-o"]):
        found = CliRunner().invoke(cli, ["--home", str(home), *arguments, str(target)])
        assert found.exit_code == 1
        assert "is the store itself" in found.stderr or "a file of the daemon" in found.stderr
        # To read the store makes an empty log.
        assert (target.read_bytes() if target.exists() else b"") == before


def test_a_copy_of_the_input_that_has_no_room_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100_000)
    with source.open() as given:
        monkeypatch.setattr(sys, "stdin", given)
        with (
            small_files(),
            pytest.raises(ClientError, match=r"cannot be copied into .*: File too large"),
            open_input("-", "import", spool=tmp_path),
        ):
            pass


def test_an_index_that_has_no_room_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Importer) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Importer, "scan", full)
    found = CliRunner().invoke(cli, ["--home", str(home), "events", "import", "-"], input=b"")
    assert found.exit_code == 1
    assert "temporary file: database or disk is full" in found.stderr


def test_an_input_that_is_a_folder_says_so(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in ("verify", "import"):
        assert ended("--home", str(home), "events", command, str(tmp_path)) == 1
        assert capfd.readouterr().err == f"roost: cannot read {tmp_path}: Is a directory\n"


@pytest.mark.parametrize(
    "arguments", [["events", "verify", "-"], ["events", "import", "-"], ["send", "a", "-"]]
)
def test_a_closed_input_is_said(
    home: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert ended("--home", str(home), *arguments) == 1
    assert capfd.readouterr().err == "roost: standard input is closed\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["events", "export", "--all"],
        ["events", "tail", "s-one"],
        ["events", "verify", "--json", "F"],
    ],
)
def test_a_closed_output_is_said(
    home: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(lines([event("s", 1)]))
    monkeypatch.setattr(sys, "__stdout__", None)
    monkeypatch.setattr(sys, "stdout", None)
    named = [str(file) if one == "F" else one for one in arguments]
    assert ended("--home", str(home), *named) == 1
    assert capfd.readouterr().err == "roost: standard output is closed\n"
    with sys.stdout, pytest.raises(ClientError):
        output_bytes()


@pytest.mark.parametrize(
    ("data", "kind", "tool"),
    [
        (gzip.compress(lines(log("s", 3))), "gzip", "zcat"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "zstd", "zstdcat"),
        (b"\xfd7zXZ\x00\x00\x04", "xz", "xzcat"),
    ],
)
def test_a_compressed_input_says_how_it_is_unpacked(
    home: Path, tmp_path: Path, data: bytes, kind: str, tool: str
) -> None:
    file = tmp_path / "a log"
    file.write_bytes(data)
    for command in ("import", "verify"):
        arguments = ["--home", str(home), "events", command]
        found = CliRunner().invoke(cli, [*arguments, str(file)])
        assert found.exit_code == 1
        text = f"({kind}); unpack it: {tool} '{file}' | roost events {command} -\n"
        assert found.stderr == f"roost: {file} is compressed {text}"
        found = CliRunner().invoke(cli, [*arguments, "-"], input=data)
        assert found.exit_code == 1
        assert f"{tool} FILE | roost events {command} -" in found.stderr
