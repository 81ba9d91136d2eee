"""What a request of the thread door must be answered with: by the contract's schema, and by the state of what it names (T 1.6, 3).

`Threads` is told of every answer and notification, and says of the next request which outcomes are right. Where an answer and
the daemon's own doing race (a turn that is ending, one that ends by itself), several are.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import jsonschema_rs
import msgspec

from roost.schemas.thread_export import client_request

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, object]
OK = "result"
MODELS = ("m", "big")
INVALID = "-32602 invalidParams"
EMPTY = "-32602 emptyInput"
NOT_FOUND, ARCHIVED = "-32020 threadNotFound", "-32021 threadArchived"
IDLE, OTHER = "-32030 noActiveTurn", "-32031 turnIdMismatch"
BUSY = "-32602 turnInProgress"
UNKNOWN_MODEL = "-32602 unknownModel"
NO_REQUEST, DECIDED = "-32602 approvalNotFound", "-32602 approvalAlreadyResolved"
_MAX_INT64 = 2**63 - 1
# They need no params, so that null or none is as good as empty (T 1.6).
_OPTIONAL = ("thread/start", "thread/list", "model/list", "schema/export", "initialized")


def contract() -> Json:
    """Return the contract of requests if ROOST_CONTRACTS names a folder with it, else the exported schema."""
    folder = os.environ.get("ROOST_CONTRACTS") or "/nonexistent"
    file = Path(folder) / "seeds" / "thread-client-request.schema.json"
    text = file.read_bytes() if file.exists() else json.dumps(client_request())
    found: Json = json.loads(text)
    return found


def with_ids(schema: Json) -> Json:
    """Return the schema as `schema_cases` reads one: requests have an id, and what they are made of is in `definitions`."""
    requests: list[Json] = []
    for one in cast("list[Json]", schema["oneOf"]):
        members = {"id": {"type": ["string", "integer"]}, **cast("Json", one["properties"])}
        required = [*cast("list[str]", one["required"]), "id"]
        requests.append({**one, "properties": members, "required": required})
    return {"oneOf": [{"oneOf": requests}], "definitions": schema["$defs"]}


def envelope(message: Json) -> int | None:
    """Return the code of what is no message at all, 0 for what gets no answer, None for a request (T 1.1)."""
    if "id" in message and not _is_id(message["id"]):
        return -32600
    if "method" in message:
        if not isinstance(message["method"], str):
            return -32600
        return None if "id" in message else 0
    return 0 if "id" in message and ("result" in message or "error" in message) else -32600


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return True
    return type(value) is int and -_MAX_INT64 - 1 <= value <= _MAX_INT64


class Shapes:
    """The schema's word on a request, and where the protocol's text goes beyond it."""

    def __init__(self, schema: Json) -> None:
        self._validator = jsonschema_rs.Draft202012Validator(schema)
        self.methods = {
            str(cast("dict[str, Json]", one["properties"])["method"]["const"])
            for one in cast("list[Json]", schema["oneOf"])
        }

    def takes(self, message: Json) -> bool:
        """Return whether the params of a request with a known method are right."""
        method = str(message["method"])
        params = message.get("params")
        if method == "initialized":
            return True
        if method == "schema/export":
            return params is None or params == {}
        empty: Json = {}
        if params is None and method in _OPTIONAL:
            params = empty
        shown: Json = {"method": method} if params is None else {"method": method, "params": params}
        return self._validator.is_valid(shown)


class Turn(msgspec.Struct):
    """A turn that was accepted. `ending`: it may end, or have ended; `begun`: it was told of."""

    id: str
    said: list[str]
    ending: bool = False
    begun: bool = False
    decided: bool = False


class Thread(msgspec.Struct):
    """A thread that was made; `shaky` if its turns may fail by themselves."""

    id: str
    ephemeral: bool = False
    shaky: bool = False
    archived: bool = False
    turn: Turn | None = None
    turns: list[Turn] = []
    asked: dict[str, tuple[str, str]] = {}
    """The turn and the decision (nothing while it waits) of each request for one."""


class Threads:
    """All threads as the client knows them. `ends` says of the text of a turn whether the turn ends by itself."""

    def __init__(self, ends: Callable[[str], bool]) -> None:
        self.all: dict[str, Thread] = {}
        self.others = {False: 0, True: 0}
        """How many threads there are that somebody else has made: not archived, and archived."""
        self.ended: dict[str, str] = {}
        self.decided: dict[str, str] = {}
        """What an answer has said of requests for a decision, told or not."""
        self._ends = ends
        self._rules: dict[str, Callable[[Json], set[str]]] = {
            "thread/start": self._start,
            "thread/resume": self._exists,
            "thread/read": self._exists,
            "thread/archive": self._exists,
            "turn/start": self._turn,
            "turn/steer": self._steer,
            "turn/interrupt": self._interrupt,
            "approval/resolve": self._resolve,
        }

    def outcomes(self, method: str, params: Json) -> set[str]:
        """Return the right outcomes of a request whose shape is right."""
        if method == "initialize":
            return {"-32011"}
        rule = self._rules.get(method)
        return rule(params) if rule is not None else {OK}

    def find(self, params: Json) -> Thread | None:
        """Return the thread that is named, if there is one."""
        thread = self.all.get(str(params["threadId"]))
        return None if thread is None or (thread.archived and thread.ephemeral) else thread

    def counts(self) -> tuple[int, int]:
        """Return how many threads are not archived, and how many are."""
        live = [t for t in self.all.values() if not t.archived]
        archived = [t for t in self.all.values() if t.archived and not t.ephemeral]
        return self.others[False] + len(live), self.others[True] + len(archived)

    def _start(self, params: Json) -> set[str]:
        return {OK} if _knows(params) else {UNKNOWN_MODEL}

    def _exists(self, params: Json) -> set[str]:
        return {OK} if self.find(params) is not None else {NOT_FOUND}

    def _turn(self, params: Json) -> set[str]:
        if not any(texts(params)):
            return {EMPTY}
        thread = self.find(params)
        if thread is None or thread.archived:
            return {NOT_FOUND if thread is None else ARCHIVED}
        free = {OK} if _knows(params) else {UNKNOWN_MODEL}
        if thread.turn is None:
            return free
        return {BUSY, *free} if thread.turn.ending else {BUSY}

    def _steer(self, params: Json) -> set[str]:
        return self._of_turn(params) if any(texts(params)) else {EMPTY}

    def _interrupt(self, params: Json) -> set[str]:
        return self._of_turn(params)

    def _of_turn(self, params: Json) -> set[str]:
        thread = self.find(params)
        if thread is None:
            return {NOT_FOUND}
        if thread.turn is None:
            return {IDLE}
        right = {OK} if thread.turn.id == params["turnId"] else {OTHER}
        return {IDLE, *right} if thread.turn.ending else right

    def _resolve(self, params: Json) -> set[str]:
        thread = self.find(params)
        if thread is None:
            return {NOT_FOUND}
        turn, decision = thread.asked.get(str(params["requestId"]), ("", ""))
        if turn != params["turnId"] or not turn:
            return {NO_REQUEST}
        decision = decision or self.decided.get(str(params["requestId"]), "")
        if decision:
            return {OK} if decision == params["decision"] else {DECIDED}
        ending = thread.turn is None or thread.turn.ending
        return {OK, DECIDED} if ending else {OK}

    def answered(self, method: str, params: Json, result: Json) -> str:
        """Take a result; return what is wrong with it, or nothing."""
        thread = self.all.get(str(params.get("threadId")))
        match method:
            case "thread/start":
                return self._started(params, cast("Json", result["thread"]))
            case "thread/archive" if thread is not None:
                thread.archived, thread.turn = True, None
            case "turn/start" if thread is not None:
                return self._began(thread, params, cast("Json", result["turn"]))
            case "turn/steer" if thread is not None and thread.turn is not None:
                thread.turn.said.append("\n".join(texts(params)))
                thread.turn.ending |= thread.turn.decided or self._waits(thread)
            case "turn/interrupt" if thread is not None and thread.turn is not None:
                thread.turn.ending = True
            case "approval/resolve":
                self.decided[str(params["requestId"])] = str(params["decision"])
            case "thread/list":
                return self._listed(params, result)
            case _:
                pass
        return ""

    def told(self, method: str, params: Json) -> str:
        """Take a notification or a request of the daemon; return what is wrong with it, or nothing."""
        thread = self.all.get(str(params.get("threadId")))
        if thread is None:
            return "" if method == "thread/started" else "of a thread that this client did not make"
        named = cast("Json", params.get("turn") or {}).get("id", params.get("turnId"))
        turn = next((one for one in thread.turns if one.id == named), None)
        match method:
            case "turn/started":
                if turn is None or turn.begun:
                    return "a turn begins that was not asked for, or twice"
                turn.begun = True
            case "turn/completed":
                return self._completed(thread, cast("Json", params["turn"]))
            case "approval/requested":
                thread.asked[str(params["requestId"])] = (str(params["turnId"]), "")
            case "approval/resolved":
                asked = str(params["requestId"])
                if thread.asked[asked][1]:
                    return "decided twice"
                if self.decided.get(asked, params["decision"]) != params["decision"]:
                    return "decided in another way than was answered"
                thread.asked[asked] = (str(params["turnId"]), str(params["decision"]))
                if turn is not None:
                    turn.decided = True
                    turn.ending |= len(turn.said) > 1
            case _:
                pass
        return ""

    def _waits(self, thread: Thread) -> bool:
        return any(not decision for _, decision in thread.asked.values())

    def _started(self, params: Json, made: Json) -> str:
        shaky = params.get("cwd") not in (None, "/tmp")
        ephemeral = bool(params.get("ephemeral", False))
        thread = Thread(id=str(made["id"]), ephemeral=ephemeral, shaky=shaky)
        if thread.id in self.all:
            return "an id is used again"
        self.all[thread.id] = thread
        given = {n: params[n] for n in ("title", "cwd", "model") if params.get(n) is not None}
        if not given.get("model", "x"):
            del given["model"]
        shown = {name: made[name] for name in ("title", "cwd", "model") if name in made}
        return "" if shown == given and made["ephemeral"] is ephemeral else "not as asked for"

    def _began(self, thread: Thread, params: Json, made: Json) -> str:
        said = "\n".join(texts(params))
        turn = Turn(id=str(made["id"]), said=[said], ending=thread.shaky or self._ends(said))
        if thread.turns and thread.turns[-1].id == turn.id:
            return "a turn's id is used again"
        thread.turn = turn
        thread.turns.append(turn)
        return "" if made["input"] == [{"text": text} for text in texts(params)] else "other input"

    def _completed(self, thread: Thread, ended: Json) -> str:
        turn_id = str(ended["id"])
        if turn_id in self.ended:
            return "a turn ends twice"
        self.ended[turn_id] = str(ended["status"])
        if any(turn == turn_id and not word for turn, word in thread.asked.values()):
            return "a turn ends and still asks"
        if ended["status"] == "failed" and not thread.shaky:
            return "a turn fails"
        if thread.turn is not None and thread.turn.id == turn_id:
            if not thread.turn.ending:
                return "" if thread.archived else "a turn ends that nobody ended"
            thread.turn = None
        return ""

    def _listed(self, params: Json, result: Json) -> str:
        wanted, both = params.get("archived"), bool(params.get("includeArchived", False))
        live, archived = self.counts()
        total = archived if wanted else live if wanted is False or not both else live + archived
        offset = min(int(cast("float", params.get("offset") or 0)), _MAX_INT64)
        limit = params.get("limit")
        most = 1000 if limit is None else min(int(cast("float", limit)), 1000)
        rows = cast("list[Json]", result["threads"])
        if result["total"] != total:
            return f"total is {result['total']}, not {total}"
        return "" if len(rows) == max(0, min(most, total - offset)) else f"{len(rows)} rows"


def texts(params: Json) -> list[str]:
    """Return what is said."""
    return [str(one["text"]) for one in cast("list[Json]", params["input"])]


def _knows(params: Json) -> bool:
    return (params.get("model") or MODELS[0]) in MODELS


def outcome(answer: Json) -> str:
    """Return in one word what an answer is: `result`, or the code and the code in its data."""
    error = answer.get("error")
    if not isinstance(error, dict):
        return OK
    members = cast("Json", error)
    data = members.get("data")
    word = cast("Json", data).get("code", "") if isinstance(data, dict) else ""
    return f"{members['code']} {word}".strip()
