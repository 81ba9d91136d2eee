"""The closed unions of messages on each link, and the one decoder for each place that decodes."""

from __future__ import annotations

import msgspec

from roost.schemas import (
    agent,
    approval,
    archive,
    commands,
    model,
    search,
    session,
    thread_log,
    turn,
)
from roost.schemas.base import Done, Message, Refused
from roost.schemas.event import AnyEvent
from roost.schemas.published import Published

FrontToStore = (
    agent.CreateAgent
    | agent.GetAgent
    | agent.ListAgents
    | agent.EndAgent
    | agent.FinishAgent
    | session.CreateSession
    | session.GetSession
    | session.ListSessions
    | session.ListThreads
    | session.FindEvent
    | session.CloseSession
    | session.ClearSession
    | session.GetSnapshot
    | session.ReadTexts
    | session.Watch
    | session.Unwatch
    | session.WatchAll
    | session.ReadPage
    | session.Delivered
    | session.Count
    | turn.AcceptMessage
    | turn.StartTurn
    | turn.SteerTurn
    | turn.InterruptTurn
    | turn.CancelTurn
    | turn.CancelMessage
    | turn.CancelCall
    | approval.Settle
    | approval.ListPermissions
    | archive.BeginImport
    | archive.ImportEvents
    | archive.FinishImport
    | archive.AbortImport
    | thread_log.ReadItems
    | thread_log.FindPending
    | thread_log.FindTurn
)
StoreToFront = (
    Published
    | agent.AgentCreated
    | agent.AgentRow
    | agent.Agents
    | agent.AgentEnding
    | session.SessionRow
    | session.Sessions
    | session.Threads
    | session.EventFound
    | session.SessionClosing
    | session.SessionCleared
    | session.SessionSnapshot
    | session.Texts
    | session.Watched
    | session.Page
    | session.Counts
    | turn.Accepted
    | turn.TurnCancelled
    | turn.CallCancelled
    | approval.PendingRow
    | approval.Permissions
    | archive.ImportBegun
    | thread_log.ItemEvents
    | thread_log.FoundPending
    | thread_log.FoundTurn
    | Done
    | Refused
)
AgentToStore = (
    turn.Draft
    | agent.Hello
    | agent.Sleep
    | turn.OpenSession
    | turn.PullInbox
    | turn.RecallCall
    | session.ReadPage
)
StoreToAgent = (
    turn.Acked
    | turn.DraftRefused
    | turn.Bell
    | agent.Welcome
    | turn.SessionOpened
    | turn.Inbox
    | turn.CallRecalled
    | session.Page
    | Done
    | Refused
)
ToProviders = model.AskModel | model.StopModel | model.ListModels | model.TakeLoad | model.DropKeys
FromProviders = model.ModelDelta | model.ModelAnswer | model.Models | model.Load | Refused
ToSearch = search.Search | search.StopSearch
FromSearch = search.Found | Refused
ToCommands = (
    commands.StartCommand
    | commands.WriteCommand
    | commands.ResizeCommand
    | commands.EndCommand
    | commands.AbandonCommand
    | commands.OutputTaken
)
FromCommands = (
    commands.CommandStarted
    | commands.InputTaken
    | commands.InputRoom
    | commands.CommandOutput
    | commands.CommandPiece
    | commands.CommandEnded
    | Refused
)

_Decoder = msgspec.msgpack.Decoder[Message]

store_from_front: _Decoder = msgspec.msgpack.Decoder(FrontToStore)
front_from_store: _Decoder = msgspec.msgpack.Decoder(StoreToFront)
store_from_agent: _Decoder = msgspec.msgpack.Decoder(AgentToStore)
agent_from_store: _Decoder = msgspec.msgpack.Decoder(StoreToAgent)
providers_from_peer: _Decoder = msgspec.msgpack.Decoder(ToProviders)
peer_from_providers: _Decoder = msgspec.msgpack.Decoder(FromProviders)
search_from_front: _Decoder = msgspec.msgpack.Decoder(ToSearch)
front_from_search: _Decoder = msgspec.msgpack.Decoder(FromSearch)
commands_from_front: _Decoder = msgspec.msgpack.Decoder(ToCommands)
front_from_commands: _Decoder = msgspec.msgpack.Decoder(FromCommands)

event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
event_encoder = msgspec.json.Encoder()
