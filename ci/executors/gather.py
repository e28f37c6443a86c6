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
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import lifetime
from ci.executors.job import INCOMPLETE, JobSpec, Result, State, stored, take_up
from ci.executors.shard import shards_of
from ci.slurm import REQUEUES
from ci.whole_files import replace

WORST_FIRST = (State.LOST, State.FAILED, State.TIMEOUT, State.CANCELLED, State.DONE)
"""Of shards that ended differently, the first of these is how the job ended."""

MOST_TOLD = 5
"""Shards that a sentence names."""


def ending(results: Mapping[int, Result | None], cancelled: bool, folder: Path) -> Result:
    """How the job in `folder` ended whose shards ended so (None: without a result).  A lost one says what to do."""
    missing = Result(State.CANCELLED if cancelled else State.LOST, "it left no result")
    found = {number: result or missing for number, result in results.items()}
    worst = min((result.state for result in found.values()), key=WORST_FIRST.index)
    bad = {number: result for number, result in found.items() if result.state is not State.DONE}
    whys = {number: f"{one.state}: {one.why}" if one.why else str(one.state) for number, one in bad.items()}
    why = _told([f"shard {number} {said}" if len(found) > 1 else said for number, said in whys.items()])
    if worst is State.LOST:
        return lost(folder, why)
    code = max((one.exit_code for one in found.values() if one.exit_code is not None), key=abs, default=INCOMPLETE)
    return Result(worst, why, code if code or worst is State.DONE else INCOMPLETE)


def lost(folder: Path, why: str) -> Result:
    """A job of which something is missing, and the command that takes it up."""
    return Result(State.LOST, f"`{take_up(folder)}` does what is missing: {why}", INCOMPLETE)


def requeued(folder: Path, spec: JobSpec) -> str:
    """A sentence on the shards that started without what they asked for, "" without any."""
    found = {number: had for number, shard in shards_of(folder, spec).items() if (had := shard.not_begun())}
    times = {number: f"{min(len(had), REQUEUES)} of {REQUEUES} times): {had[-1]}" for number, had in found.items()}
    return _told([f"shard {number} did not begin and was requeued ({said}" for number, said in times.items()])


def _told(sentences: Sequence[str]) -> str:
    more = len(sentences) - MOST_TOLD
    return "; ".join([*sentences[:MOST_TOLD], *([f"and {more} more shards"] if more > 0 else [])])


def gather(folder: Path) -> Result:
    """Write the file of all lines and the job's result; returns the result."""
    spec = stored(folder)
    shards = shards_of(folder, spec)
    lines = [line for shard in shards.values() for line in shard.published()]
    replace(folder / "trials.jsonl", b"".join(line + b"\n" for line in lines))
    if spec.sharding.out and lines:
        append_new(Path(spec.cwd) / spec.sharding.out, lines)
    results = {number: shard.result() for number, shard in shards.items()}
    found = ending(results, (folder / "cancel").exists(), folder)
    if spec.sharding.finish and lines:
        found = _finished(folder, spec, found)
    ended = [one for one in results.values() if one]
    result = dataclasses.replace(
        found,
        why="; ".join(filter(None, (found.why, requeued(folder, spec)))),
        started_at=min((one.started_at for one in ended if one.started_at), default=""),
        where=",".join(sorted({one.where for one in ended if one.where})),
    )
    result.write(folder)
    return result


def _finished(folder: Path, spec: JobSpec, result: Result) -> Result:
    """Run the command that comes last, on what there is.  Its failure is the job's.

    Where it judges, a shard that ended with a verdict of its own ended well.
    """
    finish = spec.sharding.finish
    if "--replay" in finish and result.state is State.FAILED and result.exit_code in (1, 2):
        result = Result(State.DONE, "", 0)
    print("+", " ".join(finish), file=sys.stderr, flush=True)
    argv = [sys.executable, *finish, str(folder / "trials.jsonl")]
    code = subprocess.run(argv, cwd=spec.cwd, env=lifetime.told(os.environ)).returncode
    if code and result.state is State.DONE:
        return Result(State.FAILED, f"`{' '.join(finish[2:])}` ended with {code}", code)
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


def main(folder: Path) -> int:
    """Print the result; exit code 0 once it is written down."""
    result = gather(folder)
    print(json.dumps({"state": result.state, "exit_code": result.exit_code, "why": result.why}))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
