"""Carries out what has come in: a group of writes as one transaction, and reads between two of them."""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from roost.actors.errors import DaemonError, Internal
from roost.actors.store.calls import Calls
from roost.actors.store.capacity import Capacity
from roost.actors.store.catalogue import Catalogue
from roost.actors.store.changes import INCOMPATIBLE, Refusal
from roost.actors.store.conversation import Conversations
from roost.actors.store.database import (
    is_corrupt,
    is_disk_error,
    is_no_text,
    read_meta,
    take_any_text,
)
from roost.actors.store.drafts import Drafts
from roost.actors.store.effects import Effects
from roost.actors.store.imports import Imports
from roost.actors.store.inbox import Inboxes
from roost.actors.store.items import ItemReads
from roost.actors.store.journal import Journal
from roost.actors.store.ledger import Ledger
from roost.actors.store.lifecycle import Lifecycle
from roost.actors.store.messages import Messages
from roost.actors.store.reads import Reads
from roost.actors.store.remains import Remains
from roost.actors.store.repair import Repairs
from roost.actors.store.requests import Requests
from roost.actors.store.retention import Retention
from roost.actors.store.steering import Steering
from roost.actors.store.totals import Totals
from roost.actors.store.turns import Turns
from roost.schemas import agent, approval, archive, session, thread_log, turn
from roost.schemas.base import Done, Message
from roost.schemas.control import ChildReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.config.model import Settings

DAMAGED_TEXT: Final = "the store's file is damaged in a place that this needs"

_log = logging.getLogger(__name__)


class Disturbed(Exception):
    """An item failed after it had written something; its group is done again one by one."""


class Item(msgspec.Struct, frozen=True):
    """Something to write; `agent_id` says which agent sent it, "" that it is the front's or root's."""

    agent_id: str
    message: Message


class Result(NamedTuple):
    """What became of a group, and what it causes.

    There is an answer for each item that was carried out (a draft's sequence or refusal); where the disk failed there
    are fewer answers than items, and the error.
    """

    answers: list[Message | int | Refusal]
    effects: Effects
    error: sqlite3.Error | None = None


