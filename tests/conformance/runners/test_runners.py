"""What every runner must do, whatever is behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
import pytest
import trio
import trio.testing

from roost.actors.agent.runner import CallResult, Runner, RunnerFailed
from roost.actors.agent.runners.llm import LlmRunner
from roost.actors.agent.runners.script import ScriptRunner
from roost.actors.session.approvals import Rules
from roost.schemas.base import Message, Refused
from roost.schemas.model import ChatMessage, ModelAnswer, ToolCall
from tests.support.runners import FakeHistory, FakeModels, FakeSink, Gone, Hanging

RESULT = (CallResult("c1", "shell", {"command": "ls"}, {"output": "x", "exit_code": 0}),)


class Case(ABC):
    """Makes a runner that is about to do something."""

    @abstractmethod
    def says(self, text: str) -> Runner: ...

    @abstractmethod
    def calls_then_says(self, text: str) -> Runner: ...

    @abstractmethod
    def fails(self) -> Runner: ...

    @abstractmethod
    def hangs_after(self, text: str) -> Runner: ...


class Script(Case):
    def _runner(self, *steps: object) -> Runner:
        return ScriptRunner(msgspec.json.encode({"script": steps}), "")

    def says(self, text: str) -> Runner:
        return self._runner({"say": text, "chunks": 7})

    def calls_then_says(self, text: str) -> Runner:
        return self._runner({"tool": "shell", "args": {"command": "ls"}}, {"say": text})

    def fails(self) -> Runner:
        return self._runner({"fail": "it failed"})

    def hangs_after(self, text: str) -> Runner:
        return self._runner({"say": text}, {"hang": True})


def llm(models: FakeModels) -> LlmRunner:
    history = FakeHistory(ChatMessage(role="user", content="hello"))
    return LlmRunner(
        models, history, provider="p", model="m", cwd="/srv/project", rules=Rules(), timeout=60
    )


class Llm(Case):
    def says(self, text: str) -> Runner:
        return llm(FakeModels(ModelAnswer(text=text)))

    def calls_then_says(self, text: str) -> Runner:
        call = ToolCall(id="their-id", name="shell", arguments='{"command": "ls"}')
        return llm(FakeModels(ModelAnswer(text="", tool_calls=(call,)), ModelAnswer(text=text)))

    def fails(self) -> Runner:
        return llm(FakeModels(Refused(code="PROVIDER_AUTH_ERROR", message="it failed")))

    def hangs_after(self, text: str) -> Runner:
        return llm(FakeModels(Hanging(text)))


@pytest.fixture(params=[Script, Llm], ids=["script", "llm"])
def case(request: pytest.FixtureRequest) -> Case:
    made = request.param()
    assert isinstance(made, Case)
    return made


async def test_what_is_streamed_is_the_text_of_the_step(case: Case) -> None:
    sink = FakeSink()
    thought = await case.says("the whole answer").think((), sink)
    assert "".join(sink.pieces) == thought.text == "the whole answer"
    assert thought.calls == ()


async def test_a_call_is_asked_for_and_the_next_step_goes_on(case: Case) -> None:
    runner = case.calls_then_says("done")
    first = await runner.think((), FakeSink())
    assert [(call.name, call.args, call.fault) for call in first.calls] == [
        ("shell", {"command": "ls"}, "")
    ]
    second = await runner.think(RESULT, FakeSink())
    assert (second.text, second.calls) == ("done", ())


async def test_a_failure_is_one_that_people_can_read(case: Case) -> None:
    with pytest.raises(RunnerFailed, match="it failed") as caught:
        await case.fails().think((), FakeSink())
    assert caught.value.code


async def test_cancelled_it_stops_at_once_and_says_nothing_more(case: Case) -> None:
    sink = FakeSink()
    runner = case.hangs_after("so far")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.think, (), sink)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert "".join(sink.pieces) == "so far"


async def test_a_script_goes_on_from_its_state_in_a_new_runner() -> None:
    metadata = msgspec.json.encode(
        {"script": [{"say": "a"}, {"tool": "shell", "args": {"command": "ls"}}, {"say": "b"}]}
    )
    first = await ScriptRunner(metadata, "").think((), FakeSink())
    second = await ScriptRunner(metadata, "", first.state).think(RESULT, FakeSink())
    assert (first.text, second.text) == ("a", "b")


async def test_a_line_of_a_message_reports_its_result_in_a_new_runner() -> None:
    first = await ScriptRunner(b"{}", "$ ls").think((), FakeSink())
    second = await ScriptRunner(b"{}", "$ ls", first.state).think(RESULT, FakeSink())
    assert second.text == "x\nexit code 0\n"


async def test_a_script_with_an_unknown_tool_fails_before_it_does_anything() -> None:
    metadata = msgspec.json.encode({"script": [{"say": "a"}, {"tool": "nothing"}]})
    sink = FakeSink()
    with pytest.raises(RunnerFailed, match="there is no tool 'nothing'"):
        await ScriptRunner(metadata, "").think((), sink)
    assert sink.pieces == []


async def test_many_pieces_let_others_run_now_and_then() -> None:
    metadata = msgspec.json.encode({"script": [{"say": "x" * 1000, "chunks": 1000}]})
    sink = FakeSink()
    await ScriptRunner(metadata, "").think((), sink)
    assert len(sink.pieces) == 1000
    assert 20 < sink.rooms < 100


async def test_pieces_come_at_their_interval(autojump_clock: trio.testing.MockClock) -> None:
    metadata = msgspec.json.encode(
        {"script": [{"say": "x" * 10, "chunks": 10, "interval_ms": 100}]}
    )
    start = trio.current_time()
    await ScriptRunner(metadata, "").think((), FakeSink())
    assert trio.current_time() - start == pytest.approx(0.9)


async def test_a_model_is_asked_with_its_tools_and_the_conversation() -> None:
    models = FakeModels(ModelAnswer(text="hi", input_tokens=3, output_tokens=4))
    thought = await llm(models).think((), FakeSink())
    (asked,) = models.asked
    assert (asked.provider, asked.model) == ("p", "m")
    assert [message.role for message in asked.messages] == ["system", "user"]
    assert "/srv/project" in asked.messages[0].content
    assert {tool.name for tool in asked.tools} >= {"shell", "read_file", "ask_user"}
    assert (thought.input_tokens, thought.output_tokens) == (3, 4)


async def test_a_lost_service_is_asked_again_if_nothing_had_come() -> None:
    models = FakeModels(Gone(), ModelAnswer(text="hi"))
    assert (await llm(models).think((), FakeSink())).text == "hi"
    assert [asked.stream for asked in models.asked] == [1, 2]


@pytest.mark.parametrize(
    ("answers", "phase", "tries"),
    [((Gone("some"),), "provider_stream", 1), ((Gone(), Gone()), "provider_open", 2)],
)
async def test_a_service_that_stays_lost_fails_the_turn_which_may_be_retried(
    answers: tuple[Message | Gone, ...], phase: str, tries: int
) -> None:
    models = FakeModels(*answers)
    with pytest.raises(RunnerFailed) as caught:
        await llm(models).think((), FakeSink())
    assert (caught.value.code, caught.value.phase) == ("PROVIDER_NETWORK_ERROR", phase)
    assert caught.value.retryable
    assert len(models.asked) == tries


async def test_a_model_without_an_answer_in_time_fails_the_turn() -> None:
    with pytest.raises(RunnerFailed) as caught:
        await llm(FakeModels(Gone(slow=True))).think((), FakeSink())
    assert caught.value.code == "PROVIDER_TIMEOUT"


async def test_arguments_that_are_no_json_are_passed_on_as_a_fault() -> None:
    call = ToolCall(id="1", name="shell", arguments="{oops")
    thought = await llm(FakeModels(ModelAnswer(text="", tool_calls=(call,)))).think((), FakeSink())
    assert thought.calls[0].fault == "invalid JSON"


async def test_more_than_64_calls_at_once_are_refused() -> None:
    calls = (ToolCall(id="1", name="shell", arguments="{}"),) * 65
    with pytest.raises(RunnerFailed) as caught:
        await llm(FakeModels(ModelAnswer(text="", tool_calls=calls))).think((), FakeSink())
    assert caught.value.code == "PROVIDER_OUTPUT_LIMIT"
