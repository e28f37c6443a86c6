"""Jobs of tasks on a real Slurm while it breaks: no trial is missing in the end, and nothing stays.

    python -m tests.ci.slurm.torture all --rounds 20 [--light]
    python -m tests.ci.slurm.torture kill spool

Scenarios:
    nodes       a slurmd is killed, later a whole node
    slurmd      each slurmd is restarted under a task that starts there, by TERM and by KILL
    term        the controller is restarted by TERM while tasks wait, start, run and end
    kill        the same by KILL, once it has saved the job (after 9 s)
    forgotten   the controller is killed before it has saved the job, and gives its id to another one
    state       the controller comes back with a state that is some seconds old
    spool       the disk of a node's spool is full, and then that of the controller's state (as root)
    controller  restarted by TERM and by KILL between nodes that die
    cancel      cancelled with a node lost, and taken up again
A job that is lost is taken up by the command that its message prints, and Slurm's drained nodes are resumed as an
administrator does.  A round that takes longer than 300 s is a fault, told with what it waited for.  A trial that two
copies of a task have measured is counted; it is no fault.
--light: tasks write their trials without measuring, for machines that have no CPU time to give.

The suite runs a small `nodes` and `forgotten`; this prints a line for each scenario, and exits with 1 after a fault.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ci.slurm import jobs
from ci.slurm.client import SlurmError
from ci.slurm.jobs import PREFIX, JobError, JobSpec, JobStatus, State
from tests.standins.slurm import NODES, USABLE, SlurmCluster, cluster, until

ROOT = Path(__file__).parents[3]
TOY = ROOT / "tests/benchmarks/toytree"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
POOL = """
[site.here]
[pool.all]
gpu = "MI300X"
gpus = [1]
container = "none"
isolation = "slurm"
venv = "{venv}"
site = "here"
partition = "all"
minutes = 30
"""
LIGHT = """
import json, os, sys, time, uuid
argument = lambda name: sys.argv[sys.argv.index(name) + 1]
out, first = argument("--out"), int(argument("--first-trial"))
known = open(out).read().count("\\n") if os.path.exists(out) else 0
for number in range(first + known, first + {trials}):
    time.sleep(2)
    with open(out, "a") as file:
        line = dict(kernel="steady", trial=number, id=uuid.uuid4().hex, machine=dict(name="m"))
        file.write(json.dumps(line) + "\\n")
