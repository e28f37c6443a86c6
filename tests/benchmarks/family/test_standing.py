"""Cores, priority and limits of a process are put back after another one has changed them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import json, os, resource, sys
from benchmarks.lifetime import ProcessStanding

def seen():
    limits = [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)]
    return [sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), limits]

def change(process):
    os.sched_setaffinity(process, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(process, os.SCHED_BATCH, os.sched_param(0))
    resource.prlimit(process, resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def lower():
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    if os.getuid() == 0:
        os.setuid(65534)

standing, before = ProcessStanding(), seen()
if not os.fork():
    (change(os.getppid()) if sys.argv[1] == "other" else None)
    os._exit(0)
os.wait()
if sys.argv[1] == "plain user":
    lower()
changed = seen() != before
print(json.dumps([changed, standing.restore(), seen() == before]))
"""


@pytest.mark.parametrize(
    ("who", "found"),
    [("nobody", [False, True, True]), ("other", [True, True, True]), ("plain user", [True, False, False])],
)
def test_what_another_process_changed_is_put_back_where_it_may_be(who: str, found: list[bool]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, who], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == found
