"""What a site of a long history costs: CPU seconds and the peak of memory of `ridgeline site`.

    python -m tests.study.site_at_scale --series 3000 --commits 1000

Made records of one machine in a temporary folder, read once (their rows lie in results/.cache): the site from nothing,
after one more commit, and with nothing changed.  One series in a hundred has a step.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ci.records.cache import Column, digest_of, table_of, write_rows

MACHINE, ENV = "mi300x-8-0f3a9c1e", "py3.12-torch2.11.0-triton3.6.0"
BACKENDS = ("triton", "gluon", "hipblaslt")
"""The last one is the library."""
CASES_OF_KERNEL = 25
FIRST_MS, DAY_MS = 1_700_000_000_000, 86_400_000


class MadeRecords:
    """Times of series over commits, written a record at a time."""

    def __init__(self, results: Path, series: int, commits: int) -> None:
        self.results, self.cases = results, math.ceil(series / len(BACKENDS))
        rng = np.random.default_rng(7)
        shape = commits, self.cases, len(BACKENDS)
        level = rng.lognormal(np.log(2e-4), 1, (1, self.cases, 1)) * np.ones((1, 1, len(BACKENDS)))
        self.seconds = level * np.exp(rng.normal(0, 0.01, (commits, 1, 1)) + rng.normal(0, 0.003, shape))
        for case in range(0, self.cases, 100):
            self.seconds[rng.integers(commits // 4, commits - commits // 4) :, case, 0] *= 1.05

    def write(self, commit: int) -> None:
        """The record of a commit, as if it had been read before."""
        name = f"{commit:08x}{'0' * 32}"
        path = self.results / MACHINE / f"{name[:8]}-{ENV}.{commit:012x}.notes.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(f"{commit}\n".encode(), 1, mtime=0))
        digest = digest_of(f"{MACHINE}/{name[:8]}-{ENV}", [path])
        columns = self.columns(commit) | {"commit": name, "date": FIRST_MS + commit * DAY_MS}
        write_rows(self.results / ".cache" / f"{digest}.parquet", table_of(columns, self.cases * len(BACKENDS)))

    def columns(self, commit: int) -> dict[str, Column]:
        """What a record says of each case and backend."""
        seconds = self.seconds[commit]
        library = [name == BACKENDS[-1] for name in BACKENDS] * self.cases
        ratio: npt.NDArray[np.float64] = np.where(library, np.nan, (seconds[:, -1:] / seconds).ravel())
        kernels, cases = zip(*((f"kernel{n // CASES_OF_KERNEL:02}", f"m{n}") for n in range(self.cases)), strict=True)
        return {
            "machine": MACHINE,
            "kind": "gpu",
            "arch": "gfx942",
            "device": "AMD Instinct MI300X",
            "env": ENV,
            "market_name": "MI300X",
            "count": 8,
            "compute_units": 304.0,
            "memory_bytes": 2.0e11,
            "tier": "pr",
            "kernel": [name for name in kernels for _ in BACKENDS],
            "case": [name for name in cases for _ in BACKENDS],
            "backend": list(BACKENDS) * self.cases,
            "baseline": library,
            "dtype": "bf16",
            "status": "ok",
            "method": "events",
            "yardstick": "a" * 16,
            "trials": 3,
            "samples": 120,
            "flops": 2.0e11,
            "hbm_bytes": 2.0e8,
            "link_bytes": 0.0,
            "payload_bytes": 0.0,
            "seconds": seconds.ravel(),
            "seconds_low": seconds.ravel() * 0.997,
            "seconds_high": seconds.ravel() * 1.003,
            "paired_with": ["" if own else BACKENDS[-1] for own in library],
            "paired_ratio": ratio,
            "paired_low": ratio * 0.997,
            "paired_high": ratio * 1.003,
        }


def build_cost(results: Path, out: Path) -> str:
    """CPU seconds and the largest memory of a build, in words.  Raises CalledProcessError where it fails."""
    command = [sys.executable, "-m", "dashboards", "--results", str(results), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return f"{used.ru_utime + used.ru_stime:.1f} s of CPU, {used.ru_maxrss / 2**20:.2f} GiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=3000)
    parser.add_argument("--commits", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results, out = Path(folder) / "results", Path(folder) / "site"
        records = MadeRecords(results, asked.series, asked.commits + 1)
        for commit in range(asked.commits):
            records.write(commit)
        print(f"{asked.series} series, {asked.commits} commits, from nothing: {build_cost(results, out)}")
        records.write(asked.commits)
        print(f"one commit more: {build_cost(results, out)}")
        print(f"nothing changed: {build_cost(results, out)}")


if __name__ == "__main__":
    main()
