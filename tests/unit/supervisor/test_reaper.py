from __future__ import annotations

import signal

from roost.supervisor.reaper import ExitStatus


def test_an_end_is_described_in_words() -> None:
    assert str(ExitStatus(3)) == "exit status 3"
    assert str(ExitStatus(None, int(signal.SIGKILL))) == "ended by SIGKILL"
    assert str(ExitStatus(None, 250)) == "ended by signal 250"
