"""Sharded runs of real measurements on a real Slurm while it breaks: every trial is there once, and nothing stays.

    python -m tests.ci.slurm.torture [--shards 8] [--trials 3] [SCENARIO ...]

Scenarios: `nodes` (a slurmd is killed, later a whole node), `controller` (also restarted, tidily and by SIGKILL),
`cancel` (cancelled in between, and taken up again).  The suite runs a small `nodes`; this prints a line for each.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ci import executors
from ci.executors import JobSpec, Sharding, State
from ci.executors.attempt import Shard
from ci.executors.cluster import SlurmExecutor
from tests.standins.slurm import SlurmCluster, cluster, until

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
LIMIT_S = 900.0


class Torture:
    """A sharded run of the toy kernel on a cluster, and what happens to it."""

    def __init__(self, broken: SlurmCluster, folder: Path, shards: int, trials: int) -> None:
        self.cluster, self.folder, self.shards, self.trials = broken, folder, shards, trials
        self.place = SlurmExecutor(folder / "my jobs", broken.slurm, ask_s=0.5)
        self.job = self._submit()

    def _submit(self) -> str:
        runners = self.folder / "runners.toml"
        runners.write_text(POOL.format(venv=Path(sys.executable).parents[1]))
        argv = ["python", "-m", "ci", "run", "--commit", COMMIT, "--commit-date", "0", "--tree", str(TOY)]
        argv += ["--kernel", "steady", "--case", "small", "--rounds", "3", "--trials", str(self.trials)]
        sharding = Sharding(self.shards, publishes=True, resumes=True, first_trial=0, trials=self.trials)
        spec = JobSpec("run", 1, 600, 5, str(ROOT), pool="all", runners=str(runners), sharding=sharding)
        return self.place.submit(executors.script(argv, spec), spec)

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
        until(lambda: self.published() >= wanted, f"{wanted} trials", LIMIT_S)

    def a_node_at_work(self) -> str:
        """A node that runs one of our shards."""

        def working() -> list[str]:
            return sorted({row.nodes for row in self.cluster.slurm.named(self.token) if row.state == "RUNNING"})

        until(working, "a shard that runs", LIMIT_S)
        return working()[0]

    @property
    def token(self) -> str:
        """The name of its Slurm job."""
        return str(json.loads((self.place.root / "jobs" / self.job / "slurm.json").read_text())["token"])

    def finish(self) -> dict[str, object]:
        """Wait for the end; what came of it."""
        until(lambda: self.place.poll([self.job])[self.job].state.final, "the end", LIMIT_S)
        status = self.place.poll([self.job])[self.job]
        lines = [json.loads(line) for line in (Path(status.log).parents[4] / "trials.jsonl").read_text().splitlines()]
        numbers = Counter((line["kernel"], line["trial"]) for line in lines)
        until(lambda: not self.cluster.processes(), "the end of all processes", 30)
        return {
            "state": str(status.state),
            "why": status.why,
            "trials": len(numbers),
            "wanted": self.shards * self.trials,
            "double": sum(count - 1 for count in numbers.values()),
            "ids": len({line["id"] for line in lines}),
            "attempts": sum(len(shard.numbers()) for shard in self.all_shards),
            "stray": len(self.cluster.processes()),
        }


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


def controller(run: Torture) -> None:
    """The controller restarts too, once by SIGKILL; it forgets nothing that is 8 s old."""
    run.reach(0.15)
    run.cluster.restart_controller()
    first = run.a_node_at_work()
    run.cluster.kill_slurmd(first)
    time.sleep(9)
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
    until(lambda: run.place.poll([run.job])[run.job].state is State.CANCELLED, "the end", LIMIT_S)
    until(lambda: not run.cluster.processes(), "the end of all processes", 60)
    run.place.resume(run.job)
    run.reach(0.5)
    run.cluster.kill_node(second := run.a_node_at_work())
    run.reach(0.7)
    run.cluster.bring_back(second)


SCENARIOS: dict[str, Callable[[Torture], None]] = {"nodes": nodes, "controller": controller, "cancel": cancel}


def main() -> int:
    """Run the scenarios; exit code 1 if a trial is missing or double, or a process stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("scenarios", nargs="*", choices=[[], *SCENARIOS], metavar="SCENARIO")
    given = parser.parse_args()
    bad = 0
    for name in given.scenarios or SCENARIOS:
        begin = time.monotonic()
        with cluster() as broken, tempfile.TemporaryDirectory(prefix="ridgeline-torture-") as folder:
            run = Torture(broken, Path(folder), given.shards, given.trials)
            SCENARIOS[name](run)
            found = run.finish()
        bad += not sound(found)
        print(json.dumps({"scenario": name, **found, "seconds": round(time.monotonic() - begin)}), flush=True)
    return 1 if bad else 0


def sound(found: dict[str, object]) -> bool:
    """Every trial once, nothing left, and at least one shard was begun anew."""
    once = found["trials"] == found["wanted"] == found["ids"] and found["double"] == 0
    return bool(once and found["state"] == "done" and found["stray"] == 0)


if __name__ == "__main__":
    sys.exit(main())
