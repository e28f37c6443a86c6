"""A few kills of the loop (`python -m tests.ci.kills.torture`), and what it must notice."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci.kills import scenes


@pytest.mark.nightly
def test_a_few_kills_leave_nothing_behind(tmp_path: Path) -> None:
    """In a process of its own, to which orphans fall."""
    argv = [sys.executable, "-m", "tests.ci.kills.torture", "--times", "6", "--seed", "3"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(argv, cwd=scenes.ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "6 kills, 0 faults, seed 3"


def test_what_is_left_running_is_noticed(tmp_path: Path) -> None:
    text = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    program = f"""
import subprocess, sys
from tests.ci.kills import torture
torture.adopt_orphans()
subprocess.run([sys.executable, "-c", {text!r}])
late, left = torture.gone(0.2)
print(len(left), "time.sleep(60)" in torture.named(left[0]))
for one in left: torture.os.kill(one, 9)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=scenes.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True"]


def test_what_is_lost_or_torn_is_noticed(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
        scenes.build(folder)
    assert scenes.unsound(before, before) == []
    made = (after / "made.jsonl").read_text().splitlines(keepends=True)
    (after / "made.jsonl").write_text("".join(made[1:]) + made[0][:40])
    [torn, thin, *_] = sorted((after / "results").glob("*/0*-*.json"))
    torn.write_text(torn.read_text()[:-20])
    (notes,) = thin.parent.glob(f"{thin.stem}.*.notes.jsonl.gz")
    lines = gzip.decompress(notes.read_bytes()).splitlines(keepends=True)
    notes.write_bytes(gzip.compress(b"".join([lines[0], *lines[2:]])))
    said = "\n".join(scenes.unsound(after, before))
    assert "made.jsonl has lost lines" in said
    assert f"{torn} is torn" in said
    assert "has lost trials" in said
