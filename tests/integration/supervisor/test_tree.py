"""What processes of a tree see of each other: links, reports, commands."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from roost.schemas import control
from roost.supervisor.intensity import Intensity
from roost.supervisor.spec import Restart
from tests.support.processes import run_tree

if TYPE_CHECKING:
    from roost.supervisor.process import ProcessSpec
    from tests.support.processes import Forest

LINKS = [("front", "store"), ("agent:*", "store"), ("front", "agent:*")]


def pid_of(nodes: tuple[control.TreeNode, ...], name: str) -> int:
    return next(node.pid for node in nodes if node.child_id == name)


async def test_every_pair_of_the_table_is_linked(forest: Forest) -> None:
    services = [forest.spec(name, "talks") for name in ("store", "front")]
    make = forest.maker("talks")
    async with run_tree(forest.tree(make, services=services, links=LINKS)) as tree:
        tree.ensure_child("a")
        lines = {
            "store: heard front from front",
            "front: heard store from store",
            "a: heard store from store",
            "a: heard front from front",
            "store: heard a from agent:a",
            "front: heard a from agent:a",
        }
        assert {await forest.wait_for_note(line) for line in lines} == lines


async def test_a_restarted_service_gets_new_ends_to_all_its_peers(zygote_forest: Forest) -> None:
    forest = zygote_forest
    services = [forest.spec(name, "talks", Restart.PERMANENT) for name in ("store", "front")]
    make = forest.maker("talks")
    async with run_tree(forest.tree(make, services=services, links=LINKS)) as tree:
        for name in ("a", "b"):
            tree.ensure_child(name)
            await forest.wait_for_note(f"store: heard {name} from agent:{name}")
        os.kill(pid_of(tree.snapshot(), "store"), signal.SIGKILL)
        for peer in ("a", "b", "front"):
            await forest.wait_for_note(f"{peer}: lost store")
            await forest.wait_for_note(f"{peer}: link store 2")
        lines = forest.notes()
        assert sum("heard store from store" in line for line in lines) >= 3


async def test_watchers_are_told_what_happens_to_dynamic_children(zygote_forest: Forest) -> None:
    forest = zygote_forest
    services = [forest.spec("store", "well", Restart.PERMANENT)]
    make = forest.maker("ends", status=1)
    tree = forest.tree(make, services=services, watchers=("store",), budget=Intensity(0, 60.0))
    async with run_tree(tree):
        tree.ensure_child("a")
        await forest.wait_for_note("store: report a gave_up")
        reports = [line.rpartition(" ")[2] for line in forest.notes() if "report a" in line]
        assert reports == ["started", "ready", "crashed", "gave_up"]
        os.kill(pid_of(tree.snapshot(), "store"), signal.SIGKILL)
        await forest.wait_for_note("store: start 2")
        await forest.wait_for_note("store: report a gave_up", 2)


async def test_a_service_commands_the_tree(zygote_forest: Forest) -> None:
    forest = zygote_forest
    ask = [
        control.Remember(child_id="a", env={"MARK": "kept"}),
        control.StartChild(child_id="a"),
        control.StopChild(child_id="never there"),
    ]
    services = [forest.spec("front", "well", commands=True, ask=ask)]
    async with run_tree(forest.tree(services=services)):
        await forest.wait_for_note("a: start 1 kept")
        await forest.wait_for_note("front: answer Done", 3)
        assert (await forest.wait_for("a", "ready")).generation == 1


async def test_a_child_with_a_wrong_spec_is_refused_and_the_tree_goes_on(
    zygote_forest: Forest,
) -> None:
    forest = zygote_forest
    ask = [
        control.StartChild(child_id="a"),
        control.Remember(child_id="a", env={}),
    ]
    services = [forest.spec("front", "well", commands=True, ask=ask)]
    make = forest.maker("well", grace=0.0)
    async with run_tree(forest.tree(make, services=services, watchers=("front",))):
        await forest.wait_for_note("front: answer Refused")
        await forest.wait_for_note("front: report a gave_up")
        await forest.wait_for_note("front: answer Done")
        assert not forest.events("a")


async def test_a_child_without_the_right_commands_nobody(zygote_forest: Forest) -> None:
    forest = zygote_forest
    ask = [control.StartChild(child_id="b")]
    make = forest.maker("well", ask=ask)
    async with run_tree(forest.tree(make)) as tree:
        tree.ensure_child("a")
        await forest.wait_for_note("a: answer Refused")
        assert not forest.events("b")


async def test_the_snapshot_names_every_process(forest: Forest) -> None:
    async with run_tree(forest.tree(services=[forest.spec("store", "well")])) as tree:
        tree.ensure_child("a")
        await forest.wait_for("a", "ready")
        nodes = tree.snapshot()
        names = [node.child_id for node in nodes]
        assert names == ["root", *(["zygote"] if forest.mode == "zygote" else []), "store", "a"]
        assert [node.parent for node in nodes if node.child_id in "a store"] == [
            "services",
            "agents",
        ]
        assert all(node.pid and node.state == "running" for node in nodes)


async def test_thirty_crashing_children_do_not_disturb_another(zygote_forest: Forest) -> None:
    forest = zygote_forest
    crashing = forest.maker("ends", status=1)
    calm = forest.maker("well")

    def make(name: str) -> ProcessSpec:
        return (calm if name == "calm" else crashing)(name)

    async with run_tree(forest.tree(make, budget=Intensity(1, 60.0)), 60.0) as tree:
        tree.ensure_child("calm")
        await forest.wait_for("calm", "ready")
        pid = pid_of(tree.snapshot(), "calm")
        for number in range(30):
            tree.ensure_child(f"c{number}")
        for number in range(30):
            await forest.wait_for(f"c{number}", "give_up")
        assert pid_of(tree.snapshot(), "calm") == pid
        assert forest.events("calm") == ["start", "ready"]


async def test_a_service_is_restarted_on_request(forest: Forest) -> None:
    async with run_tree(forest.tree(services=[forest.spec("store", "well")])) as tree:
        await tree.restart_service("store", "asked to")
        assert forest.events("store") == ["start", "ready", "exit", "start", "ready"]
