"""The fork server dies, and nobody but its next user notices."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from roost.supervisor.errors import StartError
from roost.supervisor.starter import Starting
from tests.support.processes import run_tree, stand_still, until

if TYPE_CHECKING:
    from roost.supervisor.tree import ProcessTree
    from tests.support.processes import Forest


def pid_of(tree: ProcessTree, name: str) -> int:
    return next(node.pid for node in tree.snapshot() if node.child_id == name)


async def test_children_outlive_the_zygote_and_the_next_start_uses_a_new_one(
    zygote_forest: Forest,
) -> None:
    forest = zygote_forest
    async with run_tree(forest.tree(services=[forest.spec("store", "well")])) as tree:
        tree.ensure_child("a")
        await forest.wait_for("a", "ready")
        old, store, child = (pid_of(tree, name) for name in ("zygote", "store", "a"))
        os.kill(old, signal.SIGKILL)
        tree.ensure_child("b")
        await forest.wait_for("b", "ready")
        assert pid_of(tree, "zygote") != old
        assert (pid_of(tree, "store"), pid_of(tree, "a")) == (store, child)
        assert forest.events("a") == ["start", "ready"]


async def test_starts_under_way_when_the_zygote_dies_succeed_with_the_next_one(
    zygote_forest: Forest,
) -> None:
    forest = zygote_forest
    others = {child.pid for child in psutil.Process().children()}
    async with run_tree(forest.tree()) as tree:
        for number in range(20):
            tree.ensure_child(f"c{number}")
        await forest.wait_for("c3", "ready")
        os.kill(pid_of(tree, "zygote"), signal.SIGKILL)
        for number in range(20):
            await forest.wait_for(f"c{number}", "ready")
        living = {node.pid for node in tree.snapshot()}
        # What a lost fork left is being killed.
        await until(lambda: {child.pid for child in psutil.Process().children()} <= living | others)
        running = {node.child_id for node in tree.snapshot() if node.state == "running"}
        assert {f"c{number}" for number in range(20)} <= running


async def test_a_stopped_zygote_is_replaced(
    zygote_forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.supervisor.starter.FORK_TIMEOUT", 0.3)
    forest = zygote_forest
    async with run_tree(forest.tree()) as tree:
        stopped = pid_of(tree, "zygote")
        stand_still(stopped)
        tree.ensure_child("a")
        await forest.wait_for("a", "ready")
        assert pid_of(tree, "zygote") != stopped


async def test_a_zygote_that_cannot_import_what_it_is_told_is_a_failed_start(
    zygote_forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = zygote_forest
    monkeypatch.setattr(
        forest,
        "starting",
        lambda: Starting(
            mode="zygote",
            entry="children:main",
            preload=("no_such_module",),
            log=forest.home / "zygote.log",
        ),
    )
    with trio.fail_after(20), pytest.raises(StartError, match="No module named 'no_such_module'"):
        await forest.tree().run()


async def test_a_child_has_a_session_of_its_own_and_dies_with_root(zygote_forest: Forest) -> None:
    forest = zygote_forest
    async with run_tree(forest.tree()) as tree:
        tree.ensure_child("a")
        await forest.wait_for("a", "ready")
        pid = pid_of(tree, "a")
        assert os.getpgid(pid) == os.getsid(pid) == pid
        assert psutil.Process(pid).ppid() == os.getpid()
        opened = sorted(int(fd) for fd in os.listdir(f"/proc/{pid}/fd"))
        assert opened[:3] == [0, 1, 2]
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert os.readlink(f"/proc/{pid}/fd/2") == str(forest.home / "a.log")


async def test_children_forked_together_have_no_descriptor_of_each_other(
    zygote_forest: Forest,
) -> None:
    forest = zygote_forest
    async with run_tree(forest.tree()) as tree:
        for number in range(20):
            tree.ensure_child(f"c{number}")
        for number in range(20):
            await forest.wait_for(f"c{number}", "ready")
        open_fds = [
            sorted(os.readlink(f"/proc/{node.pid}/fd/{fd}").partition(":")[0] for fd in fds)
            for node in tree.snapshot()
            if node.parent == "agents"
            for fds in (os.listdir(f"/proc/{node.pid}/fd"),)
        ]
        logs = {name for names in open_fds for name in names if name.endswith(".log")}
        assert len(logs) == 20
        # The control link, and two pairs by which trio is woken and told of signals.
        assert {names.count("socket") for names in open_fds} == {5}
        assert {names.count("pipe") for names in open_fds} == {0}
