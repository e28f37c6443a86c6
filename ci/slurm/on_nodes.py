"""``python -m ci.slurm.on_nodes task|last JOB``: what the two scripts of a job run on its nodes.

task: one attempt at the task that SLURM_ARRAY_TASK_ID names.  It goes on where earlier attempts ended, in a file of its
own: an older copy of it may still run on a node that Slurm has lost sight of, and two writers of one file would tear
each other's lines.

last: after the tasks of a job, however they ended; running it again changes nothing.  Where a task is missing, the file
`again` names those to submit, which the last job's script does (ci.slurm.jobs.LAST).  Else the union of all lines is
recorded, and the job's result written.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import lifetime
from ci.git.command import git_or_none
from ci.slurm.client import ranges
from ci.slurm.jobs import (
    INCOMPLETE,
    ROUNDS,
    VERDICTS,
    JobSpec,
    State,
    attempt_lines,
    ended_code,
    missing_tasks,
    read_spec,
    resume_command,
    write_result,
)
from ci.whole_files import replace


def run_task(folder: Path, task: int) -> int:
    """Run the task's command; its exit code, which is written down where the command came to its end."""
    spec = read_spec(folder)
    if moved := moved_commit(spec):
        print(moved, file=sys.stderr)
        return INCOMPLETE
    known = b"".join(line + b"\n" for line in attempt_lines(folder, task))
    handle, out = tempfile.mkstemp(prefix=f"{task}-", suffix=".jsonl", dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(known)
    code = _run(spec, spec.task_argv(task, Path(out)))
    if code in VERDICTS:
        replace(folder / f"ended-{task}", f"{code}\n")
    return code


def _run(spec: JobSpec, words: Sequence[str]) -> int:
    """The exit code of a command for Python, in the job's clone."""
    return subprocess.run([sys.executable, *words], cwd=spec.cwd, env=lifetime.told(os.environ), check=False).returncode


def moved_commit(spec: JobSpec) -> str:
    """A sentence if the clone is at another commit than when the job was submitted; "" where git cannot say."""
    head = git_or_none(Path(spec.cwd), "rev-parse", "HEAD") if spec.commit else None
    if not head or head == spec.commit:
        return ""
    was = f"{spec.cwd} is at {head[:8]}, and the job was submitted at {spec.commit[:8]}"
    return f"{was}; submit it again, from a worktree that stays as it is"


def end_job(folder: Path) -> int:
    """See `last` of the module; returns the job's exit code, 0 where tasks are submitted again."""
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
    code = max(ended_code(folder, task) or 0 for task in range(spec.tasks))
    if spec.finish and lines:
        print("+", " ".join(spec.finish), file=sys.stderr, flush=True)
        finish_code = _run(spec, [*spec.finish, str(folder / "trials.jsonl")])
        code = finish_code if "--replay" in spec.finish else finish_code or code  # a verdict on all trials
    if not missing:
        write_result(folder, State.DONE, code)
        return code
    times = "" if cancelled else f" after {rounds + 1} attempts"
    reason = f"tasks {ranges(missing)} of {spec.tasks} are missing{times}: `{resume_command(folder)}` measures them"
    write_result(folder, State.CANCELLED if cancelled else State.INCOMPLETE, INCOMPLETE, reason)
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
    _job = Path(sys.argv[2])
    _task = int(os.environ.get("SLURM_ARRAY_TASK_ID") or 0)
    sys.exit(end_job(_job) if sys.argv[1] == "last" else run_task(_job, _task))
