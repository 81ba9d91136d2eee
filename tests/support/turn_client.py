"""What tests of turns say and look for as a thread client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import trio

from tests.support.daemon import eventually
from tests.support.thread_client import Json, ThreadClient

if TYPE_CHECKING:
    import threading

    from tests.support.scripted_model import Answer, ScriptedModel, Stage


class TurnClient(ThreadClient):
    """One connection with words for turns."""

    def refused(self, method: str, **params: object) -> Json:
        """Return the error that a request is answered with."""
        error = self.refusal(method, **params)
        return {"code": error.code, "message": error.message, "data": error.data}

    def thread(self, **params: object) -> str:
        """Start a thread and return its id."""
        return str(inside(self.call("thread/start", **params), "thread")["id"])

    def begin(self, thread: str, *said: str, **params: object) -> str:
        """Start a turn and return its id."""
        pieces = [{"text": text} for text in said or ("go",)]
        answer = self.call("turn/start", threadId=thread, input=pieces, **params)
        return str(inside(answer, "turn")["id"])

    def completed(self, turn: str) -> Json:
        """Wait for the end of a turn and return the turn."""
        return inside(self.wait("turn/completed", lambda p: id_in(p) == turn), "turn")

    def outcome(self, number: int) -> Json:
        """Return the answer to a request, whatever it is."""
        while number not in self.answers:
            self.read()
        return self.answers.pop(number)

    def of_turn(self, turn: str) -> list[str]:
        """Return in order the names of what was told of a turn."""
        found: list[str] = []
        for note in self.heard:
            params = inside(note, "params")
            if turn in (params.get("turnId"), id_in(params), params.get("activeTurnId")):
                found.append(str(note["method"]))
        return found


def inside(message: Json, name: str) -> Json:
    """Return the object inside an object."""
    found: Json = message[name]  # type: ignore[assignment]
    return found


def id_in(params: Json) -> object:
    """Return the id of the turn that a notification is about as a whole."""
    turn = params.get("turn")
    return cast("Json", turn).get("id") if isinstance(turn, dict) else None


def brief(error: Json) -> tuple[object, object]:
    """Return the code of an error and the code in its data."""
    data = error.get("data")
    return error["code"], cast("Json", data).get("code") if isinstance(data, dict) else None


def gated(gate: threading.Event, answer: Answer) -> Answer:
    """Return an answer that begins when the gate is opened."""

    async def play(stage: Stage) -> None:
        while not gate.is_set():  # noqa: ASYNC110 (it is opened in another thread)
            await trio.sleep(0.005)
        await answer(stage)

    return play


def said_to(model: ScriptedModel) -> list[tuple[str, str]]:
    """Return role and text of the messages in the last request to the model, but for the system's."""
    chats = [asked for asked in model.asked if "chat/completions" in asked.line]
    messages = json.loads(chats[-1].body)["messages"]
    return [(each["role"], each["content"]) for each in messages if each["role"] != "system"]


def started(client: TurnClient, thread: str, model: ScriptedModel, *answers: Answer) -> str:
    """Start a turn whose model answers so, and return its id when the model has been asked."""
    model.play(*answers)
    before = len(model.asked)
    turn = client.begin(thread)
    eventually(lambda: len(model.asked) > before)
    return turn


def texts(items: list[Json], kind: str) -> list[object]:
    """Return the texts of the items of a type."""
    return [inside(item, "content")["text"] for item in items if item["type"] == kind]
