"""agent.stop, run.cancel, session.terminate: the record first, then the process, then the record's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, NotFound
from roost.actors.front.clock import stamp_or_nothing
from roost.schemas import control
from roost.schemas.agent import AgentEnding, AgentRow, EndAgent, FinishAgent
from roost.schemas.base import AgentId, Done, SessionId
from roost.schemas.results import AgentStopped, RunCancelled, Terminated
from roost.schemas.session import CloseSession, SessionClosing
from roost.schemas.turn import CancelTurn, TurnCancelled

if TYPE_CHECKING:
    from roost.actors.front.router import Call
    from roost.actors.front.services import Services
    from roost.schemas.daemon import AgentStop, RunCancel, SessionTerminate

TURN_PREFIX = "turn_"


async def stop_agent(call: Call, params: AgentStop) -> AgentStopped:
    """End an agent; false if it had ended, or is being ended by somebody else."""
    reason = params.reason.strip() or "agent.stop"
    stopped, _ = await _end_agent(call.services, params.agent_id, reason, cancel=False)
    return AgentStopped(agent_id=params.agent_id, stopped=stopped)


async def cancel_run(call: Call, params: RunCancel) -> RunCancelled:
    """Cancel an agent for good; given a turn's id, interrupt that turn."""
    reason = params.reason.strip() or "run.cancel"
    if params.run_id.startswith(TURN_PREFIX):
        return await _cancel_turn(call.services, params.run_id, reason)
    try:
        changed, live = await _end_agent(call.services, params.run_id, reason, cancel=True)
    except DaemonError as error:
        if error.code == "AGENT_NOT_FOUND":
            raise _no_run(params.run_id) from None
        raise
    return _run_cancelled(params.run_id, changed=changed, live=(params.run_id,) if live else ())


async def terminate_session(call: Call, params: SessionTerminate) -> Terminated:
    """Close a session; with the last one its agent ends, which is not waited for."""
    services = call.services
    request = CloseSession(session_id=SessionId(params.session_id), reason=params.reason)
    try:
        closing = await services.store.ask(request, SessionClosing)
    except DaemonError as error:
        if error.code == "SESSION_NOT_FOUND":
            text = f"AgenC daemon session not found: {params.session_id}"
            raise NotFound("SESSION_NOT_FOUND", text) from None
        raise
    if closing.last:
        reason = params.reason.strip() or "session.terminate"
        end_in_background(services, closing.agent_id, reason)
    return Terminated(
        session_id=params.session_id,
        terminated=closing.terminated,
        status="closed",
        closed_at=stamp_or_nothing(closing.closed_at),
        reason=closing.reason,
    )


def end_in_background(services: Services, agent_id: str, reason: str) -> None:
    """End an agent; nobody waits for that."""
    services.in_background(agent_id, _end_quietly(services, agent_id, reason))


async def _end_agent(
    services: Services, agent_id: str, reason: str, *, cancel: bool
) -> tuple[bool, bool]:
    """Return whether this call ended the agent, and whether it had a process."""
    request = EndAgent(agent_id=AgentId(agent_id), reason=reason, cancel=cancel)
    ending = await services.store.ask(request, AgentEnding)
    if ending.already:
        if ending.live:
            # Whoever began to stop it may have gone with an earlier front.
            services.in_background(agent_id, _stop_process(services, agent_id, reason))
        return False, False
    await _stop_process(services, agent_id, reason)
    return True, ending.live


async def _stop_process(services: Services, agent_id: str, reason: str) -> None:
    grace = services.settings.timeouts.agent_stop
    stop = control.StopChild(child_id=agent_id, reason=reason, grace=grace)
    await services.root.ask(stop, Done)
    await services.store.ask(FinishAgent(agent_id=AgentId(agent_id)), AgentRow)


async def _end_quietly(services: Services, agent_id: str, reason: str) -> None:
    await _end_agent(services, agent_id, reason, cancel=False)


async def _cancel_turn(services: Services, turn_id: str, reason: str) -> RunCancelled:
    # Of a session that nobody follows the store finds the turn by its id alone.
    session_id = SessionId(services.fanout.session_of(turn_id))
    request = CancelTurn(session_id=session_id, reason=reason, turn_id=turn_id)
    cancelled = await services.store.ask(request, TurnCancelled)
    if not cancelled.turn_id:
        raise _no_run(turn_id)
    return _run_cancelled(turn_id, changed=cancelled.cancelled, live=())


def _run_cancelled(run_id: str, *, changed: bool, live: tuple[str, ...]) -> RunCancelled:
    return RunCancelled(
        run_id=run_id,
        already_terminal=not changed,
        cancelled_run_ids=(run_id,) if changed else (),
        closed_edge_child_ids=(),
        interrupted_live_agent_ids=live,
        voided_holds=0,
    )


def _no_run(run_id: str) -> NotFound:
    return NotFound("RUN_NOT_FOUND", f"run.cancel: no agent run found for id: {run_id}")
