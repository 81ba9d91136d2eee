"""The tool `ask_user`: its call is a question that a person answers; nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from roost.actors.agent.tools.tool import (
    Arguments,
    Surroundings,
    Tool,
    ToolFailed,
    invalid_arguments,
)

if TYPE_CHECKING:
    from roost.actors.agent.calls import Failed
    from roost.config.model import Tools
    from roost.schemas.base import CallId
    from roost.schemas.event import JsonObject

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]


class Option(Arguments, frozen=True, kw_only=True):
    """One answer to choose."""

    label: Text
    description: str = ""


class Question(Arguments, frozen=True, kw_only=True):
    """One question; without options it is answered in free text."""

    question: Text
    id: str = ""
    header: str = ""
    isOther: bool = True
    isSecret: bool = False
    options: Annotated[list[Option], msgspec.Meta(min_length=2, max_length=3)] | None = None


class AskUserArguments(Arguments, frozen=True, kw_only=True):
    """One to three questions."""

    questions: Annotated[list[Question], msgspec.Meta(min_length=1, max_length=3)]


class AskUser(Tool[AskUserArguments]):
    """Asks the user."""

    name = "ask_user"
    description = "Ask the user one to three questions and wait for the answers."
    arguments = AskUserArguments

    async def run(
        self, call_id: CallId, arguments: AskUserArguments, around: Surroundings
    ) -> object:
        """Never runs: the answer is its result."""
        raise ToolFailed("TOOL_EXECUTION_FAILED", "A question has no handler")

    def timeout(self, arguments: AskUserArguments, limits: Tools) -> float:
        """Return that there is none."""
        return 0.0

    def question(self, arguments: AskUserArguments) -> bytes:
        """Return the questions as clients are shown them."""
        return _body(arguments)

    def read(self, args: JsonObject) -> AskUserArguments | Failed:
        """Return the questions; secret ones are refused when they are asked."""
        found = super().read(args)
        if isinstance(found, AskUserArguments) and any(q.isSecret for q in found.questions):
            return invalid_arguments("secret questions are not supported", "/questions")
        return found


def _body(arguments: AskUserArguments) -> bytes:
    """Return the questions as JSON, each with an id of its own."""
    questions: list[JsonObject] = []
    for number, asked in enumerate(arguments.questions, 1):
        shown: JsonObject = {
            "id": asked.id or f"q{number}",
            "header": asked.header,
            "question": asked.question,
            "isOther": True,
            "isSecret": False,
        }
        if asked.options is not None:
            shown["options"] = [
                {"label": option.label, "description": option.description}
                for option in asked.options
            ]
        questions.append(shown)
    return msgspec.json.encode({"questions": questions})
