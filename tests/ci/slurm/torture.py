"""Sharded runs on a real Slurm while it breaks: every trial is there once, and nothing stays.

    python -m tests.ci.slurm.torture all --rounds 20 [--light]
    python -m tests.ci.slurm.torture kill spool

Scenarios:
    nodes       a slurmd is killed, later a whole node
    slurmd      each slurmd is restarted under a shard that starts there, by TERM and by KILL
    term        the controller is restarted by TERM while shards wait, start, run and end
    kill        the same by KILL, once it has saved the job (after 9 s)
    forgotten   the controller is killed before it has saved the job, and gives its id to another one
    state       the controller comes back with a state that is some seconds old
    spool       the disk of a node's spool is full, and then that of the controller's state (as root)
    controller  restarted by TERM and by KILL between nodes that die
    cancel      cancelled with a node lost, and taken up again
A job that is lost is taken up by the command that its message prints, and Slurm's drained nodes are resumed as an
administrator does.  A round that takes longer than 300 s is a fault, told with what it waited for.
--light: shards write their trials without measuring, for machines that have no CPU time to give.

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

from ci import executors
from ci.executors import JobSpec, JobStatus, Sharding, State
from ci.executors.cluster import SlurmExecutor
from ci.executors.shard import Shard
from ci.slurm import SlurmError
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
    """A sharded run of the toy kernel on a cluster, and what happens to it."""

    def __init__(self, broken: SlurmCluster, folder: Path, shards: int, trials: int, light: bool = False) -> None:
        self.cluster, self.folder, self.shards, self.trials, self.light = broken, folder, shards, trials, light
        self.deadline = time.monotonic() + LIMIT_S
        self.place = SlurmExecutor(folder / "my jobs", broken.slurm)
        self.resumed = 0
        self.job = self.submit()

    def submit(self) -> str:
        """Submit the run; its id."""
        runners = self.folder / "runners.toml"
        runners.write_text(POOL.format(venv=Path(sys.executable).parents[1]))
        argv = ["python", "-m", "ci", "run", "--commit", COMMIT, "--commit-date", "0", "--tree", str(TOY)]
        argv += ["--kernel", "steady", "--case", "small", "--rounds", "3", "--trials", str(self.trials)]
        if self.light:
            argv = ["python", "-c", LIGHT.format(trials=self.trials)]
        sharding = Sharding(self.shards, publishes=True, resumes=True, first_trial=0, trials=self.trials)
        spec = JobSpec("run", 1, 600, 5, str(ROOT), pool="all", runners=str(runners), sharding=sharding)
        return self.place.submit(executors.script(argv, spec), spec)

    # ---- waiting ----

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something is true or the job has ended; at most until the round's limit."""
        try:
            left = max(1.0, self.deadline - time.monotonic())
            over = f"{what} (limit of a round: {LIMIT_S:g} s)"
            until(lambda: condition() or self.status.state.final, over, left, every_s=0.3)
        except AssertionError as error:
            queue = [(row.id, row.state, row.reason) for row in self.cluster.slurm.named(self.token) if not row.ended]
            nodes = self.cluster.nodes()
            raise AssertionError(f"{error}; {self.status.state}: {self.status.why}; {queue}; {nodes}") from error

    @property
    def status(self) -> JobStatus:
        """Where the job is."""
        return self.place.poll([self.job])[self.job]

    @property
    def all_shards(self) -> list[Shard]:
        """The shards of the job."""
        return [Shard(self.place.root / "jobs" / self.job / f"shards/{number}") for number in range(self.shards)]

    def published(self) -> int:
        """Trials that are published so far."""
        return sum(len(shard.published()) for shard in self.all_shards)

    def reach(self, share: float) -> None:
        """Wait until this share of the trials is published."""
        wanted = max(1, round(share * self.shards * self.trials))
        self.wait(lambda: self.published() >= wanted, f"{wanted} trials")

    def another(self) -> None:
        """Wait for another trial."""
        seen = self.published()
        self.wait(lambda: self.published() > seen, "another trial")

    def at_work(self) -> list[str]:
        """Nodes that run one of our shards."""
        return sorted({row.nodes for row in self.cluster.slurm.named(self.token) if row.state == "RUNNING"})

    def a_node_at_work(self) -> str:
        """A node that runs one of our shards; any node where the job has ended."""
        self.wait(self.at_work, "a shard that runs")
        return next(iter(self.at_work()), min(NODES))

    def starting(self) -> list[str]:
        """Nodes on which a shard has started that has not begun an attempt."""
        rows = (row for row in self.cluster.slurm.named(self.token) if row.state == "RUNNING" and "_" in row.id)
        return [row.nodes for row in rows if not self.all_shards[int(row.id.partition("_")[2])].numbers()]

    def ends(self) -> bool:
        """Whether a shard has published its last trial."""
        return any(len(shard.published()) == self.trials for shard in self.all_shards)

    @property
    def token(self) -> str:
        """The name of its Slurm job."""
        return str(json.loads((self.place.root / "jobs" / self.job / "slurm.json").read_text())["token"])

    # ---- the end ----

    def finish(self) -> Found:
        """Wait for the end, as somebody does who reads what is printed; what came of it."""
        while True:
            self.wait(self._mended, "the end of the job")
            if self.status.state is not State.LOST or self.resumed == 3:
                break
            self._take_up(self.status)
        status = self.status
        lines = [json.loads(line) for line in (self.place.root / "jobs" / self.job / "trials.jsonl").open()]
        numbers = Counter((line["kernel"], line["trial"]) for line in lines)
        until(lambda: not self.cluster.processes(), "the end of all processes", 30)
        return Found(
            str(status.state), status.why, wanted=self.shards * self.trials, trials=len(numbers),
            twice=len(lines) - len(numbers), ids=len({line["id"] for line in lines}),
            attempts=sum(len(shard.numbers()) for shard in self.all_shards),
            requeued=sum(len(shard.not_begun()) for shard in self.all_shards), resumed=self.resumed,
        )  # fmt: skip

    def _mended(self) -> bool:
        """False; and no node stays drained for what is over."""
        if not set(USABLE) & set(self.cluster.nodes().values()):
            self.cluster.mend()
        return False

    def _take_up(self, status: JobStatus) -> None:
        """Run the very command that the message names."""
        assert status.exit_code, status
        command = shlex.split(re.findall(r"`ridgeline (.+?)`", status.why)[0])
        argv = [sys.executable, "-m", "ci", *command]
        subprocess.run(argv, cwd=ROOT, env=self.cluster.env, check=True, timeout=60, stdout=subprocess.DEVNULL)
        self.resumed += 1


