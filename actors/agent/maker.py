"""Makes the turns of one agent: chooses what thinks, and gives it tools, rules and surroundings."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import trio

from roost.actors.agent.driver import TurnDriver
from roost.actors.agent.events import EventMaker
from roost.actors.agent.history import SessionHistory
from roost.actors.agent.resume import rebuild
from roost.actors.agent.runner import CallResult, Runner, RunnerFailed, Sink, Thought
from roost.actors.agent.runners.llm import LlmRunner
from roost.actors.agent.runners.script import ScriptRunner
from roost.actors.agent.stamps import SystemStamps
from roost.actors.agent.thinker import SCRIPT, Thinker, choose
from roost.actors.agent.tools.tool import Surroundings
from roost.actors.agent.tools.toolbox import ToolPolicy
from roost.actors.agent.turn import TurnMachine
from roost.actors.command.leftovers import Leftovers
from roost.actors.sandbox.policy import default_setting
from roost.actors.session.approvals import Rules, make_rules
from roost.config.model import Settings, key_variables
from roost.schemas.base import TurnId
from roost.schemas.boot import NO_BACKEND
from roost.schemas.said import said_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roost.actors.agent.models import ModelRequests
    from roost.actors.session.turns import Session, Turn
    from roost.schemas.agent import AgentSpec
    from roost.schemas.boot import Backend
    from roost.schemas.event import AnyEvent
    from roost.schemas.turn import OpenTurn, QueuedMessage

ANSWER_ROOM = 60.0


class AgentTurns:
    """The turns of the sessions of one agent."""

    def __init__(
        self,
        spec: AgentSpec,
        settings: Settings,
        *,
        home: str,
        env: Mapping[str, str],
        models: ModelRequests,
        backend: Backend = NO_BACKEND,
    ) -> None:
        self._spec = spec
        self._home = home
        self._own_env = env
        self._models = models
        self._backend = backend
        self._leftovers = Leftovers()
        self._stamps = SystemStamps()
        self._permits = trio.CapacityLimiter(settings.tools.parallel)
        self._histories: dict[str, SessionHistory] = {}
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Make turns by these settings from now on; one that runs goes on by its own."""
        spec = self._spec
        self.rules: Rules = make_rules(
            settings.approvals.ask, spec.unattended, spec.unattended_allow, spec.unattended_deny
        )
        self._settings = settings
        self._env = command_environment(self._own_env, settings)
        self._permits.total_tokens = settings.tools.parallel

    def begin(self, session: Session, message: QueuedMessage, since: float) -> Turn:
        """Return the turn of a message that has waited since then by the session's clock."""
        turn_id = TurnId(message.turn_id) if message.turn_id else self._stamps.turn()
        limit = since + (self._settings.timeouts.turn or math.inf)
        thinker = choose(self._settings, self._spec, session.model, message.model)
        driver, machine, _ = self._make(session, turn_id, message, thinker, limit)
        if session.clock.now() >= limit:
            driver.perform(machine.expire(message))
        else:
            metadata = said_with(message, model=thinker.model)
            driver.perform(machine.begin(message, metadata))
        return driver

    def resume(self, session: Session, turn: OpenTurn, events: Sequence[AnyEvent]) -> Turn:
        """Return a parked turn, rebuilt from its events."""
        limit = session.clock.now() + (self._settings.timeouts.turn or math.inf)
        thinker = choose(self._settings, self._spec, session.model, turn.message.model)
        driver, machine, policy = self._make(
            session, turn.turn_id, turn.message, thinker, limit, turn
        )
        driver.perform(machine.resume(*rebuild(turn.turn_id, events, turn.pending, policy)))
        return driver

    def forget(self, session_id: str) -> None:
        """Drop what is kept of a session whose actor has ended, or whose conversation begins anew."""
        self._histories.pop(session_id, None)

    def _make(
        self,
        session: Session,
        turn_id: TurnId,
        message: QueuedMessage,
        thinker: Thinker,
        limit: float,
        parked: OpenTurn | None = None,
    ) -> tuple[TurnDriver, TurnMachine, ToolPolicy]:
        around = self._surroundings(session)
        policy = ToolPolicy(around, self.rules, session.grants)
        events = EventMaker(session.session_id, turn_id, self._stamps)
        machine = TurnMachine(
            events, self._stamps, policy, max_iterations=self._settings.agents.max_iterations
        )
        session.outbox.stream_as(events.delta)
        driver = TurnDriver(
            session,
            turn_id,
            machine=machine,
            runner=self._runner(session, around, message, thinker, parked),
            around=around,
            stamps=self._stamps,
            permits=self._permits,
            wait_timeout=self._settings.approvals.timeout,
            limit=limit,
        )
        return driver, machine, policy

    def _surroundings(self, session: Session) -> Surroundings:
        cwd = session.cwd or self._spec.cwd
        if self._spec.scratch:
            os.makedirs(self._spec.cwd, mode=0o700, exist_ok=True)
        return Surroundings(
            agent_id=self._spec.agent_id,
            session_id=session.session_id,
            cwd=cwd,
            home=self._home,
            sandbox=self._spec.sandbox or default_setting(self._settings),
            rules=self._settings.sandbox,
            backend=self._backend,
            env=self._env,
            limits=self._settings.tools,
            leftovers=self._leftovers,
        )

    def _runner(
        self,
        session: Session,
        around: Surroundings,
        message: QueuedMessage,
        thinker: Thinker,
        parked: OpenTurn | None,
    ) -> Runner:
        wrong = folder_fault(around.cwd)
        if wrong:
            return _NoRunner(wrong, "CWD_UNUSABLE")
        if thinker.provider == SCRIPT:
            state, steers = (parked.runner_state, parked.steers) if parked else (b"", ())
            return ScriptRunner(message.metadata, message.text, state, steers)
        provider = self._settings.providers.get(thinker.provider)
        if provider is None:
            name = thinker.provider
            text = f"There is no provider {name!r} in the configuration"
            return _NoRunner(text, "PROVIDER_NOT_FOUND")
        whole = provider.request_timeout * (1 + provider.max_retries) + ANSWER_ROOM
        return LlmRunner(
            self._models,
            self._history(session),
            provider=thinker.provider,
            model=thinker.model,
            cwd=around.cwd,
            rules=self.rules,
            timeout=whole if provider.request_timeout else math.inf,
        )

    def _history(self, session: Session) -> SessionHistory:
        history = self._histories.get(session.session_id)
        if history is None:
            history = self._histories[session.session_id] = SessionHistory(session)
        return history


