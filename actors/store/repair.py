"""Carries out what a crash, the end of an agent or a cold start leaves to the store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from roost.actors.store.capacity import FULL
from roost.actors.store.recovery import REJECTED_TEXT, plan_recovery
from roost.actors.store.remains import Remains
from roost.schemas.base import AgentId, TurnId
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.recovery import Step
    from roost.actors.store.turns import TurnRow
    from roost.schemas.event import AnyEvent

FULL_TEXT = "the log of the session is full"

_log = logging.getLogger(__name__)

_OPEN = (
    "select s.session_id from turns t join sessions s on s.key = t.session where t.state = 'open'"
)
_CLOSING = """select s.session_id from sessions s join agents a on a.agent_id = s.agent_id
    where s.state = 'closing' and a.state = 'live'
    and not exists(select 1 from turns t where t.session = s.key and t.state = 'open')"""
# Who has something to do without being asked again: a message, or a parked turn that has got its decision.
_WAITING = """select distinct a.agent_id from agents a join sessions s on s.agent_id = a.agent_id
    where a.state = 'live' and s.state <> 'closed' and (
    exists(select 1 from messages m where m.session = s.key and m.state = 'queued')
    or exists(select 1 from turns t where t.session = s.key and t.state = 'open')
        and not exists(select 1 from pending p where p.session = s.key and p.state = 'open'))
    order by a.created_at, a.agent_id"""


class Repairs:
    """Repairs in the transaction that is open."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._turns = lifecycle.turns
        self._catalogue = lifecycle.catalogue
        self._remains = Remains(lifecycle.journal.db)

    def repair(self, session: Session, *, may_park: bool, reason: str = "", code: str = "") -> bool:
        """Close the open turn of a session, or leave it parked; return whether none is open now."""
        turn = self._turns.open_turn(session.key)
        if turn is None:
            return True
        events, whole = self._events(session, turn)
        plan = plan_recovery(
            session.session_id,
            TurnId(turn.turn_id),
            events,
            self._turns.pending_of_turn(session.key, turn.turn_id),
            cancelled=turn.cancel_reason is not None,
            timestamp=self._journal.clock(),
            may_park=may_park and whole,
            whole=whole,
            reason=reason,
            code=code,
        )
        if plan.parked:
            return False
        # What is left of the old process in its socket is refused from here on.
        session.generation += 1
        self._catalogue.set_session(session.session_id, generation=session.generation)
        for step in plan.steps[:-1]:
            self._write(session, step)
        self._lifecycle.settle_rest(session, turn.turn_id, REJECTED_TEXT)
        self._lifecycle.keep_unread(session, turn.turn_id, plan.outcome)
        for step in plan.steps[-1:]:
            self._write(session, step)
        self._lifecycle.ledger.abandon(session.key)
        crashed = plan.outcome == "failed" and not code
        self._lifecycle.end_turn(session, turn.turn_id, plan.outcome, plan.error, crashed=crashed)
        return True

    def stop_full(self, session: Session) -> None:
        """End the open turn of a session whose log is full, and all that waits: its actor can write no more."""
        self.repair(session, may_park=False, reason=FULL_TEXT, code=FULL)
        self._lifecycle.end_queue(session, "failed", FULL_TEXT)

    def give_up(self, agent_id: str, reason: str) -> None:
        """Note that root does not start the agent any more: close its turns, end its waiting messages."""
        state = self._catalogue.agent_state(agent_id)
        if state == "stopping":
            self.finish(agent_id)
        if state != "live" or self._catalogue.is_down(agent_id):
            return
        for session in self._sessions(agent_id):
            self.repair(session, may_park=True)
            self._lifecycle.end_queue(session, "failed", reason)
        self._catalogue.set_agent(agent_id, down=1, failed=1, error=reason)
        self._lifecycle.announce_agent(agent_id, "error", reason)

    def end_of_process(self, agent_id: str) -> None:
        """See to an agent whose process has ended for good: finished if it was to stop, woken if it overslept.

        One whose sessions were ephemeral and have been removed while it ran goes now.
        """
        row = self._catalogue.agent(agent_id)
        if row is None:
            return
        if row.status == "stopping":
            self.finish(agent_id)
        elif row.asleep and self._catalogue.sessions_with_work(agent_id):
            self._journal.effects.start(AgentId(agent_id), fresh=False)
        elif row.asleep:
            self.forget(agent_id, alone=True)

    def finish(self, agent_id: str) -> None:
        """End an agent of which no process runs; nothing of it stays open. Once it has ended nothing happens."""
        if self._catalogue.agent_state(agent_id) in {"", "stopped"}:
            return
        sessions = self._sessions(agent_id)
        reason = "agent.stop"
        self._catalogue.set_agent(agent_id, state="stopping")
        for session in sessions:
            if session.state == "open":
                self._lifecycle.start_closing(session, reason)
            self.repair(session, may_park=False)
            self._lifecycle.end_queue(session, "interrupted", reason)
        self._catalogue.set_agent(
            agent_id, state="stopped", asleep=0, down=0, ended_at=self._journal.now()
        )
        self._lifecycle.announce_agent(agent_id, "stopped", "shutdown")
        for session in sessions:
            self._lifecycle.close_now(session)

    def forget(self, agent_id: str, *, alone: bool = False) -> None:
        """Delete an agent that has ended (`alone`: or sleeps) and of which nothing is left: its sessions were ephemeral."""
        self._journal.flush()
        self._remains.forget_agent(agent_id, alone=alone)

    def wipe_ephemeral(self) -> None:
        """Remove the sessions that do not outlive the daemon."""
        self._remains.wipe_ephemeral()

    def mark_recovered(self) -> None:
        """Note on what is still alive that the daemon was started anew."""
        db = self._journal.db
        db.execute(
            "update agents set recovered = 1, asleep = 0, down = 0, env_lost = has_env"
            " where state = 'live'"
        )
        db.execute("update sessions set recovered = 1 where state <> 'closed'")

    def sessions_to_repair(self) -> list[str]:
        """Return the sessions with an open turn."""
        return [row[0] for row in self._journal.db.execute(_OPEN)]

    def repair_cold(self, session_id: str) -> None:
        """Repair a session of which no actor can be alive."""
        session = self._journal.session(session_id)
        if session is not None:
            self.repair(session, may_park=session.state == "open")

    def agents_to_finish(self) -> list[str]:
        """Return the agents whose end was under way."""
        sql = "select agent_id from agents where state = 'stopping'"
        return [row[0] for row in self._journal.db.execute(sql)]

    def sessions_to_close(self) -> list[str]:
        """Return the sessions whose end was under way, but for those of agents that end."""
        return [row[0] for row in self._journal.db.execute(_CLOSING)]

    def close(self, session_id: str) -> None:
        """Close a session of which nothing is open any more."""
        session = self._journal.session(session_id)
        if session is not None:
            self._lifecycle.close_now(session)

    def agents_to_start(self) -> list[AgentId]:
        """Return the agents that have something to do, oldest first."""
        return [AgentId(row[0]) for row in self._journal.db.execute(_WAITING)]

    def _sessions(self, agent_id: str) -> list[Session]:
        found = map(self._journal.session, self._catalogue.live_sessions(agent_id))
        return [session for session in found if session is not None]

    def _write(self, session: Session, step: Step) -> None:
        row = self._turns.pending(session.key, step.settles) if step.settles else None
        if row is not None and row.state == "open":
            settled = msgspec.structs.replace(
                row, state="cancelled", reason=REJECTED_TEXT, settled_at=self._journal.now()
            )
            self._lifecycle.settle(session, settled)
        sequence = self._journal.record(session, step.event)
        if step.ends is not None:
            ends = step.ends
            self._lifecycle.ledger.settle(session.key, ends.call_id, ends.state, sequence)

    def _events(self, session: Session, turn: TurnRow) -> tuple[list[AnyEvent], bool]:
        """Return what can be read of a turn, and whether that is all; damage keeps no turn from being repaired."""
        bodies, damaged = self._journal.turn_events(session, turn.first_sequence)
        if damaged is not None:
            _log.error("turn %s cannot be read whole: %s", turn.turn_id, damaged)
        events: list[AnyEvent] = []
        whole = damaged is None
        for body in bodies:
            try:
                events.append(event_decoder.decode(body))
            except msgspec.DecodeError as error:
                whole = False
                _log.error("turn %s cannot be read whole: %s", turn.turn_id, error)
        return events, whole
