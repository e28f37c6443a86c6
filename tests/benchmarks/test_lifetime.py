"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import lifetime

ROOT = Path(__file__).parents[2]
LIMIT_S = 45.0


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def starter(folder: Path, command: str) -> subprocess.Popen[bytes]:
    """A process that starts `command` (an expression) and sleeps."""
    text = "import os, subprocess, sys, time\nfrom benchmarks import lifetime\n"
    text += f"subprocess.Popen({command})\ntime.sleep(60)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", text], cwd=folder, env=env, stderr=subprocess.DEVNULL)


PROGRAM = """
import os, time
from pathlib import Path
assert "RIDGELINE_STARTER" not in os.environ
Path("ready").write_text(str(os.getpid()))
try:
    time.sleep(60)
finally:
    Path("tidied").touch()
"""


def test_a_program_is_hung_up_on_and_tidies(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    launched = "[sys.executable, '-m', 'benchmarks.lifetime', 'program'], env=lifetime.told(os.environ)"
    parent = starter(tmp_path, f"{launched}, start_new_session=True")
    until(lambda: (tmp_path / "ready").exists() and (tmp_path / "ready").read_text())
    child = int((tmp_path / "ready").read_text())
    parent.kill()
    parent.wait()
    until(lambda: not lifetime.lives(child))
    assert (tmp_path / "tidied").exists()


IGNORED = r"""
import subprocess
below = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True).stdout
mask = int(below.split()[1], 16)
print([number for number in (2, 3) if mask >> (number - 1) & 1], flush=True)
"""


@pytest.mark.parametrize(
    ("command", "ignored"), [("python -m program", "[2, 3]"), ("python -m benchmarks.lifetime program", "[]")]
)
def test_what_we_start_can_be_interrupted_however_we_were_started(tmp_path: Path, command: str, ignored: str) -> None:
    """A shell has what it starts with `&` ignore SIGINT and SIGQUIT; a program that it starts itself goes on to."""
    (tmp_path / "program.py").write_text(IGNORED)
    env = lifetime.told(
        {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    )
    text = f"{command} & wait $!"
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout.strip() == ignored, done.stderr


def test_a_program_whose_starter_is_gone_already_does_not_begin(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "program.py").write_text(PROGRAM)
    named = lifetime.told({})[lifetime.STARTER].replace(str(os.getpid()), str(gone.pid))
    env = {**os.environ, "PYTHONPATH": str(ROOT), lifetime.STARTER: named}
    argv = [sys.executable, "-m", "benchmarks.lifetime", "program"]
    assert subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, timeout=LIMIT_S).returncode
    assert not (tmp_path / "ready").exists()


@pytest.mark.parametrize("named", ["", "nobody", f"{2**22}:another space"])
def test_without_a_starter_that_it_can_know_a_process_is_its_own(named: str) -> None:
    """In a container the number of the starter is that of another process."""
    environment = {lifetime.STARTER: named}
    before = signal.getsignal(signal.SIGHUP)
    lifetime.end_with_starter(environment=environment)
    assert (environment, signal.getsignal(signal.SIGHUP)) == ({}, before)


def test_a_script_may_stand_between_a_process_and_its_starter(tmp_path: Path) -> None:
    """As a Python that is a script, which does not `exec`."""
    (tmp_path / "program.py").write_text("import os, benchmarks.lifetime\nprint(os.getpid())")
    script = f"{sys.executable} -m benchmarks.lifetime program; exit $?"
    env = lifetime.told({**os.environ, "PYTHONPATH": str(ROOT)})
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=LIMIT_S)
    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr


def test_a_zombie_does_not_live() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    until(lambda: not lifetime.lives(ended.pid))
    ended.wait()
    assert not lifetime.lives(ended.pid)
    assert lifetime.lives(os.getpid())
