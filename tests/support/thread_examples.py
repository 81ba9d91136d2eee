"""Messages of the thread door as examples for `thread_walk`: what is the same in all of them, written once.

Events, sequences and times of one thread are numbered together: event `e3` has the sequence 3 and the time 3.
"""

from __future__ import annotations

from typing import cast

from tests.support.thread_walk import Json, OneOf

ARGUMENTS: Json = {"path": "a.md", "content": "x"}
PREVIEW = 'write_file {"path":"a.md","content":"x"}'
USED: Json = {"inputTokens": 7, "outputTokens": 1, "totalTokens": 8}


def thread(
    name: str = "th_a", /, *, created: object = 1, updated: object = 1, **further: object
) -> Json:
    """Return a thread that idles, unless told otherwise."""
    return {
        "id": name,
        "status": "idle",
        "archived": False,
        "ephemeral": False,
        "createdAtMs": created,
        "updatedAtMs": updated,
        **further,
    }


def turn(name: str, said: str, at: int, /, *, of: object = "th_a", **further: object) -> Json:
    """Return a turn that has begun at a time."""
    return {
        "id": name,
        "threadId": of,
        "runId": name,
        "status": "running",
        "input": [{"text": said}],
        "startedAtMs": at,
        "model": "m",
        **further,
    }


def accepted(name: str, *said: str, of: str = "th_a") -> Json:
    """Return the result of `turn/start`."""
    head: Json = {"id": name, "threadId": of, "runId": name}
    given = [{"text": text} for text in said]
    begun: Json = {**head, "status": "running", "input": given, "startedAtMs": 2, "model": "m"}
    return {"turn": OneOf({**head, "status": "queued", "input": given}, begun)}


def ended(name: str, said: str, at: int, end: int, /, **further: object) -> Json:
    """Return a turn that has ended."""
    return turn(name, said, at, completedAtMs=end, **further)


def note(method: str, sequence: int, /, *, of: object = "th_a", **params: object) -> Json:
    """Return a notification about a thread."""
    return {"method": method, "params": {"threadId": of, "sequence": sequence, **params}}


def status(sequence: int, active: str = "", *flags: str, of: str = "th_a") -> Json:
    """Return the notification that a thread idles, or runs a turn."""
    running: Json = {"activeTurnId": active} if active else {}
    if flags:
        running["activeFlags"] = list(flags)
    return note(
        "thread/status/changed",
        sequence,
        of=of,
        status="running" if active else "idle",
        **running,
    )


def item(kind: str, opened: int, last: int, in_turn: str, state: str, content: Json) -> Json:
    """Return an item that one event has opened and another one changed last."""
    shown: Json = {
        "id": f"item_e{opened}",
        "runEventId": f"e{last}",
        "type": kind,
        "status": state,
        "createdAtMs": opened,
        "content": content,
        "turnId": in_turn,
    }
    if state not in ("queued", "inProgress"):
        shown["completedAtMs"] = last
    if kind == "agentMessage":
        shown["text"] = content["text"]
    return shown


def user(at: int, in_turn: str, text: str, source: str = "turn") -> Json:
    """Return the item of what a person said."""
    content: Json = {"text": text, "source": source}
    return item("userMessage", at, at, in_turn, "completed", content)


def message(opened: int, last: int, in_turn: str, text: str, state: str = "completed") -> Json:
    """Return the item of what the agent said."""
    return item("agentMessage", opened, last, in_turn, state, {"text": text})


def call(opened: int, last: int, in_turn: str, state: str, /, **further: object) -> Json:
    """Return the item of a call of `write_file`."""
    content: Json = {
        "toolCallId": "call_a",
        "toolName": "write_file",
        "arguments": ARGUMENTS,
        **further,
    }
    return item("toolCall", opened, last, in_turn, state, content)


def request(opened: int, last: int, in_turn: str, state: str, **further: object) -> Json:
    """Return the item of a request for a decision on that call."""
    content: Json = {
        "requestId": f"apr_e{opened}",
        "toolCallId": "call_a",
        "toolName": "write_file",
        "preview": PREVIEW,
        "choices": ["allow", "deny"],
        "risk": "write",
        "arguments": ARGUMENTS,
        **further,
    }
    return item("approvalRequest", opened, last, in_turn, state, content)


