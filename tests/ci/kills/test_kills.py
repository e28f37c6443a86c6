"""Verbs, and what they started, are killed with SIGKILL at random moments: nothing is lost, torn, or left running.

Each scene of `tests.ci.kills.scenes` runs once undisturbed.  Then it is killed, itself and once a process below it, at
moments from its start to its end; every process that it started must end, what lies there must be sound, and run once
more it must come to what the undisturbed one came to.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ci.__main__ import DOCUMENTED
from tests.ci.kills import scenes
from tests.kit import until

PR_SET_CHILD_SUBREAPER = 36
"""linux/prctl.h: whatever loses its parent becomes a child of this process, so that nothing can hide."""

HANGS_S = 300.0


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kills") / "template"
    folder.mkdir()
    scenes.build(folder)
    return folder


@pytest.fixture(autouse=True)
def _orphans():
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def below(process):
    """Descendants of a process that have not ended, of whatever depth; those of ours that have are waited for."""
    found = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                with contextlib.suppress(OSError):
                    state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
                    found += [child] * (state not in "ZX")
                found += below(child)
    return found


def started(folder):
    """Command lines of what runs in the environment of `start`: not a browser or a Slurm of other tests."""
    lines = []
    for process in below(os.getpid()):
        with contextlib.suppress(OSError):
            if os.fsencode(folder.parent / "locks") in Path(f"/proc/{process}/environ").read_bytes():
                lines.append(Path(f"/proc/{process}/cmdline").read_text())
    return lines


def await_end(folder):
    until(lambda: not started(folder), lambda: f"the end of {started(folder)}")


def start(scene, folder):
    env = {**os.environ, "PYTHONPATH": str(scenes.ROOT), "RIDGELINE_LOCKS": str(folder.parent / "locks")}
    with (folder.parent / "said").open("wb") as out:
        return subprocess.Popen(
            scenes.command(scene), cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )


def said(folder):
    return (folder / "said").read_text(errors="replace")[-1500:]


def outcome(scene, folder):
    code = start(scene, folder).wait(HANGS_S)
    await_end(folder)
    return scene.outcome(folder, code)


@pytest.mark.nightly
@pytest.mark.parametrize("scene", scenes.SCENES, ids=lambda scene: scene.name)
def test_a_killed_command_leaves_nothing_torn_or_running_and_goes_on(scene, template, tmp_path):
    chance = random.Random(scene.name)
    shutil.copytree(template, tmp_path / "undisturbed")
    began = time.monotonic()
    wanted = outcome(scene, tmp_path / "undisturbed")
    seconds = time.monotonic() - began
    for deep in (False, True):
        folder = tmp_path / f"killed-{deep}"
        shutil.copytree(template, folder)
        process = start(scene, folder)
        time.sleep(chance.random() * seconds)
        victim = chance.choice(below(process.pid) or [process.pid]) if deep else process.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        code = process.wait(HANGS_S)
        await_end(folder)
        assert scenes.unsound(folder, template) == []
        if victim == process.pid:
            assert outcome(scene, folder) == wanted, said(tmp_path)
        else:
            assert (code in DOCUMENTED, "this is a defect" in said(tmp_path)) == (True, False), said(tmp_path)
