"""Orphans are found, known by name, and ended; what ends by itself is not counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PARENT = """
import json, os, subprocess, sys, time
from benchmarks import lifetime

def orphan(*argv):
    \"\"\"Start a program as the child of a child that ends at once.\"\"\"
    if not os.fork():
        subprocess.Popen(argv, start_new_session=True)
        os._exit(0)

before = lifetime.keeps_orphans()
lifetime.keep_orphans()
own = subprocess.Popen(["sleep", "60"])
for argv in json.loads(sys.argv[1]):
    orphan(*argv)
time.sleep(0.2)
names = lifetime.end_strays(lambda child: child.process != own.pid, 0.3)
print(json.dumps({"before": before, "after": lifetime.keeps_orphans(), "names": names, "own": own.poll(),
                  "left": [child.name for child in lifetime.children()]}))
own.kill()
"""


@pytest.mark.parametrize(
    ("orphans", "names"),
    [
        ([], []),
        ([["sleep", "60"]], ["sleep"]),
        ([["true"], ["sleep", "0.3"]], []),
        ([["sh", "-c", "sleep 60; true"]], ["sh", "sleep"]),
        ([["sleep", "60"]] * 12, ["sleep"] * 10 + ["2 more"]),
    ],
    ids=["none", "one", "those that end", "a family", "many"],
)
def test_what_is_left_is_ended_and_named(orphans, names):
    program = [sys.executable, "-c", PARENT, json.dumps(orphans)]
    said = json.loads(subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert said == {"before": False, "after": True, "names": names, "own": None, "left": ["sleep"]}
