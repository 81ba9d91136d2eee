"""A whole daemon with each backend, and without one: what it reports, and what its agents and clients may do."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Refusal
from tests.support.cage import BACKENDS, backend_of
from tests.support.daemon import attach, daemon_in, is_method, next_note, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.daemon import Client, Json
    from tests.support.cage import BackendName
    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

TOUCH = "echo in > made; cat {home}/daemon.cookie; touch /etc/roost-made || echo kept"
DIAL = """
import socket, sys
try: socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error: print(error.strerror)
"""


@pytest.fixture
def work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="roost-work-", dir="/var/tmp") as folder:
        yield Path(folder)


def shell(client: Client, session: str, command: str) -> tuple[Json, str]:
    """Let an agent run a command, approving it; return the request for approval and what came of the call."""
    attach(client, session, session)
    number = client.send("message.send", sessionId=session, content=f"$ {command}")
    asked: Json = next_note(client, is_method("event.permission_request", session))["params"]  # type: ignore[assignment]
    client.call("tool.approve", sessionId=session, requestId=asked["requestId"], scope="once")
    client.answer(number)
    return asked, str(client.call("session.transcript", sessionId=session))


@pytest.mark.parametrize("name", BACKENDS)
def test_what_runs_as_shipped_keeps_to_its_folder(
    tmp_path: Path, work: Path, name: BackendName
) -> None:
    backend_of(name)
    with daemon_in(tmp_path / "home", f"sandbox.backend={name}") as daemon:
        client = daemon.client()
        assert within(client.call("health.stats"), "sandbox")["inForce"] == name
        check_agent(daemon, client, work, name)
        check_scratch(daemon, client)
        for policy in ("readOnly", "workspaceWrite"):
            ended = client.call(
                "commandExec.start",
                command=["python3", "-c", DIAL, str(daemon.home / "daemon.sock")],
                cwd=str(work),
                sandboxPolicy={"type": policy},
            )
            assert (ended["exitCode"], ended["stdout"]) == (0, "Permission denied\n")


def check_agent(daemon: RunningDaemon, client: Client, work: Path, name: BackendName) -> None:
    created = client.call("agent.create", objective="w", initialContent=[], cwd=str(work))
    asked, said = shell(client, str(created["sessionId"]), TOUCH.format(home=daemon.home))
    assert within(asked, "metadata")["sandbox"] == "workspaceWrite"
    assert f"held by {name}" in str(asked["reason"])
    assert (work / "made").read_text() == "in\n"
    assert (daemon.home / "daemon.cookie").read_text().strip() not in said
    assert "kept" in said
    assert not Path("/etc/roost-made").exists()


def check_scratch(daemon: RunningDaemon, client: Client) -> None:
    created = client.call("agent.create", objective="w", initialContent=[])
    _, said = shell(client, str(created["sessionId"]), "echo one > made; cat made; ls ../..")
    folder = daemon.home / "workspaces" / str(created["agentId"])
    assert (folder / "made").read_text() == "one\n"
    assert "store.db" not in said


def test_without_a_backend_nothing_runs_confined_and_everything_is_said(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "home", "sandbox.backend=none") as daemon:
        client = daemon.client()
        assert within(client.call("health.stats"), "sandbox")["inForce"] == "none"
        for policy in ("readOnly", {"type": "workspaceWrite"}):
            with pytest.raises(Refusal, match="SANDBOX_UNAVAILABLE"):
                client.call("agent.create", objective="w", metadata={"sandbox": policy})
        with pytest.raises(Refusal, match="SANDBOX_UNAVAILABLE"):
            client.call("commandExec.start", command=["true"], sandboxPolicy={"type": "readOnly"})
        created = client.call("agent.create", objective="w", initialContent=[])
        session = str(created["sessionId"])
        attach(client, session)
        client.call("message.send", sessionId=session, content="$ touch made")
        assert "SANDBOX_UNAVAILABLE" in str(client.call("session.transcript", sessionId=session))
        ended = client.call(
            "commandExec.start", command=["echo", "x"], sandboxPolicy={"type": "dangerFullAccess"}
        )
        assert ended["stdout"] == "x\n"
