"""Who is there while the thread door is fuzzed: a model that answers by what is said to it, and clients that want nothing of it."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from bench.daemon import Client, Refusal
from bench.thread_rules import MODELS
from bench.thread_schema import NotOfTheSchema
from tests.support import scripted_model as script
from tests.support.thread_client import Refused
from tests.support.turn_client import TurnClient

if TYPE_CHECKING:
    from tests.support.scripted_model import ScriptedModel, Stage

ANSWERS = (
    script.says("Do", "ne."),
    script.silent_after(script.delta(content="so far")),
    script.calls("write_file", '{"path":"a.md","content":"x"}'),
)


def kind_of(said: str) -> int:
    """Return what a model answers a text with: 0 a whole message, 1 the beginning of one, 2 a call."""
    return min(sum(said.encode()) % 5, 2)


def play(model: ScriptedModel) -> None:
    """Have the model answer by the last thing that was said to it."""
    listed = script.body(json.dumps({"data": [{"id": name} for name in MODELS]}).encode())

    async def answer(stage: Stage) -> None:
        if "chat/completions" not in stage.asked.line:
            await listed(stage)
            return
        last = json.loads(stage.asked.body)["messages"][-1]
        kind = kind_of(str(last["content"])) if last["role"] == "user" else 1
        await ANSWERS[kind](stage)

    model.play(answer)


class Bystander:
    """Two clients that have nothing to do with what is sent: their requests are answered all the time."""

    def __init__(self, path: str) -> None:
        self.pings = 0
        self.fault = ""
        self._ended = threading.Event()
        self._client = Client(path)
        self.follower = TurnClient(path)
        self.thread = self.follower.thread()
        self.follower.wait("thread/started")
        self.follower.heard.clear()
        self._task = threading.Thread(target=self._ping)
        self._task.start()

    def _ping(self) -> None:
        while not self._ended.wait(0.005):
            try:
                self._client.call("health.ping")
                page = self.follower.call("thread/read", threadId=self.thread)
            except (OSError, ValueError, Refusal, Refused, NotOfTheSchema) as error:
                self.fault = f"a bystander's request failed: {error!r}"
                return
            self.pings += 1
            if self.follower.heard or self.follower.asked or page["items"]:
                self.fault = f"a bystander hears {self.follower.heard[:3]}"
                return

    def close(self) -> str:
        """Stop; return what was wrong, or nothing."""
        self._ended.set()
        self._task.join()
        self._client.close()
        self.follower.close()
        return self.fault or ("" if self.pings else "no ping was answered")
