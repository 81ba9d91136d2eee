"""The tools of an agent under its policy: commands in a sandbox, and file tools beside a command that plays tricks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.actors.agent.calls import Failed
from roost.actors.agent.effects import AskApproval
from roost.actors.agent.tools.paths import check_opened, open_regular
from roost.actors.agent.tools.tool import Prepared, Surroundings, ToolFailed
from roost.actors.agent.tools.toolbox import BY_NAME, ToolPolicy
from roost.actors.agent.tools.write_file import replace_file
from roost.actors.command.leftovers import Leftovers
from roost.actors.session.approvals import Grants, make_rules
from roost.config.load import default_settings
from roost.schemas import event
from roost.schemas.base import CallId
from tests.support.agent_rig import running_agent
from tests.support.cage import BACKENDS, BackendName, backend_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POLICY = '{"type":"workspaceWrite","excludeSlashTmp":true}'


@pytest.fixture(params=BACKENDS)
def around(request: pytest.FixtureRequest, tmp_path: Path) -> Surroundings:
    name: BackendName = request.param
    for folder in ("home/workspaces/a", "home/workspaces/b", "work/.git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home" / "daemon.cookie").write_text("secret")
    (tmp_path / "work" / ".git" / "config").write_text("old")
    return Surroundings(
        agent_id="a",
        cwd=str(tmp_path / "work"),
        home=str(tmp_path / "home"),
        sandbox=POLICY,
        env={**os.environ, "MY_API_KEY": "k3y", "PLAIN": "plain"},
        limits=default_settings().tools,
        leftovers=Leftovers(),
        rules=default_settings().sandbox,
        backend=backend_of(name),
    )


@pytest.fixture(autouse=True)
async def in_time() -> AsyncIterator[None]:
    with trio.fail_after(20):
        yield


async def shell(around: Surroundings, script: str) -> dict[str, object]:
    prepared = BY_NAME["shell"].prepare({"command": script}, around)
    assert not isinstance(prepared, Failed)
    result = await prepared.run(CallId("call"))
    return msgspec.convert(result, dict[str, object])


async def test_a_command_works_in_its_folder_and_nowhere_else(around: Surroundings) -> None:
    outside = Path(around.home).parent / "outside"
    result = await shell(around, f"echo new > x; echo new > {outside}; cat {around.home}/*.cookie")
    assert Path(around.cwd, "x").read_text() == "new\n"
    assert not outside.exists()
    assert "secret" not in str(result["output"])
    assert result["exit_code"] == 1


async def test_a_command_gets_no_variable_that_looks_secret(around: Surroundings) -> None:
    output = str((await shell(around, "env"))["output"])
    assert "PLAIN=plain" in output
    assert "ROOST_IDEMPOTENCY_KEY=" in output
    assert "k3y" not in output


async def test_a_command_that_ends_leaves_nothing_even_of_what_left_its_group(
    around: Surroundings,
) -> None:
    result = await shell(around, "setsid sleep 300 >/dev/null 2>&1 & echo done")
    assert (result["output"], result["exit_code"]) == ("done\n", 0)


async def test_a_cancelled_command_gets_its_grace_in_the_sandbox(around: Surroundings) -> None:
    script = "trap 'echo ended > gone; exit 0' TERM; touch ready; while :; do sleep 0.02; done"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shell, around, script)
        while not Path(around.cwd, "ready").exists():  # noqa: ASYNC110 - a file raises no event
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert Path(around.cwd, "gone").read_text() == "ended\n"


async def test_a_long_output_follows_no_link_that_the_command_has_made(
    around: Surroundings,
) -> None:
    own, target = Path(around.home, "workspaces", "a"), Path(around.home).parent / "target"
    target.mkdir()
    around = msgspec.structs.replace(around, cwd=str(own))
    result = await shell(around, f"ln -s {target} output; yes | head -c 200000")
    assert result["truncated"] is True
    assert "output_file" not in result
    assert not list(target.iterdir())


async def test_a_long_output_is_kept_where_the_agent_can_read_it(around: Surroundings) -> None:
    result = await shell(around, "yes | head -c 200000")
    path = str(result["output_file"])
    assert Path(path).stat().st_size == 200_000
    again = await shell(around, f"wc -c < {path}")
    assert again["output"] == "200000\n"


async def test_the_repository_and_other_agents_are_not_for_the_file_tools(
    around: Surroundings,
) -> None:
    def write(path: str) -> Prepared:
        prepared = BY_NAME["write_file"].prepare({"path": path, "content": "x"}, around)
        assert not isinstance(prepared, Failed)
        return prepared

    for path in (".git/config", f"{around.home}/workspaces/b/x", "/tmp/x"):
        with pytest.raises(ToolFailed) as caught:
            await write(path).run(CallId("call"))
        assert caught.value.code == "SANDBOX_DENIED"
    assert Path(around.cwd, ".git", "config").read_text() == "old"


async def test_what_is_hidden_is_not_even_listed(around: Surroundings) -> None:
    Path(around.home, "workspaces", "a", "mine").write_text("")
    prepared = BY_NAME["list_files"].prepare({"path": ".."}, around)
    assert not isinstance(prepared, Failed)
    found = str(await prepared.run(CallId("call")))
    assert "cookie" not in found
    folder = msgspec.structs.replace(around, cwd=around.own_folder)
    prepared = BY_NAME["list_files"].prepare({}, folder)
    assert not isinstance(prepared, Failed)
    assert "mine" in str(await prepared.run(CallId("call")))


async def test_an_approval_says_the_policy_and_what_holds_the_call_to_it(
    around: Surroundings,
) -> None:
    await trio.lowlevel.checkpoint()
    policy = ToolPolicy(around, make_rules("write", False, (), ()), Grants(set()))
    asked = policy.judge("shell", {"command": "ls"}, "")
    assert isinstance(asked, AskApproval)
    body = msgspec.json.decode(asked.body, type=dict[str, object])
    assert body["sandbox"] == "workspaceWrite"
    assert body["reason"] == f"sandbox: workspaceWrite, no network, held by {around.backend.name}"


async def test_a_link_put_in_after_the_path_was_looked_at_is_noticed(tmp_path: Path) -> None:
    await trio.lowlevel.checkpoint()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "x").write_text("secret")
    seen = tmp_path / "work"
    seen.symlink_to(secret)
    with pytest.raises(ToolFailed, match="changed"):
        open_regular(seen / "x")
    with pytest.raises(ToolFailed, match="changed"):
        replace_file(seen / "x", b"new")
    assert (secret / "x").read_text() == "secret"
    with (secret / "x").open() as file:
        check_opened(file.fileno(), secret / "x")


async def test_an_agent_as_shipped_runs_a_command_in_a_sandbox(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    agent = running_agent(
        home,
        sandbox="",
        backend=backend_of("bubblewrap"),
        unattended=True,
        allow=("*",),
        cwd=work,
    )
    async with agent as (rig, _):
        rig.store.accept("$ echo x > made; touch /etc/roost-x || echo kept")
        await rig.store.until_ended()
        (done,) = rig.store.find(event.ToolCallCompleted)
        assert "kept" in str(done)
        assert (work / "made").exists()
