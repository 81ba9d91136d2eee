from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client
from tests.support.commands import roost_now
from tests.support.daemon import (
    attach,
    check_log,
    create_agent,
    daemon_in,
    eventually,
    next_note,
    send_script,
)

if TYPE_CHECKING:
    from pathlib import Path

    from bench.daemon import Json
    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

LIMIT = 60


class Load(threading.Thread):
    """Plays turns in a session until it is stopped; `acknowledged` is the last sequence known to be in the log."""

    def __init__(self, daemon: RunningDaemon) -> None:
        super().__init__()
        self.client = Client(daemon.socket)
        _, self.session = create_agent(self.client)
        attach(self.client, self.session, self.session)
        self.acknowledged = 0
        self.turns = 0
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            number = send_script(self.client, self.session, {"say": "some words " * 100})
            self.client.answer(number)
            self.turns += 1
            self.acknowledged = max(
                (int(str(note["params"].get("sequence", 0))) for note in self.client.notes),  # type: ignore[attr-defined]
                default=0,
            )
            self.client.notes.clear()


def test_a_backup_under_load_holds_all_that_was_acknowledged(
    daemon: RunningDaemon, home: Path
) -> None:
    loads = [Load(daemon) for _ in range(3)]
    for load in loads:
        load.start()
    eventually(lambda: all(load.turns > 2 for load in loads))
    acknowledged = {load.session: load.acknowledged for load in loads}
    copy = home.parent / f"{home.name}.backup"
    ended = roost_now(daemon.home, "backup", str(copy))
    for load in loads:
        load.stopping = True
    for load in loads:
        load.join(LIMIT)
        load.client.close()
    assert ended.returncode == 0, ended.stderr
    assert min(acknowledged.values()) > 0
    other = home.parent / f"{home.name}-other"
    try:
        restored = roost_now(other, "restore", str(copy))
        assert restored.returncode == 0, restored.stderr
        with daemon_in(other) as second:
            found = check_log(other)
            for session, sequence in acknowledged.items():
                assert len(found[session]) >= sequence
                assert len(found[session]) <= len(check_log(home)[session]) + 8
            _check_epoch(daemon, second, loads[0].session)
    finally:
        shutil.rmtree(other, ignore_errors=True)
        copy.unlink(missing_ok=True)


def _check_epoch(first: RunningDaemon, second: RunningDaemon, session: str) -> None:
    """A cursor from before the restore is void; the session goes on."""
    epoch = attach(first.client(), session, "before")["epoch"]
    client = Client(second.socket, initialize=False)
    second.clients.append(client)
    capabilities: Json = {"roost.cursors": {session: 5}, "roost.epoch": epoch}
    client.call("initialize", protocolVersion="1.0.0", capabilities=capabilities)
    attached = attach(client, session)
    assert attached["epoch"] != epoch
    gap = next_note(client, lambda note: "event_gap" in str(note))
    assert "'reason': 'epoch'" in str(gap)
    answer = client.answer(send_script(client, session, {"say": "here"}))
    assert answer["outcome"] == "completed"


def test_a_restore_waits_for_no_daemon_and_can_be_done_by_hand(
    daemon: RunningDaemon, home: Path
) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    client.close()
    copy = home.parent / f"{home.name}.backup"
    try:
        assert roost_now(daemon.home, "backup", str(copy)).returncode == 0
        refused = roost_now(daemon.home, "restore", str(copy))
        assert refused.returncode == 1
        assert b"roost down" in refused.stderr
        daemon.stop()
        for suffix in ("-wal", "-shm"):
            (home / f"store.db{suffix}").unlink(missing_ok=True)
        shutil.copyfile(copy, home / "store.db")
        daemon.start()
        assert session in check_log(home)
    finally:
        copy.unlink(missing_ok=True)
