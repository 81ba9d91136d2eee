"""agent.logs: what has been recorded of an agent, read backwards from the log; bounded, the newest is kept."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError
from roost.actors.front.clock import stamp
from roost.actors.front.transcripts import Mark, read_transcript
from roost.actors.projection import TRANSCRIPT_BYTES
from roost.schemas.agent import AgentRow, GetAgent
from roost.schemas.base import AgentId
from roost.schemas.results import AgentLogsResult, SessionTranscript, ToolOutput
from roost.schemas.session import ListSessions, SessionRow, Sessions

if TYPE_CHECKING:
    from roost.actors.front.router import Call
    from roost.actors.front.services import Services
    from roost.actors.projection import Transcript
    from roost.schemas.daemon import AgentLogs

MAX_SESSIONS = 50
MAX_OUTPUTS = 1_000
CUT = "[earlier entries are left out]"

_log = logging.getLogger(__name__)


async def agent_logs(call: Call, params: AgentLogs) -> AgentLogsResult:
    """Return the transcripts of an agent's sessions and what its tools gave."""
    readers = call.services.readers
    place = readers.ask()
    try:
        await place
        return await _logs_of(call.services, AgentId(params.agent_id))
    finally:
        readers.give_back(place)


async def _logs_of(services: Services, agent_id: AgentId) -> AgentLogsResult:
    await services.store.ask(GetAgent(agent_id=agent_id), AgentRow)
    rows = await _sessions(services, agent_id)
    budget = TRANSCRIPT_BYTES // max(1, len(rows)) // 2
    sections: list[str] = []
    sessions: list[SessionTranscript] = []
    outputs: list[ToolOutput] = []
    for row in rows:
        transcript = await _read(services, row, budget)
        if transcript is None:
            continue
        text = _text(transcript)
        session_id = row.spec.session_id
        sessions.append(
            SessionTranscript(
                session_id=session_id,
                item_count=len(transcript.entries),
                transcript=text,
                source=row.spec.source,
            )
        )
        sections.append(f"agent_id\t{agent_id}\nsession_id\t{session_id}\n{text}")
        outputs.extend(_outputs(session_id, transcript))
    return AgentLogsResult(
        agent_id=agent_id,
        transcript="\n\n".join(sections) or f"agent_id\t{agent_id}\nNo transcript entries",
        sessions=sessions,
        tool_outputs=outputs[-MAX_OUTPUTS:],
    )


async def _sessions(services: Services, agent_id: AgentId) -> list[SessionRow]:
    """Return the sessions that were made last, oldest first."""
    rows: list[SessionRow] = []
    before = (0, "")
    while len(rows) < MAX_SESSIONS:
        limit = MAX_SESSIONS - len(rows)
        request = ListSessions(limit=limit, agent_id=agent_id, after=before, newest=True)
        found = await services.store.ask_bulky(request, Sessions)
        rows.extend(found.sessions)
        if not found.more or not found.sessions:
            break
        spec = found.sessions[-1].spec
        before = (spec.created_at, spec.session_id)
    return rows[::-1]


async def _read(services: Services, row: SessionRow, budget: int) -> Transcript | None:
    """Return a session's transcript, that before a clear included, or None if its log cannot be read."""
    mark = None
    if row.cleared_at:
        mark = Mark(row.cleared_after, f"the history was cleared at {stamp(row.cleared_at)}")
    session_id = row.spec.session_id
    try:
        found = await read_transcript(
            services, session_id, budget, floor=0, outputs=True, mark=mark
        )
    except DaemonError as error:
        if error.code == "OVERLOADED":
            raise
        _log.warning("the log of %s is left out: %s", session_id, error)
        return None
    return found.transcript


def _text(transcript: Transcript) -> str:
    lines = [f"[{entry.role}] {entry.text}" for entry in transcript.entries]
    if transcript.truncated:
        lines.insert(0, CUT)
    return "\n".join(lines)


def _outputs(session_id: str, transcript: Transcript) -> list[ToolOutput]:
    return [
        ToolOutput(
            session_id=session_id,
            tool_call_id=found.call_id,
            tool_name=found.tool_name,
            status=found.status,
            output=found.output,
            output_bytes=found.size,
        )
        for found in transcript.outputs
    ]
