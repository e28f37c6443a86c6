"""The folder of a slot: what the service and the job on the node tell each other.

    service -> job   start.sh, guard.sh, allowed, script.sh; config: the secret, 0600, read once and deleted
    job -> service   asked (its Slurm id: it waits for `config`), run (of the job it took), refused, code

A configuration is made when the job asks, not before: GitHub forgets one that waits in a queue, a Slurm job may wait
for days, and a runner that never comes up need not be deleted where its container did not even start.  A file answers
a file rather than squeue's RUNNING, so that it also works while the Slurm controller is away, and the secret lies on
the disk for one look of the job.  What a job writes is not trusted: short, and no links.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

from ci.runner.settings import EVENTS, Serving
from ci.runner.types import Letters, RunnerError

PATIENCE_S = 1800
"""Seconds that a job waits for its configuration: the service may be restarted, GitHub may be away, meanwhile the
allocation costs money."""

LONGEST = 4096
"""Bytes of a letter that are read."""

LOGS_KEPT = 200
"""Logs of ended jobs that stay, the newest."""

NODE = Path(__file__).parent / "node"


def folder(state: Path, token: str) -> Path:
    """Where a slot and its job meet."""
    return state / "slots" / token


def log(state: Path, token: str) -> Path:
    """Where Slurm writes what the job prints."""
    return state / "logs" / f"{token}.log"


def prepare(state: Path, token: str, script: str, serving: Serving) -> Path:
    """Make the folder of a slot, for its user only; returns its Slurm script."""
    place = folder(state, token)
    place.mkdir(parents=True, exist_ok=True)
    log(state, token).parent.mkdir(exist_ok=True)
    os.chmod(place, 0o700)
    for name in ("start.sh", "guard.sh"):
        shutil.copyfile(NODE / name, place / name)
        os.chmod(place / name, 0o700)
    (place / "allowed").write_text(allowed(serving))
    (place / "script.sh").write_text(script)
    return place / "script.sh"


def allowed(serving: Serving) -> str:
    """What guard.sh reads: one line for each repository, workflow, branch pattern and event."""
    rows = itertools.product([serving.repository], serving.workflows, serving.refs, EVENTS)
    return "".join("\t".join(row) + "\n" for row in rows)


def command(state: Path, token: str, serving: Serving) -> list[str]:
    """What runs on the node, inside the pool's environment."""
    place = folder(state, token)
    return ["bash", str(place / "start.sh"), str(place), serving.program, str(PATIENCE_S)]


def answer(state: Path, token: str, secret: str) -> None:
    """Hand the configuration over: whole, readable for this user only, from its first byte on."""
    place = folder(state, token)
    draft = place / ".config"
    draft.unlink(missing_ok=True)
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secret)
        draft.rename(place / "config")
    except OSError as error:
        raise RunnerError(f"{place / 'config'} cannot be written: {error.strerror}") from error


def letters(state: Path, token: str) -> Letters:
    """What the job wrote so far."""
    place = folder(state, token)
    run, code = _letter(place / "run"), _letter(place / "code")
    return Letters(
        asked=_letter(place / "asked"),
        run=int(run) if run.isdecimal() and len(run) < 20 else 0,
        refused=_letter(place / "refused"),
        code=int(code) if code.isdecimal() and len(code) < 4 else None,
    )


def _letter(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        return file.read(LONGEST).decode("ascii", "replace").strip()


def clear(state: Path, token: str) -> None:
    """Remove the folder of a slot that has ended, and logs beyond the newest."""
    shutil.rmtree(folder(state, token), ignore_errors=True)
    logs = sorted((state / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[: max(0, len(logs) - LOGS_KEPT)]:
        path.unlink(missing_ok=True)