class _NoRunner:
    """Stands where nothing can think: the configuration names nothing, or there is no folder to work in."""

    def __init__(self, why: str, code: str) -> None:
        self._why = why
        self._code = code

    def steer(self, message: QueuedMessage) -> None:
        """Do nothing with it."""

    async def think(self, results: tuple[CallResult, ...], sink: Sink) -> Thought:
        """Fail the turn."""
        raise RunnerFailed(self._why[:200], code=self._code, outcome="not_started")


def folder_fault(cwd: str) -> str:
    """Return why an agent cannot work in a folder, which the thread door does not look at when a thread is made; or nothing."""
    shown = cwd if len(cwd) <= 100 else f"{cwd[:100]}…"
    if not os.path.isabs(cwd):
        return f"The working folder is not an absolute path: {shown}"
    # A name with a zero byte in it is none.
    if "\0" in cwd or not os.path.isdir(cwd):
        return f"The working folder does not exist: {shown}"
    if not os.access(cwd, os.R_OK | os.X_OK):
        return f"The working folder is not accessible: {shown}"
    return ""


def command_environment(env: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return the environment of commands: that of the agent without what belongs to the daemon alone."""
    hidden = key_variables(settings) | {
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "LISTEN_PID",
        "WATCHDOG_USEC",
    }
    return {name: value for name, value in env.items() if name not in hidden}
