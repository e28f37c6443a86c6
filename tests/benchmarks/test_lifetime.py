"""Processes that end with the one that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import lifetime
from tests.kit import HANGS_S, ROOT, until


def starter(folder, command):
    """A process that starts `command` (an expression) and sleeps."""
    text = "import os, subprocess, sys, time\nfrom benchmarks import lifetime\n"
    text += f"subprocess.Popen({command})\ntime.sleep(60)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", text], cwd=folder, env=env, stderr=subprocess.DEVNULL)


PROGRAM = """
import os, time
from pathlib import Path
assert "RIDGELINE_STARTER" not in os.environ
try:
    Path("ready").write_text(str(os.getpid()))
    time.sleep(60)
finally:
    Path("tidied").touch()
"""


def test_a_program_is_hung_up_on_and_tidies(tmp_path):
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
def test_what_we_start_can_be_interrupted_however_we_were_started(tmp_path, command, ignored):
    """A shell has what it starts with `&` ignore SIGINT and SIGQUIT; a program that it starts itself goes on to."""
    (tmp_path / "program.py").write_text(IGNORED)
    env = lifetime.told(
        {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    )
    text = f"{command} & wait $!"
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=HANGS_S)
    assert done.stdout.strip() == ignored, done.stderr


INTERRUPTED = """
import signal, time, weakref
from benchmarks import lifetime
lifetime.interrupt_on(signal.SIGTERM)
class Object: pass
watched = Object()
watcher = weakref.ref(watched, lambda _: signal.raise_signal(signal.SIGTERM))
try:
    del watched
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_that_python_drops_comes_again():
    argv = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_a_program_whose_starter_is_gone_already_does_not_begin(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "program.py").write_text(PROGRAM)
    named = lifetime.told({})[lifetime.STARTER].replace(str(os.getpid()), str(gone.pid))
    env = {**os.environ, "PYTHONPATH": str(ROOT), lifetime.STARTER: named}
    argv = [sys.executable, "-m", "benchmarks.lifetime", "program"]
    assert subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, timeout=HANGS_S).returncode
    assert not (tmp_path / "ready").exists()


@pytest.mark.parametrize("named", ["", "nobody", f"{2**22}:another space"])
def test_without_a_starter_that_it_can_know_a_process_is_its_own(named):
    """In a container the number of the starter is that of another process."""
    environment = {lifetime.STARTER: named}
    before = signal.getsignal(signal.SIGHUP)
    lifetime.end_with_starter(environment=environment)
    assert (environment, signal.getsignal(signal.SIGHUP)) == ({}, before)


def test_a_script_may_stand_between_a_process_and_its_starter(tmp_path):
    """As a Python that is a script, which does not `exec`."""
    (tmp_path / "program.py").write_text("import os, benchmarks.lifetime\nprint(os.getpid())")
    script = f"{sys.executable} -m benchmarks.lifetime program; exit $?"
    env = lifetime.told({**os.environ, "PYTHONPATH": str(ROOT)})
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=HANGS_S)
    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr


def test_a_zombie_does_not_live_nor_what_is_at_its_end(monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    until(lambda: not lifetime.lives(ended.pid))
    ended.wait()
    assert not lifetime.lives(ended.pid)
    assert lifetime.lives(os.getpid())
    monkeypatch.setattr(lifetime, "PF_EXITING", -1)  # any flag
    assert not lifetime.lives(os.getpid())


# Orphans are found, known by name, and ended; what ends by itself is not counted.


PARENT = """
import json, os, subprocess, sys, time
from benchmarks import lifetime

def orphan(*argv):
    \"\"\"Start a program as the child of a child that ends at once.\"\"\"
    if not (child := os.fork()):
        subprocess.Popen(argv, start_new_session=True)
        os._exit(0)
    os.waitpid(child, 0)

before = lifetime.keeps_orphans()
lifetime.keep_orphans()
own = subprocess.Popen(["sleep", "60"])
for argv in json.loads(sys.argv[1]):
    orphan(*argv)
names = lifetime.end_strays(lambda child: child.process != own.pid, 0.5)
print(json.dumps({"before": before, "after": lifetime.keeps_orphans(), "names": names, "own": own.poll(),
                  "left": [child.name for child in lifetime.children()]}))
own.kill()
"""


@pytest.mark.parametrize(
    ("orphans", "names"),
    [
        ([], []),
        ([["true"], ["sleep", "0.1"]], []),
        ([["sh", "-c", "sleep 60; true"]], ["sh", "sleep"]),
        ([["sleep", "60"]] * 12, ["sleep"] * 10 + ["2 more"]),
    ],
)
def test_what_is_left_is_ended_and_named(orphans, names):
    program = [sys.executable, "-c", PARENT, json.dumps(orphans)]
    said = json.loads(subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert said == {"before": False, "after": True, "names": names, "own": None, "left": ["sleep"]}


def test_a_child_that_was_read_before_its_parent_ended_is_looked_for_again(monkeypatch):
    """/proc is read by number: where numbers begin again, a child comes before the parent that ends meanwhile."""
    left = subprocess.Popen(["sleep", "60"])
    ended = lifetime.Child(1, "python", 0, True)
    passes = iter([[ended], [lifetime.Child(left.pid, "sleep", 0, False)]])
    monkeypatch.setattr(lifetime, "children", lambda: next(passes, []))
    assert lifetime.end_strays(lambda child: True, 0) == ["sleep"]
    assert left.wait() == -signal.SIGKILL


# Cores, priority and limits of a process are put back after another one has changed them.


STANDING = """
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
def test_what_another_process_changed_is_put_back_where_it_may_be(who, found):
    done = subprocess.run([sys.executable, "-c", STANDING, who], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == found
