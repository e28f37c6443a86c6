"""What runs below a process is counted whole, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.coordinator.processes import crowd

FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE)
input()
"""


def test_children_of_children_count(monkeypatch):
    before = crowd.below([os.getpid()])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FAMILY], **pipes) as parent:
        assert parent.stdout.readline() == b"ready\n"
        assert crowd.below([os.getpid()]) == before + 2
        assert crowd.below([parent.pid]) == 1
        assert crowd.below([parent.pid, os.getpid()]) == before + 2
        parent.stdin.close()


def test_it_has_grown_when_there_are_that_many_more(monkeypatch):
    monkeypatch.setattr(crowd, "_all", lambda: 100)
    seen = crowd.Crowd()
    monkeypatch.setattr(crowd, "_all", lambda: 100 + crowd.MOST_PROCESSES)
    assert not seen.grown()
    monkeypatch.setattr(crowd, "_all", lambda: 101 + crowd.MOST_PROCESSES)
    assert seen.grown()
