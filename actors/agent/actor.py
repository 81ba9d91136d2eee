"""The root of an agent's process: its links, its sessions, and when the process is of no more use.

Sessions are opened when the store says that they have something to do; one that crashes is started again by itself,
and only one that keeps crashing takes the process with it. Without work for a while the process asks the store whether
it may end.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
from collections.abc import Callable, Iterator
from typing import Final

import trio

from roost.actors.agent.maker import AgentTurns
from roost.actors.agent.models import ModelRequests
from roost.actors.session.actor import SessionActor
from roost.actors.session.approvals import permissions
from roost.config.model import decode_settings
from roost.schemas.agent import Hello, Sleep, Welcome
from roost.schemas.approval import ListPermissions, Permissions
from roost.schemas.base import AgentId, Done, Message, Refused, SessionId
from roost.schemas.boot import decode_boot
from roost.schemas.control import KillChild
from roost.schemas.model import ModelDelta
from roost.schemas.turn import Acked, Bell, Draft, DraftRefused
from roost.schemas.unions import agent_from_front, agent_from_store, peer_from_providers
from roost.supervisor import kernel
from roost.supervisor.actor import Process, ProcessActor
from roost.supervisor.backoff import Backoff
from roost.supervisor.errors import ActorGone, CallTimeout, LinkFull, RestartLimitReached
from roost.supervisor.intensity import Intensity, Window
from roost.supervisor.link import Link

SESSION_RESTARTS: Final = Intensity(5, 60.0)
SESSION_BACKOFF: Final = Backoff()
ASK_AGAIN: Final = 0.2

_log = logging.getLogger(__name__)
