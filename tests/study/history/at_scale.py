"""What a query engine needs for a history of many millions of points, as `ridgeline records export` would write it.

    python -m tests.study.history.at_scale FOLDER --make 50     # 50 million synthetic points, Parquet parts
    python -m tests.study.history.at_scale FOLDER               # both queries with DuckDB: seconds and memory

Measured 2026-11-22 on 2 busy cores of an EPYC, 50 million points in 1.3 GB: the history of one case takes 0.1 s of CPU,
the ratios of 16.7 million pairs 22 s of CPU and at most 1.6 GB of memory.

A point is a row of the long frame: one machine, commit, kernel, backend and case.  Three backends a case, of which one
is the baseline; so a third of the points are a pair.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MACHINES = ("mi300x", "mi325x", "mi355x")
KERNELS = tuple(f"kernel_{number:02}" for number in range(10))
BACKENDS = ("triton", "gluon", "hipblaslt")
CASES = 100
PART_ROWS = 250_000
"""Rows of a part: as ci.records.cache leaves them."""

DAY_MS = 86_400_000

ONE_CASE = """
    SELECT commit, epoch_ms(date) AS ms, seconds FROM points
    WHERE machine = 'mi325x' AND kernel = 'kernel_03' AND backend = 'triton' AND "case" = 'case_042' ORDER BY ms
"""
"""The history of one case."""

RATIOS = """
    SELECT ours.machine, ours.kernel, count(*) AS pairs, exp(avg(ln(theirs.seconds / ours.seconds))) AS ratio
    FROM points AS ours JOIN points AS theirs USING (machine, kernel, commit, "case")
    WHERE ours.backend = 'triton' AND theirs.backend = 'hipblaslt' GROUP BY ALL ORDER BY ALL
"""
"""The ratio to the baseline over every commit and case, by machine and kernel."""


@dataclasses.dataclass(frozen=True)
class TimedQuery:
    """One query.  seconds: wall clock.  cpu: seconds of all threads.  rows: of the answer."""

    name: str
    seconds: float
    cpu: float
    rows: int


def parts(points: int) -> Iterator[tuple[str, pa.Table]]:
    """(path, rows) of about so many points."""
    commits = max(points // (len(MACHINES) * len(KERNELS) * CASES * len(BACKENDS)), 1)
    at_once = max(PART_ROWS // (CASES * len(BACKENDS)), 1)
    for machine in MACHINES:
        for kernel in KERNELS:
            for start in range(0, commits, at_once):
                rows = _rows(np.arange(start, min(start + at_once, commits)))
                yield f"machine={machine}/kernel={kernel}/part-{start:06}.parquet", rows


def make(folder: Path, points: int) -> tuple[int, int]:
    """Write the parts; returns points and bytes."""
    rows = size = 0
    for path, table in parts(points):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target, compression="zstd")
        rows, size = rows + len(table), size + target.stat().st_size
    return rows, size


def ask(folder: Path, threads: int, memory: str) -> list[TimedQuery]:
    """Both queries."""
    engine = duckdb.connect(
        config={"threads": threads, "memory_limit": memory, "temp_directory": str(folder / "spill")}
    )
    source = f"read_parquet('{folder}/*/*/*.parquet', hive_partitioning = true)"
    engine.sql(f"CREATE VIEW points AS SELECT * FROM {source}")
    return [_timed(engine, name, query) for name, query in (("one case", ONE_CASE), ("paired ratios", RATIOS))]


def main(arguments: Sequence[str] | None = None) -> str:
    """The text for people."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", type=float, metavar="MILLIONS", help="write so many million points")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="1500MB", help="what DuckDB may take (default: 1500MB)")
    wanted = parser.parse_args(arguments)
    if wanted.make:
        rows, size = make(wanted.folder, round(wanted.make * 1e6))
        return f"{rows:,} points in {size / 1e6:,.0f} MB, {size / rows:.1f} bytes a point"
    lines = [
        f"{one.name}: {one.rows:,} rows in {one.seconds:.2f} s ({one.cpu:.1f} s of CPU)"
        for one in ask(wanted.folder, wanted.threads, wanted.memory)
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return "\n".join([*lines, f"at most {peak:,.0f} MB of memory, {wanted.threads} threads"])


def _rows(commits: np.ndarray) -> pa.Table:
    """Every case and backend of these commits; a time repeats to 2 %, a case has a level of its own."""
    cases, backends = np.arange(CASES), np.arange(len(BACKENDS))
    commit, case, backend = (axis.ravel() for axis in np.meshgrid(commits, cases, backends, indexing="ij"))
    noise = np.random.default_rng(int(commits[0])).normal(0.0, 0.02, len(commit))
    seconds = 1e-5 * (1 + case) * (1 + 0.05 * backend) * np.exp(noise)
    return pa.table(
        {
            "commit": _texts(commit - commits[0], [f"{number:040x}" for number in commits]),
            "date": pa.array(commit * DAY_MS // 24, pa.timestamp("ms", tz="UTC")),
            "backend": _texts(backend, BACKENDS),
            "case": _texts(case, [f"case_{number:03}" for number in cases]),
            "seconds": seconds,
            "seconds_low": seconds * 0.999,
            "seconds_high": seconds * 1.001,
        }
    )


def _texts(codes: np.ndarray, texts: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(list(texts), pa.string()))


def _timed(engine: duckdb.DuckDBPyConnection, name: str, query: str) -> TimedQuery:
    start, cpu = time.perf_counter(), time.process_time()
    rows = len(engine.sql(query).fetchall())
    return TimedQuery(name, time.perf_counter() - start, time.process_time() - cpu, rows)


if __name__ == "__main__":
    print(main())
