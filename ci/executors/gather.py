"""The end of a job on a cluster: the lines of all shards in one file, and how the job ended, by its result files.

``python -m ci.executors.gather JOB`` runs after the shards, however they ended; running it again changes nothing.
The scheduler is not asked: its accounts lag, or are off, and it calls a cancelled job that ended tidily a success.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks import lifetime
from ci.executors import job
from ci.executors.attempt import Shard
from ci.executors.job import Result
from ci.executors.scheduler import INCOMPLETE, JobSpec, State, stored, take_up
from ci.slurm import REQUEUES
from ci.whole_files import replace

WORST_FIRST = (State.LOST, State.FAILED, State.TIMEOUT, State.CANCELLED, State.DONE)
"""Of shards that ended differently, the first of these is how the job ended."""


def shards(folder: Path, spec: JobSpec) -> list[Shard]:
    """The shards of a job."""
    return [Shard(folder / "shards" / str(number)) for number in range(spec.sharding.shards)]


def ending(results: Mapping[int, Result | None], cancelled: bool, folder: Path) -> Result:
    """How the job in `folder` ended whose shards ended so (None: without a result).  A lost one says what to do."""
    missing = Result(State.CANCELLED if cancelled else State.LOST, "it left no result")
    found = {number: result or missing for number, result in results.items()}
    worst = min((result.state for result in found.values()), key=WORST_FIRST.index)
    codes = [result.exit_code for result in found.values()]
    bad = [_said(number, result, len(found)) for number, result in found.items() if result.state is not State.DONE]
    known = [code for code in codes if code is not None]
    code = max(known, key=abs, default=INCOMPLETE)
    if worst is State.LOST or (worst is not State.DONE and not code):
        code = INCOMPLETE
    why = "; ".join(bad[:5]) + (f"; and {len(bad) - 5} more shards" if len(bad) > 5 else "")
    return lost(folder, why) if worst is State.LOST else Result(worst, why, code)


def lost(folder: Path, why: str) -> Result:
    """A job of which something is missing, and the command that takes it up."""
    return Result(State.LOST, f"`{take_up(folder)}` does what is missing: {why}", INCOMPLETE)


def requeued(folder: Path, spec: JobSpec) -> str:
    """A sentence on the shards that started without what they asked for, "" without any."""
    found = {number: shard.not_begun() for number, shard in enumerate(shards(folder, spec))}
    told = [
        f"shard {number} did not begin and was requeued ({min(len(had), REQUEUES)} of {REQUEUES} times): {had[-1]}"
        for number, had in found.items()
        if had
    ]
    return "; ".join(told[:5]) + (f"; and {len(told) - 5} more shards" if len(told) > 5 else "")


def _said(number: int, result: Result, shards: int) -> str:
    what = f"{result.state}: {result.why}" if result.why else str(result.state)
    return what if shards == 1 else f"shard {number} {what}"


def merged(folder: Path, spec: JobSpec) -> list[bytes]:
    """The published lines of all shards, shard by shard."""
    return [line for shard in shards(folder, spec) for line in shard.published()]


def gather(folder: Path) -> Result:
    """Write the file of all lines and the job's result; returns the result."""
    spec = stored(folder)
    lines = merged(folder, spec)
    replace(folder / "trials.jsonl", b"".join(line + b"\n" for line in lines))
    if spec.sharding.out and lines:
        append_new(Path(spec.cwd) / spec.sharding.out, lines)
    results = {number: shard.result() for number, shard in enumerate(shards(folder, spec))}
    result = _finished(folder, spec, ending(results, (folder / "cancel").exists(), folder), bool(lines))
    why = "; ".join(filter(None, (result.why, requeued(folder, spec))))
    times = [found.started_at for found in results.values() if found and found.started_at]
    places = sorted({found.where for found in results.values() if found and found.where})
    job.write_result(folder, result.state, why, result.exit_code, min(times, default=""), ",".join(places))
    return dataclasses.replace(result, why=why)


def _finished(folder: Path, spec: JobSpec, result: Result, any_lines: bool) -> Result:
    """Run the command that comes last, on what there is.  Its failure is the job's.

    Where it judges, a shard that ended with a verdict of its own ended well.
    """
    if not spec.sharding.finish or not any_lines:
        return result
    if "--replay" in spec.sharding.finish and result.state is State.FAILED and result.exit_code in (1, 2):
        result = Result(State.DONE, "", 0)
    argv = [sys.executable, *spec.sharding.finish, str(folder / "trials.jsonl")]
    print("+", " ".join(spec.sharding.finish), file=sys.stderr, flush=True)
    code = subprocess.run(argv, cwd=spec.cwd, env=lifetime.told(os.environ)).returncode
    if code and result.state is State.DONE:
        return Result(State.FAILED, f"`{' '.join(spec.sharding.finish[2:])}` ended with {code}", code)
    return result


def append_new(path: Path, lines: list[bytes]) -> None:
    """Append the lines that a trial file (`.jsonl`, `.jsonl.gz`) does not hold yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = set(_content(path).splitlines()) if path.exists() else set()
    new = b"".join(line + b"\n" for line in lines if line not in known)
    with path.open("ab") as file:
        file.write(gzip.compress(new) if path.suffix == ".gz" and new else new)


def _content(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    from ci.trials.file import unpacked  # needs numpy, which a node that only measures has not

    return unpacked(path.read_bytes())[0]


def newest_log(shard: Path) -> Path | None:
    """What the command of the newest attempt at a shard printed; None before the first."""
    number = Shard(shard).newest()
    return shard / "attempts" / str(number) / "log" if number >= 0 else None


def main(folder: Path) -> int:
    """Print the result; exit code 0 once it is written down."""
    result = gather(folder)
    print(json.dumps({"state": result.state, "exit_code": result.exit_code, "why": result.why}))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
