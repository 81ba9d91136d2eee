"""Each way in which a real child process can end, for both ways to start one."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from roost.supervisor.errors import RestartLimitReached, StartError, StartRefused
from roost.supervisor.intensity import Intensity
from roost.supervisor.spec import Restart
from tests.support.processes import run_tree, until

if TYPE_CHECKING:
    from tests.support.processes import Forest


async def test_a_child_that_exits_with_status_0_has_ended_and_is_not_restarted(
    forest: Forest,
) -> None:
    async with run_tree(forest.tree(forest.maker("ends"))) as tree:
        tree.ensure_child("a")
        exit_ = await forest.wait_for("a", "exit")
        assert exit_.how == "normal"
        assert tree.snapshot()[-1].child_id != "a"
    assert forest.events("a") == ["start", "ready", "exit"]


async def test_a_child_that_exits_with_status_1_is_restarted_and_its_last_words_are_kept(
    forest: Forest,
) -> None:
    async with run_tree(forest.tree(forest.maker("ends", status=1))) as tree:
        tree.ensure_child("a")
        exit_ = await forest.wait_for("a", "exit")
        assert exit_.how == "crash"
        assert exit_.reason == "exit status 1: these are my last words"
        assert exit_.last_words == "these are my last words"
        await forest.wait_for("a", "ready", 2)
        await tree.stop_child("a", "enough")
    assert forest.notes()[:2] == ["a: start 1", "a: start 2"]


async def test_a_child_ended_by_a_signal_has_crashed(forest: Forest) -> None:
    make = forest.maker("ends", signal=int(signal.SIGKILL))
    async with run_tree(forest.tree(make, budget=Intensity(0, 60.0))) as tree:
        tree.ensure_child("a")
        assert (await forest.wait_for("a", "exit")).reason == "ended by SIGKILL"
        given_up = await forest.wait_for("a", "give_up")
        assert given_up.reason == "ended by SIGKILL"
        assert tree.snapshot()[-1].state == "gave_up"
        assert not tree.ensure_child("a")
        assert tree.ensure_child("a", fresh=True)
        await forest.wait_for("a", "ready", 2)


async def test_an_exception_is_a_crash_with_a_traceback_in_the_log(forest: Forest) -> None:
    make = forest.maker("raises")
    async with run_tree(forest.tree(make, budget=Intensity(0, 60.0))) as tree:
        tree.ensure_child("a")
        exit_ = await forest.wait_for("a", "exit")
        assert exit_.reason.startswith("exit status 70")
    assert "ValueError: an actor broke" in forest.log("a")


async def test_a_service_that_dies_before_it_is_ready_is_an_error_with_its_last_words(
    forest: Forest,
) -> None:
    tree = forest.tree(services=[forest.spec("good", "well"), forest.spec("bad", "diesearly")])
    with trio.fail_after(20), pytest.raises(StartError, match="bad: exit status 3: no such thing"):
        await tree.run()
    assert forest.events("good") == ["start", "ready", "exit"]


async def test_a_service_that_hangs_before_it_is_ready_is_killed_in_time(forest: Forest) -> None:
    tree = forest.tree(services=[forest.spec("slow", "hangsearly", ready_timeout=1.0)])
    with trio.fail_after(20), pytest.raises(StartError, match="slow: not ready within 1 s"):
        await tree.run()
    assert "Fatal Python error: Aborted" in forest.log("slow")


async def test_a_service_that_refuses_to_start_says_why(forest: Forest) -> None:
    tree = forest.tree(services=[forest.spec("wrong", "refuses")])
    with (
        trio.fail_after(20),
        pytest.raises(StartRefused, match="wrong: the configuration is wrong"),
    ):
        await tree.run()


async def test_a_dynamic_child_that_dies_early_is_tried_again_until_it_is_given_up(
    forest: Forest,
) -> None:
    make = forest.maker("diesearly")
    async with run_tree(forest.tree(make, budget=Intensity(2, 60.0))) as tree:
        tree.ensure_child("a")
        await forest.wait_for("a", "give_up")
    assert forest.events("a") == ["start", "exit", "restart"] * 2 + ["start", "exit", "give_up"]


async def test_a_child_that_ignores_every_request_to_stop_is_killed_after_the_grace(
    forest: Forest,
) -> None:
    make = forest.maker("deaf", grace=0.3)
    async with run_tree(forest.tree(make)) as tree:
        tree.ensure_child("a")
        await forest.wait_for_note("deaf")
        began = trio.current_time()
        await tree.stop_child("a", "enough")
        assert 1.2 < trio.current_time() - began < 4.0
    assert forest.reports[-1].how != "crash"


async def test_a_hung_child_leaves_its_stack_and_is_restarted(forest: Forest) -> None:
    make = forest.maker("hangs", hang_timeout=0.6)
    async with run_tree(forest.tree(make, budget=Intensity(0, 60.0))) as tree:
        tree.ensure_child("a")
        exit_ = await forest.wait_for("a", "exit")
        assert exit_.how == "crash"
        assert exit_.reason.startswith("hung")
        await forest.wait_for("a", "give_up")
        tree.ensure_child("a", fresh=True)
        await forest.wait_for("a", "ready", 2)
    assert "Fatal Python error: Aborted" in forest.log("a")
    assert "in block_the_loop" in forest.log("a")


async def test_a_child_above_its_memory_limit_is_ended_with_that_reason(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.supervisor.watch.WORKING_PERIOD", 0.2)
    make = forest.maker("grows", status=200, memory_limit=150 << 20)
    async with run_tree(forest.tree(make, budget=Intensity(0, 60.0))) as tree:
        tree.ensure_child("a")
        exit_ = await forest.wait_for("a", "exit")
        assert exit_.reason.startswith("memory: 2")
        assert "150 MiB allowed" in exit_.reason


async def test_what_a_child_leaves_in_another_session_is_killed(forest: Forest) -> None:
    make = forest.maker("escapes", sweeps=True)
    async with run_tree(forest.tree(make)) as tree:
        tree.ensure_child("a")
        line = await forest.wait_for_note("grandchild")
        pid = int(line.rpartition(" ")[2])
        await forest.wait_for("a", "exit")
        await until(lambda: not psutil.pid_exists(pid))
        assert pid not in {node.pid for node in tree.snapshot()}, "it was no process of the tree"


async def test_a_child_that_closes_its_control_link_and_lives_on_is_killed(
    forest: Forest,
) -> None:
    make = forest.maker("lingers")
    async with run_tree(forest.tree(make, budget=Intensity(0, 60.0))) as tree:
        tree.ensure_child("a")
        exit_ = await forest.wait_for("a", "exit")
        assert exit_.how == "crash"


async def test_a_service_that_crashes_too_often_ends_the_tree(forest: Forest) -> None:
    spec = forest.spec("bad", "ends", Restart.PERMANENT, status=1)
    tree = forest.tree(services=[spec], intensity=Intensity(2, 60.0))
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is the life of the tree
        async with run_tree(tree):
            tree.ensure_child("a")
            await trio.sleep_forever()
    assert caught.group_contains(
        RestartLimitReached, match="services: bad: more than 2 restarts in 60 s: exit status 1"
    )


async def test_a_killed_incarnation_is_replaced(forest: Forest) -> None:
    async with run_tree(forest.tree()) as tree:
        tree.ensure_child("a")
        await forest.wait_for("a", "ready")
        pid = tree.snapshot()[-1].pid
        assert tree.kill_child("a", 1, "test")
        assert (await forest.wait_for("a", "exit")).reason == "killed: test"
        await forest.wait_for("a", "ready", 2)
        assert tree.snapshot()[-1].pid != pid


async def test_a_cancelled_tree_stops_its_processes_in_order(forest: Forest) -> None:
    services = [forest.spec(name, "well") for name in ("one", "two")]
    with trio.fail_after(20), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            tree = forest.tree(services=services)
            await nursery.start(tree.run)
            tree.ensure_child("a")
            await forest.wait_for("a", "ready")
            scope.cancel()
    stops = [line for line in forest.notes() if "stop" in line]
    assert [line.partition(":")[0] for line in stops] == ["a", "two", "one"]


async def test_hurry_kills_without_waiting(forest: Forest) -> None:
    make = forest.maker("deaf", grace=60.0)
    async with run_tree(forest.tree(make)) as tree:
        tree.ensure_child("a")
        await forest.wait_for_note("deaf")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tree.stop, "slowly")
            await trio.testing.wait_all_tasks_blocked()
            tree.hurry()
        exit_ = await forest.wait_for("a", "exit")
        assert (exit_.how, exit_.reason) == ("shutdown", "slowly")


async def test_a_hostile_working_folder_does_not_shadow_the_code_of_a_child(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("roost", "schemas", "config", "trio", "msgspec"):
        (forest.home / name).mkdir()
        (forest.home / name / "__init__.py").write_text("raise SystemExit(99)\n")
    monkeypatch.chdir(forest.home)
    async with run_tree(forest.tree(services=[forest.spec("one", "well")])):
        assert forest.events("one") == ["start", "ready"]


async def test_no_descriptor_is_left_after_a_hundred_starts(forest: Forest) -> None:
    count = 100 if forest.mode == "zygote" else 15
    links = [("agent:*", "store")]
    services = [forest.spec("store", "talks")]
    tree = forest.tree(forest.maker("talks"), services=services, links=links)
    async with run_tree(tree, 60.0):
        tree.ensure_child("first")
        await forest.wait_for("first", "ready")
        await tree.stop_child("first", "enough")
        gc.collect()  # descriptors that earlier tests left to the collector
        before = len(os.listdir("/proc/self/fd"))
        for number in range(count):
            tree.ensure_child(f"c{number}")
            await forest.wait_for(f"c{number}", "ready")
            await tree.stop_child(f"c{number}", "enough")
        assert len(os.listdir("/proc/self/fd")) == before
        store = next(node.pid for node in tree.snapshot() if node.child_id == "store")
        assert len(os.listdir(f"/proc/{store}/fd")) < 20
