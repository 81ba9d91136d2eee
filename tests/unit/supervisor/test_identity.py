from __future__ import annotations

import os

import setproctitle

from roost.supervisor import identity
from roost.supervisor.identity import ProcessId

NO_PID = 2**22 + 1


def test_a_process_is_its_pid_and_its_creation_time() -> None:
    me = identity.identify(os.getpid())
    assert me is not None
    assert identity.is_running(me)
    assert not identity.is_running(ProcessId(me.pid, me.created - 100))


def test_a_signal_does_not_reach_a_process_that_has_the_pid_now() -> None:
    me = identity.identify(os.getpid())
    assert me is not None
    assert identity.send_signal(me, 0)
    assert not identity.send_signal(ProcessId(me.pid, me.created - 100), 9)


def test_of_a_process_that_is_not_there_nothing_is_known() -> None:
    assert identity.identify(NO_PID) is None
    assert identity.rss(NO_PID) == -1
    assert identity.usage(NO_PID) == identity.Usage()
    assert identity.children(NO_PID) == []
    assert identity.descendants(NO_PID) == []
    assert not identity.is_running(ProcessId(NO_PID, 0.0))
    assert not identity.send_signal(ProcessId(NO_PID, 0.0), 0)


def test_memory_and_processor_time_of_this_process_are_known() -> None:
    assert identity.rss(os.getpid()) > 1 << 20
    assert identity.usage(os.getpid()).cpu_seconds > 0


def test_the_title_can_be_set() -> None:
    before = setproctitle.getproctitle()
    identity.set_title("roost: test")
    assert setproctitle.getproctitle() == "roost: test"
    identity.set_title(before)
