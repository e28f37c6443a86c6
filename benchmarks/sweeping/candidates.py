"""What a sweep could try of kernels, asked of a checkout in a process of its own; needs no GPU where --arch is given.

python -m benchmarks candidates --kernel gemm --case 'n4096_k4096_*' --arch gfx942 --json
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from benchmarks.coordinator.checkouts import START_S, Checkout, CheckoutError
from benchmarks.coordinator.declared_names import refuse_unknown
from benchmarks.coordinator.ranks import PoolDied, StepFailed, WorkerPool
from benchmarks.coordinator.worker_pools import make_directories, remove_directories, started
from benchmarks.plan import UsageError
from kernels import hardware


@dataclasses.dataclass(frozen=True)
class CandidateRequest:
    """Which cases (shell patterns) and backends of kernels; empty means all.  arch: None for the first device here."""

    kernels: Sequence[str]
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    arch: str | None = None
    compute_units: int | None = None


def ask(checkout: Checkout, wanted: CandidateRequest) -> dict[str, Any]:
    """{"kernels", "arch", "compute_units", "entries"}, see benchmarks.worker.candidates.

    UsageError for a kernel, case, backend or architecture that does not exist.
    """
    known = ("cpu", *dict.fromkeys(device.arch for device in hardware.DEVICES))
    if wanted.arch and wanted.arch not in known:
        raise UsageError(f"architecture {wanted.arch!r} is not known; known: {', '.join(known)}")
    refuse_unknown(wanted.kernels, [checkout])
    directory = make_directories()
    try:
        with started("candidates", checkout.python, checkout.path, 1, directory) as pool:
            return _answer(pool, wanted)
    except StepFailed as error:
        raise UsageError(error.failure.why) from error
    except PoolDied as error:
        raise CheckoutError(f"{checkout.path}: {error.failure.why}\n{error.failure.detail}") from error
    finally:
        remove_directories(directory)


def _answer(pool: WorkerPool, wanted: CandidateRequest) -> dict[str, Any]:
    place = {"arch": wanted.arch, "compute_units": wanted.compute_units}
    if not wanted.arch:
        [seen] = pool.ask("looking for devices", START_S, "probe")
        device = (seen["devices"] or [{"arch": "cpu", "compute_units": None}])[0]
        place = {"arch": device["arch"], "compute_units": wanted.compute_units or device["compute_units"]}
    which = {"cases": list(wanted.cases), "backends": list(wanted.backends), "place": place}
    entries = list[dict[str, Any]]()
    for kernel in wanted.kernels:
        entries += pool.ask("listing candidates", START_S, "candidates", kernel=kernel, **which)[0]
    return {"kernels": list(wanted.kernels), **place, "entries": entries}