"""
LIMIT_S = 300.0
"""Seconds of a round; one takes 20 to 60 s where nothing hangs."""

SAVED_S = 9.0
"""Seconds after which the controller has saved a job: at 8 s nothing was ever lost (Slurm 22.05 to 26.05)."""


class Torture:
    """A run of the toy kernel in tasks on a cluster, and what happens to it."""

    def __init__(self, broken: SlurmCluster, folder: Path, tasks: int, trials: int, light: bool = False) -> None:
        self.cluster, self.folder, self.tasks, self.trials, self.light = broken, folder, tasks, trials, light
        self.deadline = time.monotonic() + LIMIT_S
        self.resumed = 0
        self.job = self.submit()

    @property
    def jobs(self) -> Path:
        """The folder of the jobs."""
        return self.folder / "my jobs"

    @property
    def place(self) -> Path:
        """The folder of the job."""
        return self.jobs / self.job

    def submit(self) -> str:
        """Submit the run; its id."""
        runners = self.folder / "runners.toml"
        runners.write_text(POOL.format(venv=Path(sys.executable).parents[1]))
        argv = ["-m", "ci", "run", "--commit", COMMIT, "--commit-date", "0", "--tree", str(TOY)]
        argv += ["--kernel", "steady", "--case", "small", "--rounds", "3", "--trials", str(self.trials)]
        if self.light:
            argv = ["-c", LIGHT.format(trials=self.trials)]
        spec = JobSpec(
            "run", tuple(argv), str(ROOT), "all", str(runners), gpus=1, tasks=self.tasks, publishes=True, resumes=True,
            first_trial=0, trials=self.trials,
        )  # fmt: skip
        return jobs.submit(spec, self.jobs, self.cluster.slurm)

    # ---- waiting ----

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something is true or the job has ended; at most until the round's limit."""
        try:
            left = max(1.0, self.deadline - time.monotonic())
            over = f"{what} (limit of a round: {LIMIT_S:g} s)"
            until(lambda: condition() or self.status.state.is_final, over, left, every_s=0.3)
        except AssertionError as error:
            queue = [(row.id, row.state, row.reason) for row in self.rows() if not row.has_ended]
            raise AssertionError(f"{error}; {self.status}; {queue}; {self.cluster.nodes()}") from error

    @property
    def status(self) -> JobStatus:
        """Where the job is."""
        return jobs.status(self.place, self.cluster.slurm)

    def rows(self) -> list:
        """The rows of its Slurm jobs."""
        return self.cluster.slurm.rows(PREFIX + self.job)

    def lines(self, task: int) -> list[bytes]:
        """Trials of a task so far."""
        return jobs.attempt_lines(self.place, task)

    def measured(self) -> int:
        """Trials that are measured so far."""
        return sum(len(self.lines(task)) for task in range(self.tasks))

    def reach(self, share: float) -> None:
        """Wait until this share of the trials is measured."""
        wanted = max(1, round(share * self.tasks * self.trials))
        self.wait(lambda: self.measured() >= wanted, f"{wanted} trials")

    def another(self) -> None:
        """Wait for another trial."""
        seen = self.measured()
        self.wait(lambda: self.measured() > seen, "another trial")

    def at_work(self) -> list[str]:
        """Nodes that run one of our tasks."""
        return sorted({row.nodes for row in self.rows() if row.state == "RUNNING"})

    def a_node_at_work(self) -> str:
        """A node that runs one of our tasks; any node where the job has ended."""
        self.wait(self.at_work, "a task that runs")
        return next(iter(self.at_work()), min(NODES))

    def starting(self) -> list[str]:
        """Nodes on which a task has started that has made no file yet."""
        rows = [row for row in self.rows() if row.state == "RUNNING" and "_" in row.id]
        return [row.nodes for row in rows if not list(self.place.glob(f"{row.id.partition('_')[2]}-*.jsonl"))]

    def ends(self) -> bool:
        """Whether a task has measured its last trial."""
        return any(len(self.lines(task)) >= self.trials for task in range(self.tasks))

    # ---- the end ----

    def finish(self) -> Outcome:
        """Wait for the end, as somebody does who reads what is printed; what came of it."""
        while True:
            self.wait(self._mended, "the end of the job")
            if self.status.state not in (State.LOST, State.INCOMPLETE) or self.resumed == 3:
                break
            self._resume(self.status)
        status = self.status
        lines = [json.loads(line) for line in (self.place / "trials.jsonl").open()]
        numbers = Counter((line["kernel"], line["trial"]) for line in lines)
        until(lambda: not self.cluster.processes(), "the end of all processes", 30)
        return Outcome(
            str(status.state), status.reason, wanted=self.tasks * self.trials, trials=len(numbers),
            twice=len(lines) - len(numbers), unique=len({line["id"] for line in lines}) == len(lines),
            attempts=len(list(self.place.glob("*-*.jsonl"))), rounds=self._rounds(), resumed=self.resumed,
        )  # fmt: skip

    def _rounds(self) -> int:
        path = self.place / "round"
        return int(path.read_text()) if path.exists() else 0

    def _mended(self) -> bool:
        """False; and no node stays drained for what is over."""
        if not set(USABLE) & set(self.cluster.nodes().values()):
            self.cluster.mend()
        return False

    def _resume(self, status: JobStatus) -> None:
        """Run the very command that the message names."""
        assert status.exit_code, status
        command = shlex.split(re.findall(r"`ridgeline (.+?)`", status.reason)[0])
        argv = [sys.executable, "-m", "ci", *command]
        subprocess.run(argv, cwd=ROOT, env=self.cluster.env, check=True, timeout=60, stdout=subprocess.DEVNULL)
        self.resumed += 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a round ended.  twice: trials that two copies of a task have measured; rounds: how often the last job
    submitted missing tasks again; resumed: how often a lost job was taken up."""

    state: str
    reason: str
    wanted: int
    trials: int
    twice: int
    unique: bool
    attempts: int
    rounds: int
    resumed: int

    @property
    def sound(self) -> bool:
        """Every trial is there, and no line twice."""
        return self.state == "done" and self.trials == self.wanted and self.unique


# ---- scenarios ----


def nodes(run: Torture) -> None:
    """A slurmd dies, its jobs live on and are requeued; later a whole node dies."""
    run.reach(0.15)
    first = run.a_node_at_work()
    run.cluster.kill_slurmd(first)
    run.reach(0.4)
    run.cluster.bring_back(first)
    second = run.a_node_at_work()
    run.cluster.kill_node(second)
    run.reach(0.7)
    run.cluster.bring_back(second)


def slurmd(run: Torture) -> None:
    """Its jobs live on; one that it was starting may be gone, and is requeued by Slurm after BatchStartTimeout."""
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        run.wait(run.starting, "a task that starts")
        for node in set(run.starting()):
            run.cluster.restart_slurmd(node, number)
        run.another()


def term(run: Torture) -> None:
    """Tasks that start before the nodes have reported get no GPU, and are submitted again."""
    run.cluster.restart_controller()
    run.wait(run.starting, "a task that starts")
    run.cluster.restart_controller()
    run.reach(0.3)
    run.cluster.restart_controller()
    run.wait(run.ends, "a task that ends")
    run.cluster.restart_controller()


def kill(run: Torture) -> None:
    """What it did in the last seconds is forgotten: tasks that it had started are started anew."""
    time.sleep(SAVED_S)
    run.cluster.restart_controller(signal.SIGKILL)
    run.wait(run.ends, "a task that ends")
    run.cluster.restart_controller(signal.SIGKILL)
    run.wait(run.starting, "a task that starts")
    run.cluster.restart_controller(signal.SIGKILL)


def forgotten(run: Torture) -> None:
    """The job is lost, and its id belongs to another job of ours that asks for the same."""
    run.wait(run.starting, "a task that starts")
    run.cluster.restart_controller(signal.SIGKILL)
    other = run.submit()
    run.wait(lambda: jobs.status(run.jobs / other, run.cluster.slurm).state.is_final, "the job that took the id")
    run.wait(lambda: False, "the message that the job is lost")


def state(run: Torture) -> None:
    """Tasks that have ended since are started again, and what runs is unknown to the controller."""
    run.reach(0.15)
    time.sleep(SAVED_S / 3)
    old = run.cluster.keep_state()
    run.reach(0.5)
    run.cluster.restart_controller(signal.SIGKILL, state=old)


def spool(run: Torture) -> None:
    """Slurm drains the node and starts the task elsewhere; later the controller cannot save, and restarts."""
    node = min(NODES)
    with run.cluster.full(f"spool/{node}", f"slurmd.{node}"):
        run.reach(0.3)
    run.cluster.mend()
    with run.cluster.full("state", "slurmctld"):
        run.reach(0.6)
        run.cluster.restart_controller()
        run.reach(0.7)


def controller(run: Torture) -> None:
    """The controller restarts too, once by SIGKILL; it forgets nothing that is 8 s old."""
    run.reach(0.15)
    run.cluster.restart_controller()
    first = run.a_node_at_work()
    run.cluster.kill_slurmd(first)
    time.sleep(SAVED_S)
    run.cluster.restart_controller(signal.SIGKILL)
    run.cluster.bring_back(first)
    run.cluster.kill_node(second := run.a_node_at_work())
    run.reach(0.7)
    run.cluster.bring_back(second)


def cancel(run: Torture) -> None:
    """Cancelled with a node lost, and taken up again."""
    run.reach(0.15)
    first = run.a_node_at_work()
    run.cluster.kill_slurmd(first)
    jobs.cancel(run.place, run.cluster.slurm)
    run.cluster.bring_back(first)
    run.wait(lambda: False, "the end of the job that was cancelled")
    assert run.status.state is State.CANCELLED, run.status
    until(lambda: not run.cluster.processes(), "the end of all processes", 60)
    jobs.resume(run.place, run.cluster.slurm)
    run.reach(0.5)
    run.cluster.kill_node(second := run.a_node_at_work())
    run.reach(0.7)
    run.cluster.bring_back(second)


SCENARIOS: dict[str, Callable[[Torture], None]] = {
    one.__name__: one for one in (nodes, slurmd, term, kill, forgotten, state, spool, controller, cancel)
}

COLUMNS = "{:11} {:>6} {:>12} {:>6} {:>9} {:>8} {:>7} {:>8} {:>7}"


def play(name: str, rounds: int, tasks: int, trials: int, light: bool) -> int:
    """Play a scenario so many times and print its line; the number of faults, each of which is told at once."""
    begin, outcomes, faults = time.monotonic(), list[Outcome](), 0
    for number in range(1, rounds + 1):
        try:
            with cluster() as broken:
                run = Torture(broken, broken.prefix, tasks, trials, light)
                SCENARIOS[name](run)
                outcomes.append(run.finish())
            fault = "" if outcomes[-1].sound else str(outcomes[-1])
        except (AssertionError, OSError, subprocess.SubprocessError, JobError, SlurmError) as error:
            fault = f"{type(error).__name__}: {error}"
        faults += bool(fault)
        print(f"{name}, round {number} of {rounds}: {fault or outcomes[-1]}", file=sys.stderr, flush=True)
    wanted = f"{sum(one.trials for one in outcomes)}/{rounds * tasks * trials}"
    more = (sum(getattr(one, key) for one in outcomes) for key in ("twice", "attempts", "rounds", "resumed"))
    print(COLUMNS.format(name, rounds, wanted, *more, faults, round(time.monotonic() - begin)), flush=True)
    return faults


def main() -> int:
    """Play the scenarios; exit code 1 if a trial is missing, a process stays, or a round hangs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("scenarios", nargs="*", default=["all"], choices=["all", *SCENARIOS], metavar="SCENARIO")
    given = parser.parse_args()
    names = list(SCENARIOS) if "all" in given.scenarios else given.scenarios
    titles = ("scenario", "rounds", "trials", "twice", "attempts", "again", "resumed", "faults", "seconds")
    print(COLUMNS.format(*titles), flush=True)
    return 1 if sum(play(name, given.rounds, given.tasks, given.trials, given.light) for name in names) else 0


if __name__ == "__main__":
    sys.exit(main())
