"""What the kernel says of its out-of-memory killer, and what is said of a process that was killed."""

from __future__ import annotations

import os
import signal

import pytest

from benchmarks.coordinator.processes import memory
from benchmarks.coordinator.ranks import ending_in_words


@pytest.mark.parametrize(
    ("text", "kills"), [("pgfault 7\noom_kill 3\nswap_ra 1\n", 3), ("pgfault 7\n", 0), ("oom_kill", 0)]
)
def test_kills_are_counted_where_they_are_told(monkeypatch, tmp_path, text, kills):
    monkeypatch.setattr(memory, "VMSTAT", tmp_path / "vmstat")
    assert memory.kills() == 0
    memory.VMSTAT.write_text(text)
    assert memory.kills() == kills


def test_a_process_that_was_killed_for_memory_is_said_to_be():
    killed = os.CLD_KILLED, int(signal.SIGKILL)
    assert ending_in_words(*killed, True) == "was killed by SIGKILL (the out-of-memory killer: memory ran out)"
    assert ending_in_words(*killed, False) == "was killed by SIGKILL (often the out-of-memory killer)"
    assert ending_in_words(os.CLD_KILLED, int(signal.SIGSEGV), True) == "was killed by SIGSEGV"
