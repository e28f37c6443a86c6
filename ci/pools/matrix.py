"""The legs of GitHub's workflows: one for each pool and size, with the text that it runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from ci.calling import VERBS
from ci.pools.command import cleaning, wrapped
from ci.pools.types import NO_GPU, Container, Pool, Pools, PoolsError

CALL = ("python", *VERBS)
"""How a verb of ours is called inside a pool's environment."""
VERB = f"write `{' '.join(CALL)} VERB ...`"


@dataclasses.dataclass(frozen=True)
class Leg:
    """One job of a workflow's matrix.

    name: unique, POOL-GPUS; of its status, its comment section and its artifact.  gpu, gpus: what its trials must be
    of.  runs_on: as a workflow takes it.  script: what it runs, with bash.  clean: what it runs before the checkout.
    """

    name: str
    pool: str
    gpu: str
    gpus: int
    runs_on: list[str] | dict[str, str | list[str]]
    minutes: int
    clean: str
    script: str


def legs(pools: Pools, argv: Sequence[str], only: Sequence[str] = (), gpus: int | None = None) -> list[Leg]:
    """Of all pools that GitHub's runners serve, or of those named; of all their sizes, or of one.

    Raises PoolsError for a pool that is unknown or has no runner, and where no pool offers the size.
    """
    chosen = [pools.pool(name) for name in only] or list(pools.pools.values())
    for pool in chosen:
        if only and pools.runner_of(pool) is None:
            raise PoolsError(f"pool {pool.name!r} has no runs_on: no GitHub runner serves it; add it, or use Slurm")
    wanted = [(pool, size) for pool in chosen for size in pool.gpus if gpus is None or size == gpus]
    found = [leg(pools, pool, size, argv) for pool, size in wanted if pools.runner_of(pool)]
    if not found:
        offered = f"jobs of {gpus} GPUs" if gpus is not None else "runs_on"
        raise PoolsError(f"no pool of {', '.join(one.name for one in chosen)} offers {offered}; ask for other pools")
    return found


def leg(pools: Pools, pool: Pool, gpus: int, argv: Sequence[str]) -> Leg:
    """One leg of a pool that a runner serves.  Where that is the runner of a login node, it submits the job."""
    runner = pools.runner_of(pool)
    assert runner is not None
    if pool.runs_on is None:
        pool_here, size = login(pool), 0
        argv = submission(pool, gpus, argv)
    else:
        pool_here, size = pool, gpus
    clean, script = cleaning(pool_here), wrapped(pool_here, argv, size, preflight=pool_here is pool)
    value = runner.sized(gpus).value
    return Leg(f"{pool.name}-{gpus}", pool.name, pool.gpu, gpus, value, pool.minutes, clean, script)


def login(pool: Pool) -> Pool:
    """The login node of a pool's site: it has no GPU and no container."""
    return Pool(f"{pool.name}-login", NO_GPU, (0,), 0, container=Container.NONE, minutes=pool.minutes)


def submission(pool: Pool, gpus: int, argv: Sequence[str]) -> list[str]:
    """What a login node runs, so that Slurm runs `argv`, a verb of ours.  Raises PoolsError for another program."""
    if tuple(argv[:3]) != CALL or not argv[3:]:
        said = " ".join(argv)
        raise PoolsError(f"{said!r:.100} cannot be submitted: jobs of pool {pool.name!r} go to Slurm; {VERB}")
    where = ["--executor", "slurm", "--on", pool.name, "--gpus", str(gpus), "--wait"]
    return [*CALL, "jobs", "submit", *where, "--", *argv[3:]]


def as_json(found: Sequence[Leg]) -> str:
    """One line, for `fromJSON` in a workflow."""
    return json.dumps([dataclasses.asdict(one) for one in found])
