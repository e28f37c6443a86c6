"""Commands are killed with SIGKILL at random moments, over and over: nothing is lost, torn, or left running.

    python -m tests.ci.kills.torture [--times 200] [--seed 0]

Each scene of `tests.ci.kills.scenes` is run once undisturbed.  Then copies of its repository see it killed up to three
times, at moments from its start to its end: mostly itself, sometimes a process that it started, at any depth.  After
each kill every process that it started must end within LIMIT_S, and what lies there must be sound; then it is run to
its end, and what comes of it must be what came of the undisturbed one.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.ci.kills.scenes import ROOT, SCENES, Scene, build, command, unsound

PR_SET_CHILD_SUBREAPER = 36
"""linux/prctl.h: whatever loses its parent becomes a child of this process, so that nothing can hide."""

LIMIT_S = 5.0
"""Until then the last process has ended: SIGKILL acts at once, SIGHUP as soon as Python runs, on a busy machine."""

DEEP = 0.4
"""Share of the kills that are to hit a process below the command; many a command has none at first."""

CODES = (0, 1, 2, 3, 130)
"""Exit codes that are documented."""

HANGS_S = 300.0


@dataclasses.dataclass
class Tally:
    """What came of the kills of one scene.  late: seconds until the last process had ended, the longest."""

    scene: str
    kills: int = 0
    mains: int = 0
    finished: int = 0
    late: float = 0.0
    faults: list[str] = dataclasses.field(default_factory=list)

    def line(self) -> str:
        """For people."""
        others = self.kills - self.mains
        said = f"{self.scene:<12} {self.kills:>3} kills ({others} of a child), {self.finished} runs to the end equal"
        return "\n  ".join(
            [f"{said}, last process gone after {self.late:.2f} s, {len(self.faults)} faults", *self.faults]
        )


# ---- processes -------------------------------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """See PR_SET_CHILD_SUBREAPER."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this kernel has no subreapers; Linux 3.4 has")


def below(process: int) -> Iterator[int]:
    """Descendants of a process that have not ended."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state not in "ZX":
            parents.setdefault(int(parent), []).append(int(entry.parent.name))
    waiting = [process]
    while waiting:
        found = parents.get(waiting.pop(), [])
        waiting += found
        yield from found


def _any_below(process: subprocess.Popen[bytes], chance: random.Random) -> int | None:
    """One of its descendants, waited for; None if it ends, or has none for a while."""
    until = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until:
        if found := list(below(process.pid)):
            return chance.choice(found)
        time.sleep(0.005)
    return None


def gone(limit_s: float) -> tuple[float, list[int]]:
    """Wait until nothing runs below this process: how long that took, and what is left."""
    began = time.monotonic()
    while left := list(below(os.getpid())):
        if time.monotonic() - began > limit_s:
            break
        time.sleep(0.01)
        _reap()
    _reap()
    return time.monotonic() - began, left


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def named(process: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:300].strip()
    except OSError:
        return f"process {process}"


# ---- one scene -------------------------------------------------------------------------------------------------------


class Stage:
    """One scene: its repository as it was, what comes of it undisturbed, and how long that takes."""

    def __init__(self, scene: Scene, template: Path, folder: Path) -> None:
        self.scene, self.template, self.folder = scene, template, folder
        self.tally = Tally(scene.name)
        self._new()
        began = time.monotonic()
        self.wanted = self._to_the_end()
        self.seconds = time.monotonic() - began

    def attack(self, chance: random.Random, kills: int) -> None:
        """Kill it that often in one repository, then run it to its end."""
        self._new()
        for _ in range(kills):
            self._kill(chance.random() * 1.05 * self.seconds, chance.random() < DEEP, chance)
            if self.tally.faults:
                return
        found = self._to_the_end()
        if found != self.wanted:
            said = self._said()
            self.tally.faults.append(f"it came to {str(found)[:900]}\n  and not to {str(self.wanted)[:900]}\n  {said}")
        self.tally.finished += 1

    def _new(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)

    def _start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "RIDGELINE_LOCKS": str(self.folder.parent / "locks")}
        with (self.folder / "printed").open("wb") as out, (self.folder.parent / "said").open("wb") as said:
            return subprocess.Popen(
                command(self.scene), cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=said
            )

    def _to_the_end(self) -> object:
        code = self._ended(self._start())
        late, left = gone(LIMIT_S)
        self._note(late, left, "it ended by itself")
        (self.folder / "printed").unlink()
        return self.scene.outcome(self.folder, code)

    def _kill(self, after_s: float, deep: bool, chance: random.Random) -> None:
        """Kill it, or something below it, and look at what is left."""
        process = self._start()
        time.sleep(after_s)
        child = _any_below(process, chance) if deep else None
        victim = child or process.pid
        what = f"killed after {after_s:.2f} s: {named(victim)}"
        ended = process.poll() is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        code = self._ended(process)
        late, left = gone(LIMIT_S)
        self.tally.kills += not ended
        self.tally.mains += not ended and child is None
        self._note(late, left, what)
        if child is not None:
            self._of_a_child(code, what)
        self.tally.faults += [f"{what}: {one}" for one in unsound(self.folder, self.template)]

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        """Its exit code; one that does not end is a fault, and is killed."""
        try:
            return process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            self.tally.faults.append(f"still running after {HANGS_S:g} s: {self._said()}")
            process.kill()
            return process.wait()

    def _of_a_child(self, code: int, what: str) -> None:
        """A command that lost a child says so; what it measured of the loss is no part of an undisturbed outcome."""
        if code not in CODES or "this is a defect" in self._said():
            self.tally.faults.append(f"{what}: exit code {code}: {self._said()}")
        self._new()

    def _said(self) -> str:
        """The end of what the command wrote to stderr."""
        return (self.folder.parent / "said").read_text(errors="replace")[-1500:]

    def _note(self, late: float, left: Sequence[int], what: str) -> None:
        self.tally.late = max(self.tally.late, late)
        self.tally.faults += [f"{what}: left running: {named(one)}" for one in left]
        for one in left:
            os.kill(one, signal.SIGKILL)


def torture(times: int, seed: int, folder: Path) -> list[Tally]:
    """Kill the scenes in turn, `times` in all; a line for each as it is done."""
    adopt_orphans()
    template, chance = folder / "template", random.Random(seed)
    template.mkdir(parents=True)
    build(template)
    tallies = []
    for number, scene in enumerate(SCENES):
        share = times // len(SCENES) + (number < times % len(SCENES))
        stage = Stage(scene, template, folder / "stage")
        while stage.tally.kills < share and not stage.tally.faults:
            stage.attack(chance, min(chance.randint(1, 3), share - stage.tally.kills))
        tallies.append(stage.tally)
        print(f"{stage.tally.line()} ({stage.seconds:.1f} s undisturbed)", flush=True)
    return tallies


def main() -> int:
    """0 if nothing was lost, torn or left running."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as place:
        tallies = torture(asked.times, asked.seed, Path(place))
    kills, faults = sum(one.kills for one in tallies), sum(len(one.faults) for one in tallies)
    print(f"{kills} kills, {faults} faults, seed {asked.seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