@dataclasses.dataclass(frozen=True)
class Found:
    """How a round ended.  twice: lines beyond the first of a trial; requeued: starts that came to no attempt;
    resumed: how often a lost job was taken up."""

    state: str
    why: str
    wanted: int
    trials: int
    twice: int
    ids: int
    attempts: int
    requeued: int
    resumed: int

    @property
    def sound(self) -> bool:
        """Every trial once."""
        return self.state == "done" and self.trials == self.wanted == self.ids and not self.twice


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
        run.wait(run.starting, "a shard that starts")
        for node in set(run.starting()):
            run.cluster.restart_slurmd(node, number)
        run.another()


def term(run: Torture) -> None:
    """Shards that start before the nodes have reported get no GPU, and requeue themselves."""
    run.cluster.restart_controller()
    run.wait(run.starting, "a shard that starts")
    run.cluster.restart_controller()
    run.reach(0.3)
    run.cluster.restart_controller()
    run.wait(run.ends, "a shard that ends")
    run.cluster.restart_controller()


def kill(run: Torture) -> None:
    """What it did in the last seconds is forgotten: shards that it had started are started anew."""
    time.sleep(SAVED_S)
    run.cluster.restart_controller(signal.SIGKILL)
    run.wait(run.ends, "a shard that ends")
    run.cluster.restart_controller(signal.SIGKILL)
    run.wait(run.starting, "a shard that starts")
    run.cluster.restart_controller(signal.SIGKILL)


def forgotten(run: Torture) -> None:
    """The job is lost, and its id belongs to another job of ours that asks for the same."""
    run.wait(run.starting, "a shard that starts")
    run.cluster.restart_controller(signal.SIGKILL)
    other = run.submit()
    run.wait(lambda: run.place.poll([other])[other].state.final, "the job that took the id")
    run.wait(lambda: False, "the message that the job is lost")


def state(run: Torture) -> None:
    """Shards that have ended since are started again, and what runs is unknown to the controller."""
    run.reach(0.15)
    time.sleep(SAVED_S / 3)
    old = run.cluster.keep_state()
    run.reach(0.5)
    run.cluster.restart_controller(signal.SIGKILL, state=old)


def spool(run: Torture) -> None:
    """Slurm drains the node and starts the shard elsewhere; later the controller cannot save, and restarts."""
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
    run.place.cancel(run.job)
    run.cluster.bring_back(first)
    run.wait(lambda: False, "the end of the job that was cancelled")
    assert run.status.state is State.CANCELLED, run.status
    until(lambda: not run.cluster.processes(), "the end of all processes", 60)
    run.place.resume(run.job)
    run.reach(0.5)
    run.cluster.kill_node(second := run.a_node_at_work())
    run.reach(0.7)
    run.cluster.bring_back(second)


SCENARIOS: dict[str, Callable[[Torture], None]] = {
    one.__name__: one for one in (nodes, slurmd, term, kill, forgotten, state, spool, controller, cancel)
}

COLUMNS = "{:11} {:>6} {:>12} {:>6} {:>9} {:>8} {:>7} {:>8} {:>7}"


def play(name: str, rounds: int, shards: int, trials: int, light: bool) -> int:
    """Play a scenario so many times and print its line; the number of faults, each of which is told at once."""
    begin, found, faults = time.monotonic(), list[Found](), 0
    for number in range(1, rounds + 1):
        try:
            with cluster() as broken:
                run = Torture(broken, broken.prefix, shards, trials, light)
                SCENARIOS[name](run)
                found.append(run.finish())
            fault = "" if found[-1].sound else str(found[-1])
        except (AssertionError, OSError, subprocess.SubprocessError, executors.ExecutorError, SlurmError) as error:
            fault = f"{type(error).__name__}: {error}"
        faults += bool(fault)
        print(f"{name}, round {number} of {rounds}: {fault or found[-1]}", file=sys.stderr, flush=True)
    wanted = f"{sum(one.trials for one in found)}/{rounds * shards * trials}"
    more = (sum(getattr(one, key) for one in found) for key in ("twice", "attempts", "requeued", "resumed"))
    print(COLUMNS.format(name, rounds, wanted, *more, faults, round(time.monotonic() - begin)), flush=True)
    return faults


def main() -> int:
    """Play the scenarios; exit code 1 if a trial is missing or twice, a process stays, or a round hangs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("scenarios", nargs="*", default=["all"], choices=["all", *SCENARIOS], metavar="SCENARIO")
    given = parser.parse_args()
    names = list(SCENARIOS) if "all" in given.scenarios else given.scenarios
    titles = ("scenario", "rounds", "trials", "twice", "attempts", "requeued", "resumed", "faults", "seconds")
    print(COLUMNS.format(*titles), flush=True)
    return 1 if sum(play(name, given.rounds, given.shards, given.trials, given.light) for name in names) else 0


if __name__ == "__main__":
    sys.exit(main())
