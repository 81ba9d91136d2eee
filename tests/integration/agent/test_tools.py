"""The tools on real files, as the policy and the driver use them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
import trio

from roost.actors.agent.calls import Failed
from roost.actors.agent.effects import Allow, AskApproval, AskQuestion, Refuse
from roost.actors.agent.tools.results import ENCODED_BYTES, clip
from roost.actors.agent.tools.tool import Surroundings, ToolFailed
from roost.actors.agent.tools.toolbox import BY_NAME, ToolPolicy, find_tool, tool_specs
from roost.actors.command.leftovers import Leftovers
from roost.actors.session.approvals import Grants, make_rules
from roost.config.load import default_settings
from roost.schemas.base import CallId


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    (tmp_path / "home" / "workspaces" / "a").mkdir(parents=True)
    (tmp_path / "home" / "daemon.cookie").write_text("secret")
    (tmp_path / "work").mkdir()
    return Surroundings(
        agent_id="a",
        cwd=str(tmp_path / "work"),
        home=str(tmp_path / "home"),
        sandbox="workspaceWrite",
        env=os.environ,
        limits=default_settings().tools,
        leftovers=Leftovers(),
        rules=default_settings().sandbox,
    )


async def run(name: str, around: Surroundings, **args: object) -> dict[str, object]:
    prepared = BY_NAME[name].prepare(args, around)
    assert not isinstance(prepared, Failed), prepared
    with trio.fail_after(10):
        result = await prepared.run(CallId("call"))
    return msgspec.convert(result, dict[str, object])


async def test_a_file_is_written_read_and_edited(around: Surroundings) -> None:
    assert (await run("write_file", around, path="d/x", content="one\ntwo\n"))["created"] is True
    assert (await run("write_file", around, path="d/x", content="one\ntwo\n"))["created"] is False
    assert (await run("edit_file", around, path="d/x", old_text="two", new_text="2"))[
        "replaced"
    ] == 1
    found = await run("read_file", around, path="d/x")
    assert (found["content"], found["truncated"]) == ("one\n2\n", False)
    assert (await run("read_file", around, path="d/x", line=2, limit=1))["content"] == "2\n"
    assert [p.name for p in Path(around.cwd, "d").iterdir()] == ["x"]


async def test_a_rewritten_file_keeps_its_mode(around: Surroundings) -> None:
    path = Path(around.cwd, "x.sh")
    path.write_text("old")
    path.chmod(0o750)
    await run("write_file", around, path="x.sh", content="new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o750)


@pytest.mark.parametrize(("old", "code"), [("missing", "TEXT_NOT_FOUND"), ("a", "TEXT_NOT_UNIQUE")])
async def test_an_edit_must_be_clear(around: Surroundings, old: str, code: str) -> None:
    Path(around.cwd, "x").write_text("a a")
    with pytest.raises(ToolFailed) as caught:
        await run("edit_file", around, path="x", old_text=old, new_text="b")
    assert caught.value.code == code
    assert Path(around.cwd, "x").read_text() == "a a"
    assert (await run("edit_file", around, path="x", old_text="a", new_text="b", replace_all=True))[
        "replaced"
    ] == 2


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing", "FILE_NOT_FOUND"),
        (".", "NOT_A_FILE"),
        ("/dev/zero", "NOT_A_FILE"),
        ("pipe", "NOT_A_FILE"),
        ("../home/daemon.cookie", "SANDBOX_DENIED"),
        ("link", "SANDBOX_DENIED"),
        ("binary", "NOT_TEXT"),
    ],
)
async def test_what_cannot_be_read_is_said(around: Surroundings, path: str, code: str) -> None:
    os.mkfifo(Path(around.cwd, "pipe"))
    Path(around.cwd, "link").symlink_to(Path(around.home, "daemon.cookie"))
    Path(around.cwd, "binary").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(ToolFailed) as caught:
        await run("read_file", around, path=path)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("sandbox", "path", "allowed"),
    [
        ("workspaceWrite", "x", True),
        ("workspaceWrite", "../outside", False),
        ("workspaceWrite", "link/x", False),
        ("readOnly", "x", False),
        ("dangerFullAccess", "../outside", True),
    ],
)
async def test_writing_keeps_to_the_sandbox_policy(
    around: Surroundings, tmp_path: Path, sandbox: str, path: str, allowed: bool
) -> None:
    Path(around.cwd, "link").symlink_to(tmp_path)
    around = msgspec.structs.replace(around, sandbox=sandbox)
    if allowed:
        await run("write_file", around, path=path, content="x")
        return
    with pytest.raises(ToolFailed) as caught:
        await run("write_file", around, path=path, content="x")
    assert caught.value.code == "SANDBOX_DENIED"


async def test_of_a_large_file_head_and_tail_are_read(around: Surroundings) -> None:
    Path(around.cwd, "big").write_text("begin\n" + "x" * 1_000_000 + "\nend\n")
    found = await run("read_file", around, path="big")
    content = found["content"]
    assert isinstance(content, str)
    assert (found["truncated"], found["size"]) == (True, 1_000_011)
    assert content.startswith("begin\n")
    assert content.endswith("\nend\n")
    assert len(content) < 50_000


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("**/c.*", ["src/deep/c.py"]),
        ("*", ["a.py", "src/b.py", "src/note.txt", "src/deep/c.py"]),
        ("nothing", []),
    ],
)
async def test_files_are_found_by_pattern(
    around: Surroundings, pattern: str, files: list[str]
) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/note.txt", ".git/config"):
        path = Path(around.cwd, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert (await run("list_files", around, pattern=pattern))["files"] == files


async def test_a_long_list_is_cut(around: Surroundings) -> None:
    for number in range(5):
        Path(around.cwd, str(number)).touch()
    found = await run("list_files", around, limit=3)
    assert found == {"files": ["0", "1", "2"], "truncated": True}


def test_text_that_grows_as_json_is_cut_further() -> None:
    text, truncated = clip(b"\0" * 24_576, b"\0" * 24_576, 0)
    assert truncated
    assert len(msgspec.json.encode(text)) <= ENCODED_BYTES


@pytest.mark.parametrize(
    ("tool", "args", "path"),
    [
        ("shell", {}, "/command"),
        ("shell", {"command": 1}, "/command"),
        ("shell", {"command": "x", "timeout_s": 3601}, "/timeout_s"),
        ("shell", {"command": "x", "more": 1}, "/more"),
        ("ask_user", {"questions": []}, "/questions"),
        ("ask_user", {"questions": [{"question": "a"}] * 4}, "/questions"),
        ("ask_user", {"questions": [{"question": 1}]}, "/questions/0/question"),
        ("ask_user", {"questions": [{"question": "a", "isSecret": True}]}, "/questions"),
    ],
)
def test_wrong_arguments_are_named(
    around: Surroundings, tool: str, args: dict[str, object], path: str
) -> None:
    found = BY_NAME[tool].prepare(args, around)
    assert isinstance(found, Failed)
    assert (found.code, found.path) == ("INVALID_TOOL_ARGUMENTS", path)


def test_tools_are_found_by_their_aliases() -> None:
    names = {"shell": "system.bash", "read_file": "FileRead", "edit_file": "Edit"}
    for name, alias in names.items():
        assert find_tool(alias) is find_tool(name) is BY_NAME[name]
    assert find_tool("nothing") is None


def test_every_tool_shows_a_schema() -> None:
    for spec in tool_specs(make_rules("write", False, (), ())):
        schema = msgspec.json.decode(spec.schema, type=dict[str, object])
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert b"$ref" not in spec.schema


def test_the_policy_judges_calls(around: Surroundings) -> None:
    full = msgspec.structs.replace(around, sandbox="dangerFullAccess")
    policy = ToolPolicy(full, make_rules("write", False, (), ()), Grants(set()))
    assert policy.judge("read_file", {"path": "x"}, "") == Allow()
    asked = policy.judge("shell", {"command": "ls"}, "")
    assert isinstance(asked, AskApproval)
    assert asked.risk == "external_effect"
    assert b"dangerFullAccess" in asked.body
    assert isinstance(policy.judge("ask_user", {"questions": [{"question": "?"}]}, ""), AskQuestion)
    refused: list[tuple[str, dict[str, object], str]] = [
        ("nothing", {}, ""),
        ("shell", {}, ""),
        ("shell", {"command": "x"}, "invalid JSON"),
    ]
    for tool, args, fault in refused:
        assert isinstance(policy.judge(tool, args, fault), Refuse)
