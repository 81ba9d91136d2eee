"""One turn by its id: as it runs, as it is to begin, or as it has ended (T 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from roost.actors.errors import DaemonError
from roost.actors.front.thread_pages import decode_seen, read_turn_head
from roost.actors.threads.fold import Fold
from roost.schemas.base import SessionId
from roost.schemas.thread_log import FindTurn, FoundTurn, ItemEvents, ReadItems
from roost.schemas.thread_notifications import TurnCompleted
from roost.schemas.thread_results import AppTurn, InputText

if TYPE_CHECKING:
    from roost.actors.front.gateway import Gateway
    from roost.actors.front.services import Services


async def running_turn(services: Services, thread_id: str) -> AppTurn | None:
    """Return the open turn of a thread, if one has begun."""
    tail = services.threads.find(thread_id)
    if tail is not None and tail.fold.turn is not None:
        return tail.fold.turn.shown(thread_id)
    try:
        return await read_turn_head(services.store, thread_id)
    except DaemonError:
        return None


async def find_turn(services: Services, thread_id: str, turn_id: str) -> AppTurn | None:
    """Return a turn with what is known of it; None if nothing is, or any more."""
    running = await running_turn(services, thread_id)
    if running is not None and running.id == turn_id:
        return running
    request = FindTurn(session_id=SessionId(thread_id), turn_id=turn_id)
    try:
        found = await services.store.ask(request, FoundTurn)
        if found.first_sequence:
            return await _read_ended(services.store, thread_id, turn_id, found.first_sequence)
    except DaemonError:
        return None
    if not found.input:
        return None
    return AppTurn(
        id=turn_id,
        thread_id=thread_id,
        run_id=turn_id,
        status="queued",
        input=tuple(InputText(text=text) for text in found.input),
        model=found.model or UNSET,
    )


async def promised_turn(services: Services, thread_id: str, turn_id: str) -> AppTurn:
    """Return a turn that has not begun as of a moment before: what has become of it since is told later."""
    found = await find_turn(services, thread_id, turn_id)
    said = found.input if found is not None else ()
    model = found.model if found is not None else UNSET
    return AppTurn(
        id=turn_id,
        thread_id=thread_id,
        run_id=turn_id,
        status="queued",
        input=said,
        model=model,
    )


async def _read_ended(store: Gateway, thread_id: str, turn_id: str, first: int) -> AppTurn | None:
    """Return a turn out of the log, which is read from its first event to the one that ended it."""
    fold = Fold(thread_id)
    request = ReadItems(session_id=SessionId(thread_id), after=first - 1)
    while True:
        page = await store.ask_bulky(request, ItemEvents)
        for sequence, body in page.events:
            for told in fold.take(sequence, decode_seen(thread_id, sequence, body)):
                if isinstance(told, TurnCompleted) and told.turn.id == turn_id:
                    return told.turn
        if not page.next:
            turn = fold.turn
            return turn.shown(thread_id) if turn is not None and turn.id == turn_id else None
        request = ReadItems(session_id=SessionId(thread_id), after=page.next, upto=page.upto)