def decision(at: int, asked: int, in_turn: str, word: str, **further: object) -> Json:
    """Return the item of a decision on that request."""
    content: Json = {
        "requestId": f"apr_e{asked}",
        "toolCallId": "call_a",
        "toolName": "write_file",
        "decision": word,
        **further,
    }
    return item("approvalResolved", at, at, in_turn, "completed", content)


def tells(which: str, of_item: Json, sequence: int, *, of: str = "th_a") -> Json:
    """Return `item/started` or `item/completed`."""
    return note(f"item/{which}", sequence, of=of, turnId=of_item["turnId"], item=of_item)


def both(of_item: Json, sequence: int, *, of: str = "th_a") -> list[Json]:
    """Return what is told of an item that is complete at once."""
    return [
        tells("started", of_item, sequence, of=of),
        tells("completed", of_item, sequence, of=of),
    ]


def begins(name: str, said: str, at: int, *, of: str = "th_a") -> list[Json]:
    """Return what is told of a turn that begins."""
    return [
        status(at, name, of=of),
        note("turn/started", at, of=of, turn=turn(name, said, at, of=of)),
        *both(user(at, name, said), at, of=of),
    ]


def speaks(name: str, text: str, opened: int, last: int, *, of: str = "th_a") -> list[Json]:
    """Return what is told of a message that comes in one piece."""
    return [
        tells("started", message(opened, opened, name, "", "inProgress"), opened, of=of),
        note(
            "item/agentMessage/delta",
            opened,
            of=of,
            turnId=name,
            itemId=f"item_e{opened}",
            delta=text,
        ),
        tells("completed", message(opened, last, name, text), last, of=of),
    ]


def ends(of_turn: Json, at: int) -> list[Json]:
    """Return what is told of the end of a turn."""
    of = str(of_turn["threadId"])
    return [status(at, of=of), note("turn/completed", at, of=of, turn=of_turn)]


def asks(opened: int, in_turn: str, *, of: str = "th_a") -> Json:
    """Return the params of `approval/requested` and of `approval/request`."""
    return cast(
        "Json",
        note(
            "approval/requested",
            opened,
            of=of,
            turnId=in_turn,
            requestId=f"apr_e{opened}",
            toolName="write_file",
            preview=PREVIEW,
            choices=["allow", "deny"],
            toolCallId="call_a",
            arguments=ARGUMENTS,
            risk="write",
        )["params"],
    )


def waits(in_turn: str, called: int, asked: int, *, of: str = "th_a") -> list[Json]:
    """Return what is told of a call that waits for a decision."""
    params = asks(asked, in_turn, of=of)
    return [
        tells("started", call(called, called, in_turn, "queued"), called, of=of),
        tells("started", request(asked, asked, in_turn, "inProgress"), asked, of=of),
        {"method": "approval/requested", "params": params},
        {"id": f"apr_e{asked}", "method": "approval/request", "params": params},
        status(asked, in_turn, "waitingOnApproval", of=of),
    ]


def decides(
    in_turn: str, asked: int, at: int, word: str, *flags: str, code: str = "", reason: str = ""
) -> list[Json]:
    """Return what is told of a decision, the last one that was waited for."""
    why: Json = {"reason": reason} if reason else {}
    how: Json = {"errorCode": code} if code else {}
    return [
        tells("completed", request(asked, at, in_turn, "completed", decision=word), at),
        *both(decision(at, asked, in_turn, word, **why, **how), at),
        note(
            "approval/resolved", at, turnId=in_turn, requestId=f"apr_e{asked}", decision=word, **why
        ),
        status(at, in_turn, *flags),
    ]


def refusal(number: object, code: int, text: object, /, **data: object) -> Json:
    """Return an answer that is an error."""
    error: Json = {"code": code, "message": text}
    if data:
        error["data"] = data
    return {"id": number, "error": error}
