"""Slurm through the few commands and text formats that are the same in 22.05, 24.11 and 26.05, and batch scripts.

    slurm = Slurm()
    job = slurm.sbatch(Path("tasks.sh"), "rl-nightly-3f2a")   # a script that carries this name
    slurm.rows("rl-nightly-3f2a")      # its rows in the queue; none: Slurm has forgotten it, or lost it

An id alone is never trusted: Slurm gives the id of a job that it lost to another one.  A name of ours is unique.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ci.pools.file import Pool, Site

# ---- what Slurm's commands print; Slurm's JSON changes with every version -------------------------------------------

SQUEUE = "%i|%A|%j|%T|%r|%P|%N|%M|%l|%S|%e|%k|%b"

ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL")
    + ("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")
)
"""States that a job does not leave unless it is requeued (squeue(1), 22.05 to 26.05)."""

WAITING = frozenset(("CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "SPECIAL_EXIT"))
"""States of a job that uses no node, or not yet."""


@dataclasses.dataclass(frozen=True)
class QueueRow:
    """A job, or one task of an array, as squeue prints it.  id: "7", or "7_3" of task 3."""

    id: str
    name: str
    state: str
    reason: str = ""
    nodes: str = ""
    comment: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether Slurm is done with it."""
        return self.state in ENDED

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started, or will start again."""
        return self.state in WAITING


_ROW = re.compile(
    r"(?P<id>[^|]+)\|\d+\|(?P<name>.*)\|(?P<state>[A-Z_]+)\|(?P<reason>[^|]*)\|[^|]*\|(?P<nodes>[^|]*)"
    r"\|(?:[^|]*\|){4}(?P<comment>.*)\|[^|]*"
)
"""One line in the format SQUEUE.  Names and comments of other people's jobs may hold anything, | too."""


def queue_rows(text: str) -> list[QueueRow]:
    """The rows of `squeue -h -t all -r -o SQUEUE`.  A line of another shape is an error message; it is left out."""
    rows = (_ROW.fullmatch(line) for line in text.splitlines())
    return [QueueRow(**{key: _blank_if_null(value) for key, value in row.groupdict().items()}) for row in rows if row]


def submitted_id(text: str) -> str:
    """The id in what `sbatch --parsable` prints: ID or ID;CLUSTER, perhaps after remarks; "" if there is none."""
    line = re.search(r"^(\d+)(;\S+)?$", text, re.MULTILINE)
    return line[1] if line else ""


def _blank_if_null(value: str) -> str:
    return "" if value in ("(null)", "None", "N/A") else value


# ---- the commands ----------------------------------------------------------------------------------------------------

COMMAND_LIMIT_S = 60.0
"""Seconds of one command.  A busy controller answers within its MessageTimeout, 10 s by default (slurm.conf(5))."""

PATIENCE_S, PAUSE_S = 60.0, 1.0
"""Seconds for which a question is asked again while the controller is away, and between two: a restart takes a few."""

AWAY = re.compile(
    r"unable to contact slurm controller|connection (?:refused|timed out|reset)|socket timed out|connect failure"
    r"|zero bytes were transmitted|munged|slurm_persist_conn|backup controller|unexpected message received",
    re.IGNORECASE,
)
"""What commands say when the controller (or munge) does not answer, 22.05 to 26.05."""

UNKNOWN = re.compile(r"invalid job id|job/step already completing or completed|does not exist", re.IGNORECASE)
"""What they say of a job that the controller does not have (any more)."""

FORMATS = re.compile(r"(SQUEUE|SCONTROL)_|SLURM_(TIME_FORMAT|CLUSTERS|BITSTR_LEN)$")
"""Variables that change what the commands print."""


class SlurmError(Exception):
    """Slurm refused or is not there; the text says what it said, and what to do."""


class SlurmAway(SlurmError):
    """The controller does not answer: nothing is known, and nothing follows from that about a job."""


