"""The legs of GitHub's workflows: one for each pool and size, with the text that it runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from ci.pools.command import cleaning, wrapped
from ci.pools.types import Pool, Pools, PoolsError


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
        if only and pool.runs_on is None:
            raise PoolsError(f"pool {pool.name!r} has no runs_on: no GitHub runner serves it; add it, or use Slurm")
    found = [
        leg(pool, size, argv) for pool in chosen if pool.runs_on for size in pool.gpus if gpus is None or size == gpus
    ]
    if not found:
        wanted = f"jobs of {gpus} GPUs" if gpus is not None else "runs_on"
        raise PoolsError(f"no pool of {', '.join(one.name for one in chosen)} offers {wanted}; ask for other pools")
    return found


def leg(pool: Pool, gpus: int, argv: Sequence[str]) -> Leg:
    """One leg of a pool that has runs_on."""
    assert pool.runs_on is not None
    runs_on, script = pool.runs_on.sized(gpus).value, wrapped(pool, argv, gpus)
    return Leg(f"{pool.name}-{gpus}", pool.name, pool.gpu, gpus, runs_on, pool.minutes, cleaning(pool), script)


def as_json(found: Sequence[Leg]) -> str:
    """One line, for `fromJSON` in a workflow."""
    return json.dumps([dataclasses.asdict(one) for one in found])
