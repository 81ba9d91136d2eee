"""The conversation of a session, folded from the log page by page; what has been folded is not read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.agent.runner import RunnerFailed
from roost.actors.projection import ContextError, Conversation
from roost.schemas.event import AgentMessageDelta
from roost.schemas.session import Page, ReadPage
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from roost.actors.session.turns import Session
    from roost.schemas.model import ChatMessage


class SessionHistory:
    """One session's conversation while its actor lives."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._conversation = Conversation()
        self._after = session.cleared_after

    async def messages(self) -> list[ChatMessage]:
        """Return the conversation up to now; all that was written before is on disk by then.

        Raises:
            RunnerFailed: the log does not give one.
        """
        await self._session.outbox.settled()
        while await self._read():
            pass
        try:
            return self._conversation.messages()
        except ContextError as error:
            text = f"No usable conversation: {error}"
            raise RunnerFailed(text, code="CONTEXT_UNUSABLE") from error

    async def _read(self) -> bool:
        """Fold one page; return whether there may be more."""
        session_id = self._session.session_id
        page = await self._session.ask_store(
            ReadPage(session_id=session_id, after=self._after, skip_damaged=True)
        )
        if not isinstance(page, Page):
            return False
        if page.damaged_upto:
            self._conversation.gap()
            self._after = page.damaged_upto
        if not page.bodies:
            return page.damaged_upto > 0 and self._after < page.last_sequence
        if page.lost_upto:
            # What has been folded of the turns that are gone may end in the middle of one.
            self._conversation = Conversation()
        for body in page.bodies:
            event = event_decoder.decode(body)
            if not isinstance(event, AgentMessageDelta):
                self._conversation.fold(event)
        self._after = page.first + len(page.bodies) - 1
        return self._after < page.last_sequence
