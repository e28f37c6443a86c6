"""Slurm's commands as functions.  An id alone is never trusted: a job of ours carries a token as its name and comment.

slurm = Slurm()
token = new_token("nightly")
job = slurm.sbatch(Path("job.sh"), token, ["--partition=mi300x", "--gres=gpu:mi300x:1"])
slurm.find(job, token)      # its rows in the queue; none: Slurm has forgotten it, or lost it
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ci.slurm import text
from ci.slurm.text import NodeRow, QueueRow

COMMAND_LIMIT_S = 60.0
"""Seconds of one command.  A busy controller answers within its MessageTimeout, 10 s by default (slurm.conf(5))."""

PATIENCE_S = 60.0
"""Seconds for which a question is asked again while the controller is away: a restart takes a few seconds."""

AGAIN_S = 1.0

AWAY = re.compile(
    r"unable to contact slurm controller|connection (?:refused|timed out|reset)|socket timed out|connect failure"
    r"|zero bytes were transmitted|munged|slurm_persist_conn|backup controller|unexpected message received",
    re.IGNORECASE,
)
"""What commands say when the controller (or munge) does not answer, 22.05 to 26.05."""

UNKNOWN = re.compile(r"invalid job id|job/step already completing or completed|does not exist", re.IGNORECASE)
"""What they say of a job that the controller does not have (any more)."""

FORMATS = re.compile(r"(SQUEUE|SINFO|SCONTROL)_|SLURM_(TIME_FORMAT|CLUSTERS|BITSTR_LEN)$")
"""Variables that change what the commands print."""


class SlurmError(Exception):
    """Slurm refused or is not there; the text says what it said, and what to do."""


class SlurmAway(SlurmError):
    """The controller does not answer: nothing is known, and nothing follows from that about a job."""


def new_token(name: str) -> str:
    """A name for a job that no other job has; readable in squeue.  Letters, digits and . _ + - of `name` stay."""
    return f"rl-{re.sub(r'[^A-Za-z0-9._+-]', '-', name)[:40]}-{secrets.token_hex(6)}"


class Slurm:
    """The commands of one cluster.  env: the environment they run in (SLURM_CONF chooses a cluster).

    patience_s: for how long a question is asked again while the controller is away, before SlurmAway.
    """

    def __init__(self, env: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S) -> None:
        given = os.environ if env is None else env
        self._env = {key: value for key, value in given.items() if not FORMATS.match(key)} | {"LC_ALL": "C"}
        self._patience_s = patience_s

    def sbatch(self, script: Path, token: str, options: Sequence[str] = ()) -> str:
        """Submit a script under `token`; returns the id.  Raises SlurmError with Slurm's sentence if it refuses.

        An answer that got lost is looked for by the token, so that no job is submitted twice.
        """
        argv = ["sbatch", "--parsable", f"--job-name={token}", f"--comment={token}", *options, str(script)]
        try:
            said = self._once(argv)
        except SlurmAway:
            return self._adopted(token)
        found = text.submitted_id(said)
        if not found:
            raise SlurmError(f"sbatch printed no job id, but {said.strip()!r}; look for {token} in squeue")
        return found

    def _adopted(self, token: str) -> str:
        """The job whose submission was not answered, or a SlurmAway that says that there is none."""
        found = {row.array_id for row in self.named(token)}
        if len(found) == 1:
            return found.pop()
        raise SlurmAway("the Slurm controller did not take the job: it does not answer; `scontrol ping` says more")

    def named(self, token: str) -> list[QueueRow]:
        """Rows of the jobs that carry this token, by asking for the name."""
        rows = self._rows(["--name", token])
        return [row for row in rows if row.is_ours(token)]

    def mine(self, prefix: str) -> list[QueueRow]:
        """Rows of this user's jobs whose names begin with `prefix`: found again by somebody who lost their ids."""
        return [row for row in self._rows(["--me"]) if row.name.startswith(prefix)]

    def squeue(self, ids: Sequence[str]) -> list[QueueRow]:
        """The queue's rows of these jobs, each task of an array by itself.  An unknown id has no row."""
        return self._rows(["-j", ",".join(ids)]) if ids else []

    def find(self, job: str, token: str) -> list[QueueRow]:
        """Rows of one job of ours.  None: unknown, or the id belongs to a job of somebody else by now."""
        return [row for row in self.squeue([job]) if row.is_ours(token)]

    def _rows(self, which: Sequence[str]) -> list[QueueRow]:
        return text.queue_rows(self._asked(["squeue", "-h", "-t", "all", "-r", *which, "-o", text.SQUEUE]))

    def scancel(self, job: str, token: str) -> bool:
        """Cancel a job of ours, with all tasks of its array; False if it is not in the queue."""
        if all(row.ended for row in self.find(job, token)):
            return False
        self._asked(["scancel", job])
        return True

    def nodes(self) -> list[NodeRow]:
        """Every node of every partition."""
        return text.node_rows(self._asked(["sinfo", "-h", "-N", "-o", text.SINFO]))

    def drain(self, node: str, reason: str) -> None:
        """Let a node finish its jobs and take no more; `reason` is what sinfo shows."""
        self._asked(["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"])

    # ---- running a command ----

    def _asked(self, argv: Sequence[str]) -> str:
        """What a command prints; asked again while the controller is away.  "" where a job is unknown."""
        again = Retrying(
            retry=retry_if_exception_type(SlurmAway), stop=stop_after_delay(self._patience_s), wait=wait_fixed(AGAIN_S)
        )
        try:
            return again(self._once, argv)
        except RetryError as error:
            raise error.last_attempt.exception() or error from None

    def _once(self, argv: Sequence[str]) -> str:
        begin = time.monotonic()
        try:
            done = subprocess.run(
                argv, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=COMMAND_LIMIT_S,
            )  # fmt: skip
        except FileNotFoundError:
            raise SlurmError(f"there is no {argv[0]} here; submit on a node of the cluster that has Slurm") from None
        except subprocess.TimeoutExpired:
            raise SlurmAway(f"{argv[0]} gave no answer in {time.monotonic() - begin:.0f} s") from None
        if done.returncode == 0 or UNKNOWN.search(done.stderr):
            return done.stdout
        raise _refused(argv[0], done.stderr.strip() or f"exit code {done.returncode}")


def _refused(program: str, said: str) -> SlurmError:
    line = "; ".join(re.sub(rf"^{program}: (error: )?", "", line) for line in said.splitlines()[-3:])
    if AWAY.search(said):
        return SlurmAway(f"the Slurm controller does not answer {program}: {line}; `scontrol ping` says more")
    return SlurmError(f"{program} refused: {line}")


def installed() -> bool:
    """Whether this machine can submit."""
    return shutil.which("sbatch") is not None