class Slurm:
    """The commands of one cluster.  env: the environment they run in (SLURM_CONF chooses a cluster).

    patience_s: for how long a question is asked again while the controller is away, before SlurmAway.
    """

    def __init__(self, env: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S) -> None:
        environ = os.environ if env is None else env
        self._env = {key: value for key, value in environ.items() if not FORMATS.match(key)} | {"LC_ALL": "C"}
        self._patience_s = patience_s

    def sbatch(self, script: Path, name: str, options: Sequence[str] = ()) -> str:
        """Submit a script, whose job has this name; returns the id.  SlurmError with Slurm's sentence if it refuses.

        Where the controller does not answer, it may have the job all the same, under this name.
        """
        answer = self._once(["sbatch", "--parsable", *options, str(script)])
        job = submitted_id(answer)
        if not job:
            raise SlurmError(f"sbatch printed no job id, but {answer.strip()!r}; look for {name} in squeue")
        return job

    def rows(self, name: str) -> list[QueueRow]:
        """The queue's rows of the jobs of this name, each task of an array by itself."""
        return [row for row in self._queue("--name", name) if row.name == name]

    def mine(self, names: str) -> list[QueueRow]:
        """Rows of this user's jobs whose whole names match the regular expression `names`."""
        return [row for row in self._queue("--me") if re.fullmatch(names, row.name)]

    def scancel(self, name: str) -> None:
        """Cancel every job of this user and this name that has not ended, with all tasks."""
        self._patient(["scancel", f"--user={getpass.getuser()}", f"--name={name}"])

    def _queue(self, *selection: str) -> list[QueueRow]:
        return queue_rows(self._patient(["squeue", "-h", "-t", "all", "-r", *selection, "-o", SQUEUE]))

    def _patient(self, argv: Sequence[str]) -> str:
        """What a command prints; asked again while the controller is away.  "" where a job is unknown."""
        again = Retrying(
            retry=retry_if_exception_type(SlurmAway), stop=stop_after_delay(self._patience_s), wait=wait_fixed(PAUSE_S)
        )
        try:
            return again(self._once, argv)
        except RetryError as error:
            raise error.last_attempt.exception() or error from None

    def _once(self, argv: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                argv, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=COMMAND_LIMIT_S,
            )  # fmt: skip
        except FileNotFoundError:
            raise SlurmError(f"there is no {argv[0]} here; submit on a node of the cluster that has Slurm") from None
        except subprocess.TimeoutExpired:
            raise SlurmAway(f"{argv[0]} gave no answer in {COMMAND_LIMIT_S:.0f} s") from None
        if done.returncode == 0 or UNKNOWN.search(done.stderr):
            return done.stdout
        text = done.stderr.strip() or f"exit code {done.returncode}"
        if AWAY.search(text):
            raise SlurmAway(f"the Slurm controller does not answer: {text}; `scontrol ping` says more")
        raise SlurmError(f"Slurm refused: {text}")


# ---- batch scripts ---------------------------------------------------------------------------------------------------


def batch_script(
    site: Site,
    pool: Pool,
    gpus: int,
    body: str,
    *,
    name: str,
    time: str,
    chdir: str,
    output: str,
    array: str = "",
    comment: str = "",
    requeue: bool = True,
) -> str:
    """A batch script for so many GPUs of a pool of a site: the options for Slurm, then a bash script.

    body: with or without its #! line.  time, array: as sbatch takes them; array is "" for a single job.
    requeue: start it again when its node is lost or somebody with priority takes the node.  Nothing of the submitter's
    environment enters: it may hold secrets.
    """
    valued = {
        "job-name": name,
        "comment": comment,
        "partition": pool.partition,
        "account": pool.account or site.account,
        "gres": pool.gres_of(gpus),
        "constraint": pool.constraint,
        "time": time,
        "nodes": "1",
        "array": array,
        "open-mode": "append",
        "export": "NONE",
        "chdir": chdir,
        "output": output,
    }
    options = [f"--{option}={_quoted(value)}" for option, value in valued.items() if value]
    options += ["--exclusive"] * pool.exclusive + ["--requeue" if requeue else "--no-requeue"]
    for option in (*site.sbatch, *pool.sbatch):
        word, equals, value = option.partition("=")
        options.append(f"{word}{equals}{_quoted(value)}")
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), body.removeprefix("#!/bin/bash\n")]
    return "\n".join(lines)


def _quoted(value: str) -> str:
    """sbatch splits a line at blanks unless they are quoted, and takes what follows # for a remark."""
    if not re.search(r"[\s#\"'\\]", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
