"""What runs below a process is counted, what the kernel says of its out-of-memory killer, and how an end is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from benchmarks.coordinator import ranks

FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE)
input()
"""


def test_children_of_children_count():
    before = ranks.below(os.getpid())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FAMILY], **pipes) as parent:
        assert parent.stdout.readline() == b"ready\n"
        assert ranks.below(os.getpid()) == before + 2
        assert ranks.below(parent.pid) == 1
        parent.stdin.close()


@pytest.mark.parametrize(
    ("text", "kills"), [("pgfault 7\noom_kill 3\nswap_ra 1\n", 3), ("pgfault 7\n", 0), ("oom_kill", 0)]
)
def test_kills_are_counted_where_they_are_told(monkeypatch, tmp_path, text, kills):
    monkeypatch.setattr(ranks, "VMSTAT", tmp_path / "vmstat")
    assert ranks.memory_kills() == 0
    ranks.VMSTAT.write_text(text)
    assert ranks.memory_kills() == kills


def test_a_process_that_was_killed_for_memory_is_said_to_be():
    killed = os.CLD_KILLED, int(signal.SIGKILL)
    assert ranks.ending_in_words(*killed, True) == "was killed by SIGKILL (the out-of-memory killer: memory ran out)"
    assert ranks.ending_in_words(*killed, False) == "was killed by SIGKILL (often the out-of-memory killer)"
    assert ranks.ending_in_words(os.CLD_KILLED, int(signal.SIGSEGV), True) == "was killed by SIGSEGV"
