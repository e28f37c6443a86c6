"""Slurm as the service sees it: one job for each slot, found by its name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ci.pools.drained import drained, folder_of
from ci.pools.types import Pools
from ci.runner import handover
from ci.runner.settings import Serving
from ci.runner.types import Away, ClusterJob, Denied, End
from ci.slurm.client import Slurm, SlurmAway, SlurmError
from ci.slurm.text import QueueRow

ENDS = {
    **dict.fromkeys(("BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"), End.LOST),
    **dict.fromkeys(("CANCELLED", "DEADLINE", "TIMEOUT"), End.STOPPED),
}
"""States of squeue(1) in which nobody asked the job how it ended; any other final state is OVER."""

EXTRA_MINUTES = 15
"""What a job of GitHub's may not take of its own minutes: the wait for a configuration (handover.PATIENCE_S), the copy
of the program, the end of the runner."""


class SlurmJobs:
    """Implements `types.Clusters` on one site."""

    def __init__(self, serving: Serving, pools: Pools, state: Path, slurm: Slurm) -> None:
        self._serving, self._pools, self._state, self._slurm = serving, pools, state, slurm

    def look(self, prefix: str) -> dict[str, ClusterJob]:
        """See `types.Clusters`.  Slurm forgets a job some minutes after its end (MinJobAge)."""
        with _asked():
            return {row.name: _job(row) for row in self._slurm.mine(prefix)}

    def submit(self, token: str, offer: str) -> str:
        """See `types.Clusters`."""
        script = handover.prepare(self._state, token, self.script(token), self._serving)
        with _asked():
            return self._slurm.sbatch(script, token, self.options(token, offer))

    def cancel(self, slurm: str, token: str) -> None:
        """See `types.Clusters`."""
        with _asked():
            self._slurm.scancel(slurm, token)

    def script(self, token: str) -> str:
        """The job: start.sh on the bare node.

        A leg of our workflows enters its pool's container itself (`ci.pools.command`), so that the code under test
        runs inside and the runner's credentials stay outside; a runner in the container could not start another.
        """
        return f"#!/bin/bash\n# A runner for one job of GitHub's; see ci/runner of Ridgeline.\n{self._command(token)}\n"

    def options(self, token: str, offer: str) -> list[str]:
        """How sbatch is called.  Nothing here is secret: Slurm shows options, script and environment to others."""
        found = self._serving.offer(offer)
        if found is None:
            raise Denied(f"the pool of {offer} is no longer in ci/runners.toml")
        pool = self._pools.pool(found.pool)
        site = self._pools.sites[pool.site]
        named = {
            "partition": pool.partition,
            "account": self._pools.account(pool),
            "gres": pool.gres_of(found.gpus),
            "constraint": pool.constraint,
            "time": pool.time or str(pool.minutes + EXTRA_MINUTES),
            "chdir": str(handover.folder(self._state, token)),
            "output": str(handover.log(self._state, token)),
        }
        given = [f"--{key}={value}" for key, value in named.items() if value]
        given += ["--exclusive"] * pool.exclusive
        given += [f"--exclude={','.join(away)}"] if (away := sorted(drained(folder_of(site)))) else []
        fixed = ["--nodes=1", "--ntasks=1", "--no-requeue", "--export=NONE", "--open-mode=append"]
        return [*site.sbatch, *pool.sbatch, *given, *fixed]

    def _command(self, token: str) -> str:
        return "exec " + shlex.join(handover.command(self._state, token, self._serving))


@contextmanager
def _asked() -> Iterator[None]:
    try:
        yield
    except SlurmAway as error:
        raise Away(str(error)) from error
    except SlurmError as error:
        raise Denied(str(error)) from error


def _job(row: QueueRow) -> ClusterJob:
    why = f"{row.state}, {row.reason}" if row.reason else row.state
    ended_badly = row.ended and row.state != "COMPLETED"
    told = ended_badly or (row.hopeless)
    return ClusterJob(row.array_id, row.name, _end(row), row.nodes, why if told else "")


def _end(row: QueueRow) -> End:
    if row.ended:
        return ENDS.get(row.state, End.OVER)
    return End.PENDING if row.waiting else End.RUNNING
