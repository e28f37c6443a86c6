"""``python -m ci.slurm.task JOB``: one attempt at the task that SLURM_ARRAY_TASK_ID names, on its node.

It goes on where earlier attempts ended, in a file of its own: an older copy of it may still run on a node that Slurm
has lost sight of, and two writers of one file would tear each other's lines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import lifetime
from ci.git.command import git_or_none
from ci.slurm.jobs import INCOMPLETE, VERDICTS, JobSpec, attempt_lines, read_spec
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
    argv = [sys.executable, *spec.task_argv(task, Path(out))]
    code = subprocess.run(argv, cwd=spec.cwd, env=lifetime.told(os.environ), check=False).returncode
    if code in VERDICTS:
        replace(folder / f"ended-{task}", f"{code}\n")
    return code


def moved_commit(spec: JobSpec) -> str:
    """A sentence if the clone is at another commit than when the job was submitted; "" where git cannot say."""
    head = git_or_none(Path(spec.cwd), "rev-parse", "HEAD") if spec.commit else None
    if not head or head == spec.commit:
        return ""
    was = f"{spec.cwd} is at {head[:8]}, and the job was submitted at {spec.commit[:8]}"
    return f"{was}; submit it again, from a worktree that stays as it is"


if __name__ == "__main__":
    sys.exit(run_task(Path(sys.argv[1]), int(os.environ.get("SLURM_ARRAY_TASK_ID") or 0)))
