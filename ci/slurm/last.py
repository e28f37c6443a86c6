"""``python -m ci.slurm.last JOB``: after the tasks of a job, however they ended.  Running it again changes nothing.

Where a task is missing, the file `again` names those to submit, which the last job's script does (ci.slurm.jobs.LAST).
Else the union of all lines is recorded, and the job's result written.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import lifetime
from ci.slurm.batch import ranges
from ci.slurm.jobs import (
    INCOMPLETE,
    ROUNDS,
    State,
    attempt_lines,
    ended_code,
    missing_tasks,
    read_spec,
    resume_command,
    write_result,
)
from ci.whole_files import replace


def end_job(folder: Path) -> int:
    """See the module; returns the job's exit code, 0 where tasks are submitted again."""
    spec, cancelled = read_spec(folder), (folder / "cancel").exists()
    missing = missing_tasks(folder, spec)
    rounds = int((folder / "round").read_text()) if (folder / "round").exists() else 0
    if missing and not cancelled and rounds < ROUNDS:
        replace(folder / "round", f"{rounds + 1}\n")
        replace(folder / "again", ranges(missing))
        print(f"tasks {ranges(missing)} are missing and are submitted again ({rounds + 1} of {ROUNDS} times)")
        return 0
    lines = list(dict.fromkeys(line for task in range(spec.tasks) for line in attempt_lines(folder, task)))
    replace(folder / "trials.jsonl", b"".join(line + b"\n" for line in lines))
    if spec.out and lines:
        append_new_lines(Path(spec.cwd) / spec.out, lines)
    codes = [ended_code(folder, task) or 0 for task in range(spec.tasks)]
    code = max(codes)
    if spec.finish and lines:
        print("+", " ".join(spec.finish), file=sys.stderr, flush=True)
        argv = [sys.executable, *spec.finish, str(folder / "trials.jsonl")]
        finish_code = subprocess.run(argv, cwd=spec.cwd, env=lifetime.told(os.environ), check=False).returncode
        code = finish_code if "--replay" in spec.finish else finish_code or code  # a verdict on all trials
    if not missing:
        write_result(folder, State.DONE, code)
        return code
    state = State.CANCELLED if cancelled else State.INCOMPLETE
    times = "" if cancelled else f" after {rounds + 1} attempts"
    reason = f"tasks {ranges(missing)} of {spec.tasks} are missing{times}: `{resume_command(folder)}` measures them"
    write_result(folder, state, INCOMPLETE, reason)
    print(reason, file=sys.stderr)
    return INCOMPLETE


def append_new_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Append the lines that a trial file (`.jsonl`, `.jsonl.gz`) does not hold yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.exists() else b""
    packed = path.suffix == ".gz"
    known = set((gzip.decompress(content) if packed and content else content).split(b"\n"))
    new = b"".join(line + b"\n" for line in lines if line not in known)
    with path.open("ab") as file:
        file.write(gzip.compress(new) if packed and new else new)


if __name__ == "__main__":
    sys.exit(end_job(Path(sys.argv[1])))
