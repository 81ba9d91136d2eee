"""A client that writes down everything the daemon has acknowledged to it, and proves from that record what the log holds.

It keeps one message under way in each of its sessions. Acknowledged are: a message of which `message_accepted` was told
or which was answered, and each event that was received with its sequence. When its connection breaks, it connects
again and goes on after what it has.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from typing import TYPE_CHECKING

from bench.agents import create_agents
from bench.daemon import Client, Json, wait_until
from bench.turns import script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PIECE = "0123456789"
CONNECT_SECONDS = 60.0


class Message:
    """One message: what was said of it, and the text that came of it."""

    def __init__(self, name: str, session: str) -> None:
        self.name = name
        self.session = session
        self.accepted = False
        self.outcome = ""
        self.text = ""


class Witness:
    """The record of one client, over any number of connections."""

    def __init__(self, path: str, agents: int, *, deltas: int, interval_ms: float) -> None:
        self.path = path
        self.deltas = deltas
        self.interval_ms = interval_ms
        # In order of their coming: sequence and id of each event.
        self.events: dict[str, list[tuple[int, str]]] = {}
        self.messages: dict[str, Message] = {}
        self.faults: list[str] = []
        self.connections = 0
        self.finishing = threading.Event()
        self._under_way: dict[str, Message] = {}
        self._asked: dict[object, Message] = {}
        client = Client(path)
        for agent in create_agents(client, agents):
            self.events[str(agent["sessionId"])] = []
        client.close()

    def run(self) -> None:
        """Send and read until `finishing` is set and everything sent is answered."""
        while True:
            try:
                client = self._connect()
                try:
                    self._talk(client)
                    return
                finally:
                    client.close()
            except (ConnectionError, FileNotFoundError):
                continue

    def _connect(self) -> Client:
        found: list[Client] = []

        def dial() -> bool:
            try:
                found.append(Client(self.path, initialize=False))
            except (ConnectionError, FileNotFoundError):
                return False
            return True

        wait_until(dial, CONNECT_SECONDS)
        client = found[0]
        cursors = {session: seen[-1][0] if seen else 0 for session, seen in self.events.items()}
        client.initialize(clientName="witness", capabilities={"roost.cursors": cursors})
        self.connections += 1
        return client

    def _talk(self, client: Client) -> None:
        self._asked.clear()
        for session in self.events:
            client.send("session.attach", sessionId=session, clientId="witness")
            under_way = self._under_way.get(session)
            self._send(client, under_way or self._new(session))
        while self._under_way:
            self._take(client, client.read())

    def _new(self, session: str) -> Message:
        name = f"m{len(self.messages)}"
        message = self.messages[name] = self._under_way[session] = Message(name, session)
        return message

    def _send(self, client: Client, message: Message) -> None:
        number = client.send(
            "message.send",
            sessionId=message.session,
            content=message.name,
            clientMessageId=message.name,
            metadata=script(self.deltas, self.interval_ms, PIECE),
        )
        self._asked[number] = message

    def _take(self, client: Client, message: Json) -> None:
        if "method" in message:
            self._note(message)
            return
        asked = self._asked.pop(message["id"], None)
        if asked is None:
            return
        if "error" in message:
            # Not acknowledged: the same message again is no second one.
            time.sleep(0.02)
            self._send(client, asked)
            return
        result: Json = message["result"]  # type: ignore[assignment]
        asked.accepted = True
        asked.outcome = str(result["outcome"])
        del self._under_way[asked.session]
        if not self.finishing.is_set():
            self._send(client, self._new(asked.session))

    def _note(self, note: Json) -> None:
        params: Json = note["params"]  # type: ignore[assignment]
        metadata: Json = params.get("metadata", {})  # type: ignore[assignment]
        session = str(params.get("sessionId"))
        sequence = params.get("sequence")
        if isinstance(sequence, int) and not metadata.get("derived"):
            seen = self.events[session]
            if sequence != (seen[-1][0] if seen else 0) + 1:
                self.faults.append(f"{session}: {sequence} follows {seen[-1:]}")
            seen.append((sequence, str(params["eventId"])))
            if note["method"] == "event.message_chunk":
                self.messages[str(params["messageId"])].text += str(params["delta"])
        event: Json = params.get("event", {})  # type: ignore[assignment]
        if event.get("type") == "message_accepted":
            payload: Json = event["payload"]  # type: ignore[assignment]
            self.messages[str(payload["message"])].accepted = True

    def check(self, home: Path) -> list[str]:
        """Return what the log of the stopped daemon and this record do not agree on."""
        faults = list(self.faults)
        database = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
        try:
            log = _read_log(database)
            rows = database.execute(
                "select client_message_id, count(*), min(state) from messages group by 1"
            ).fetchall()
        finally:
            database.close()
        ids = [event_id for events in log.values() for _, event_id in events]
        if len(ids) != len(set(ids)):
            faults.append("an event id is in the log twice")
        for session, seen in self.events.items():
            stored = log.get(session, [])
            if [sequence for sequence, _ in stored] != list(range(1, len(stored) + 1)):
                faults.append(f"{session}: the sequences in the log have a gap")
            if seen != stored[: len(seen)]:
                faults.append(f"{session}: what was received is not what is in the log")
        found = {name: (count, state) for name, count, state in rows}
        for message in self.messages.values():
            if message.accepted and found.get(message.name) != (1, "ended"):
                faults.append(f"message {message.name}: {found.get(message.name)} in the log")
            whole = PIECE * self.deltas
            if not whole.startswith(message.text) or (
                message.outcome == "completed" and message.text != whole
            ):
                faults.append(f"message {message.name}: text was lost, doubled or out of order")
        return faults

    @property
    def received(self) -> int:
        """How many events have been acknowledged."""
        return sum(map(len, self.events.values()))

    @property
    def accepted(self) -> int:
        """How many messages have been acknowledged."""
        return sum(message.accepted for message in self.messages.values())


def _read_log(database: sqlite3.Connection) -> dict[str, list[tuple[int, str]]]:
    log: dict[str, list[tuple[int, str]]] = {}
    sql = """select s.session_id, e.sequence, e.event_id from events e
        join sessions s on s.key = e.session order by s.session_id, e.sequence"""
    for session, sequence, event_id in database.execute(sql):
        log.setdefault(session, []).append((sequence, event_id))
    return log


def watched(witness: Witness, disturb: Callable[[], None]) -> None:
    """Disturb the daemon while the witness runs; return when all it has sent is answered."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            witness.run()
        except BaseException as error:  # noqa: BLE001 - raised by the other thread
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        disturb()
    finally:
        witness.finishing.set()
        thread.join(120)
    if failed:
        raise failed[0]
    if thread.is_alive():
        raise TimeoutError("the witness still waits for an answer")