class Desk:
    """The store's state and everything that can be asked of it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        settings: Settings,
        *,
        clock: Callable[[], float],
        check_room: Callable[[], None],
        is_running: Callable[[str], bool],
    ) -> None:
        self.journal = Journal(connection, clock)
        catalogue = Catalogue(connection)
        capacity = Capacity(settings.store)
        ledger = Ledger(self.journal, settings.store.ledger_entries)
        lifecycle = Lifecycle(self.journal, catalogue, Turns(connection), ledger, capacity)
        self._lifecycle = lifecycle
        event_bytes = settings.limits.event_bytes
        self.catalogue = catalogue
        self.repairs = Repairs(lifecycle)
        self._drafts = Drafts(lifecycle, self.repairs, event_bytes)
        self._messages = Messages(
            lifecycle,
            check_room,
            max_queued=settings.limits.queued_messages,
            max_event_bytes=event_bytes,
        )
        self._steering = Steering(lifecycle, self._messages)
        self._requests = Requests(lifecycle, self._messages, self.repairs, check_room, is_running)
        self._calls = Calls(lifecycle, self._messages)
        self._inboxes = Inboxes(lifecycle)
        self.imports = Imports(lifecycle, check_room)
        self._on_damage: Callable[[BaseException, bool], None] = lambda error, writing: None
        epoch = read_meta(connection, "epoch")
        self._totals = Totals(connection)
        self.journal.on_appended = self._totals.grow
        self._reads = Reads(lifecycle, epoch)
        self._conversations = Conversations(lifecycle, epoch)
        self._items = ItemReads(lifecycle)
        self.retention = Retention(lifecycle, settings.retention, self.tidy)
        lifecycle.on_ephemeral_closed = self.retention.drop_soon
        # Told when there may be a further ephemeral session; its transaction may still fail.
        self.on_ephemeral: Callable[[], None] = lambda: None
        self.ephemeral_sessions = Remains(connection).live_ephemeral

    def configure(self, settings: Settings) -> None:
        """Take over the bounds of new settings, but for those of retention."""
        limits = settings.limits
        self._lifecycle.capacity.configure(settings.store)
        self._lifecycle.ledger.max_entries = settings.store.ledger_entries
        self._drafts.set_bound(limits.event_bytes)
        self._messages.set_bounds(limits.queued_messages, limits.event_bytes)

    def recount(self) -> None:
        """Count anew, in the transaction under way, how many events there are: counters have been put right."""
        self._totals.recount()

    def heed(self, on_damage: Callable[[BaseException, bool], None]) -> None:
        """Have the function told of damage that is met, and whether it was in a write; what it raises is let through."""
        self._on_damage = on_damage
        self._reads.met_damage = lambda error: on_damage(error, False)
        self._conversations.met_damage = self._items.met_damage = self._reads.met_damage

    def write(self, items: Sequence[Item]) -> Result:
        """Carry out a group durably, all of it but for what is refused; nothing of it if the disk does not take it."""
        try:
            try:
                return self._write_group(items)
            except sqlite3.IntegrityError:
                self.journal.rollback()
                return self._write_group(items, resent=True)
        except sqlite3.Error as error:
            self.journal.rollback()
            if is_disk_error(error):
                return Result([], Effects(), error)
            if is_corrupt(error):
                self._on_damage(error, True)
            elif is_no_text(error):
                take_any_text(self.journal.db)
            _log.exception("a group of %d failed", len(items))
        except Disturbed:
            self.journal.rollback()
        except Exception:  # noqa: BLE001 # a bug in one request must not take the others with it
            self.journal.rollback()
            _log.exception("a group of %d failed", len(items))
        return self._write_singly(items)

    def note_crash(self, agent_id: str, reason: str) -> None:
        """Hear that an agent's process has ended in a crash, and will be started again."""
        self._inboxes.note_crash(agent_id, reason)

    def transact(self, action: Callable[[], None]) -> Effects:
        """Carry out an action of the store's own durably, or (when it raises) not at all."""
        self.journal.begin()
        try:
            action()
            return self.journal.commit()
        except BaseException:
            self.journal.rollback()
            raise

    def remove_import_slice(self) -> bool:
        """Remove some of what is left of imports that were broken off; return whether there may be more."""
        more = False

        def remove() -> None:
            nonlocal more
            more = self.imports.remove_slice()

        self.transact(remove)
        return more

    def tidy(self, action: Callable[[], None]) -> Effects:
        """Carry out what may be undone by a power cut; it is on the disk with the next group at the latest."""
        db = self.journal.db
        db.execute("pragma synchronous = normal")
        try:
            return self.transact(action)
        except sqlite3.Error as error:
            if is_corrupt(error):
                self._on_damage(error, False)
            raise
        finally:
            db.execute("pragma synchronous = full")

    def read(self, agent_id: str, message: Message) -> Message:
        """Answer a call that writes nothing."""
        try:
            return self._read(agent_id, message)
        except DaemonError as error:
            return error.refused()
        except sqlite3.Error as error:
            if is_no_text(error) and self.journal.db.text_factory is str:
                take_any_text(self.journal.db)
                return self.read(agent_id, message)
            _log.exception("%s failed", type(message).__name__)
            if is_corrupt(error):
                self._on_damage(error, False)
                return DaemonError(INCOMPATIBLE, DAMAGED_TEXT).refused()
            return Internal().refused()
        except Exception:  # noqa: BLE001 # likewise
            _log.exception("%s failed", type(message).__name__)
            return Internal().refused()

    def _write_group(self, items: Sequence[Item], *, resent: bool = False) -> Result:
        self.journal.begin()
        self._prepare(items, resent=resent)
        db = self.journal.db
        answers: list[Message | int | Refusal] = []
        for item in items:
            message = item.message
            if isinstance(message, turn.Draft):
                answers.append(self._drafts.take(item.agent_id, message))
                continue
            before = db.total_changes, self.journal.waiting
            try:
                answers.append(self._request(item.agent_id, message))
            except DaemonError as error:
                if before != (db.total_changes, self.journal.waiting):
                    raise Disturbed from error
                answers.append(error.refused())
        return Result(answers, self.journal.commit())

    def _write_singly(self, items: Sequence[Item]) -> Result:
        """Do a group again, each item by itself, so that the one at fault fails alone."""
        answers: list[Message | int | Refusal] = []
        effects = Effects()
        for item in items:
            try:
                self.journal.begin()
                self._prepare([item], resent=True)
                answer = self._one(item)
                caused = self.journal.commit()
            except DaemonError as error:
                self.journal.rollback()
                answers.append(error.refused())
            except sqlite3.Error as error:
                self.journal.rollback()
                if is_disk_error(error):
                    return Result(answers, effects, error)
                answers.append(_fault(item, error))
            except Exception as error:  # noqa: BLE001 # likewise
                self.journal.rollback()
                answers.append(_fault(item, error))
            else:
                answers.append(answer)
                effects.extend(caused)
        return Result(answers, effects)

    def _prepare(self, items: Sequence[Item], *, resent: bool) -> None:
        drafts = [each.message for each in items if isinstance(each.message, turn.Draft)]
        self._drafts.prepare(drafts, resent=resent)

    def _one(self, item: Item) -> Message | int | Refusal:
        if isinstance(item.message, turn.Draft):
            return self._drafts.take(item.agent_id, item.message)
        return self._request(item.agent_id, item.message)

    def _request(self, agent_id: str, message: Message) -> Message:
        if agent_id:
            return self._agent_request(agent_id, message)
        match message:
            case turn.AcceptMessage():
                return self._messages.accept(message)
            case approval.Settle():
                return self._messages.settle(message)
            case turn.StartTurn():
                return self._steering.start(message)
            case turn.SteerTurn():
                return self._steering.steer(message)
            case turn.InterruptTurn():
                return self._steering.interrupt(message)
            case turn.CancelTurn():
                return self._messages.cancel_turn(message)
            case turn.CancelMessage():
                return self._messages.cancel_message(message)
            case turn.CancelCall():
                return self._calls.cancel(message)
            case session.ClearSession():
                return self._conversations.clear(message)
            case agent.CreateAgent():
                if message.session.ephemeral:
                    self.on_ephemeral()
                return self._requests.create_agent(message)
            case session.CreateSession():
                if message.session.ephemeral:
                    self.on_ephemeral()
                return self._requests.create_session(message)
            case session.CloseSession():
                return self._requests.close_session(message)
            case agent.EndAgent():
                return self._requests.end_agent(message)
            case agent.FinishAgent():
                return self._requests.finish_agent(message)
            case (
                archive.BeginImport()
                | archive.ImportEvents()
                | archive.FinishImport()
                | archive.AbortImport()
            ):
                return self.imports.take(message)
            case session.Delivered(sequences=sequences):
                self.catalogue.set_delivered(sequences)
                return Done()
            case ChildReport(child_id=child_id, event="gave_up", reason=reason):
                self.repairs.give_up(child_id, reason)
                return Done()
            case ChildReport(child_id=child_id):
                self.repairs.end_of_process(child_id)
                return Done()
            case _:
                raise Internal(f"unexpected {type(message).__name__}")

    def _agent_request(self, agent_id: str, message: Message) -> Message:
        match message:
            case agent.Hello():
                return self._inboxes.hello(agent_id)
            case agent.Sleep():
                return self._inboxes.sleep(agent_id)
            case turn.OpenSession():
                return self._inboxes.open_session(agent_id, message)
            case _:
                raise Internal(f"unexpected {type(message).__name__}")

    def _read(self, agent_id: str, message: Message) -> Message:
        match message:
            case session.ReadPage():
                return self._reads.page(message, agent_id)
            case turn.PullInbox(session_id=session_id):
                return self._inboxes.read(agent_id, session_id)
            case turn.RecallCall():
                return self._reads.call(message, agent_id)
            case agent.GetAgent():
                return self._reads.agent(message.agent_id)
            case agent.ListAgents():
                return self._reads.agents(message)
            case session.GetSession(session_id=session_id):
                return self._reads.session(session_id)
            case session.ListSessions():
                return self._reads.sessions(message)
            case session.ListThreads():
                return self._reads.threads(message, *self._totals.sessions())
            case session.FindEvent():
                return self._reads.find_event(message)
            case thread_log.ReadItems():
                return self._items.events(message)
            case thread_log.FindPending():
                return self._items.pending(message)
            case thread_log.FindTurn():
                return self._items.turn(message)
            case session.GetSnapshot():
                return self._conversations.snapshot(message)
            case session.ReadTexts():
                return self._conversations.texts(message)
            case session.Watch(session_id=session_id):
                return self._reads.watched(session_id)
            case session.Count():
                return self._totals.read()
            case approval.ListPermissions():
                return self._reads.permissions(message)
            case _:
                raise Internal(f"unexpected {type(message).__name__}")


def _fault(item: Item, error: Exception) -> Message | Refusal:
    _log.error("%s failed", type(item.message).__name__, exc_info=error)
    if isinstance(item.message, turn.Draft):
        return Refusal(INCOMPATIBLE, "internal error")
    return Internal().refused()
