"""The rehearsal in a process of its own, as the zygote runs it: what it may not leave behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
import ctypes, signal
import roost.actors.agent.rehearsal as rehearsal
count = lambda: len(os.listdir("/proc/self/fd"))
before = count(), os.nice(0), {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
rehearsal.rehearse()
rehearsal.rehearse()
subreaper = ctypes.c_int(7)
ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper), 0, 0, 0)
assert subreaper.value == 0, "the zygote may not become a subreaper"
assert len(os.listdir("/proc/self/task")) == 1, "a thread is left"
assert before == (count(), os.nice(0), {n: signal.getsignal(n) for n in before[2]}), "something is left"
print("clean")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_leaves_no_thread_no_descriptor_and_no_trait_of_an_agent() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(ROOT)],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == "clean\n", done.stderr
