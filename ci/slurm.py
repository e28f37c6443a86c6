"""Slurm through the few commands and text formats that are the same in 22.05, 24.11 and 26.05."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ci.pools.drained import drained, folder_of
from ci.pools.file import Pool, Pools

# What Slurm's commands print, as values: pure functions over text.
#
# The formats are the same in 22.05, 24.11 and 26.05 (tests/recordings/slurm); Slurm's JSON changes with every version.


SQUEUE = "%i|%A|%j|%T|%r|%P|%N|%M|%l|%S|%e|%k|%b"

ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL")
    + ("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")
)
"""States that a job does not leave unless it is requeued (squeue(1), 22.05 to 26.05)."""

WAITING = frozenset(("CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "SPECIAL_EXIT"))
"""States of a job that uses no node, or not yet."""

HOPELESS = frozenset(
    [
        *("AccountNotAllowed", "AssociationTimeLimit", "BadConstraints", "InvalidAccount", "InvalidQOS"),
        *("PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed", "QOSTimeLimit"),
    ]
)
"""Reasons of a queued job that no waiting ends, only other settings (squeue(1), 22.05 to 26.05)."""


@dataclasses.dataclass(frozen=True)
class QueueRow:
    """A job, or one task of an array, as squeue tells it.

    id: "7", or "7_3" of task 3; "7_[3-5]" of tasks that wait together, where squeue was not asked for each.
    raw_id: its own number; array tasks that wait have the array's.
    """

    id: str
    raw_id: str
    name: str
    state: str
    reason: str
    partition: str
    nodes: str
    comment: str

    @property
    def ended(self) -> bool:
        """Whether Slurm is done with it."""
        return self.state in ENDED

    @property
    def waiting(self) -> bool:
        """Whether it has not started, or will start again."""
        return self.state in WAITING

    @property
    def hopeless(self) -> bool:
        """Whether it waits for what waiting does not bring."""
        return self.waiting and self.reason in HOPELESS

    @property
    def array_id(self) -> str:
        """The id that sbatch printed."""
        return self.id.partition("_")[0]

    def is_ours(self, token: str) -> bool:
        """Whether it carries our token: Slurm gives the id of a job that it lost to another job."""
        return bool(token) and token in (self.name, self.comment)


_ROW = re.compile(
    r"(?P<id>[^|]+)\|(?P<raw_id>\d+)\|(?P<name>.*)\|(?P<state>[A-Z_]+)"
    r"\|(?P<reason>[^|]*)\|(?P<partition>[^|]*)\|(?P<nodes>[^|]*)\|(?:[^|]*\|){4}(?P<comment>.*)\|[^|]*"
)
"""One line in the format SQUEUE.  Names and comments of other people's jobs may hold anything, | too."""


def queue_rows(text: str) -> list[QueueRow]:
    """The rows of `squeue -h -t all -r -o SQUEUE`.  A line of another shape is an error message; it is left out."""
    found = (_ROW.fullmatch(line) for line in text.splitlines())
    return [QueueRow(**{name: _given(value) for name, value in row.groupdict().items()}) for row in found if row]


def submitted_id(text: str) -> str:
    """The id in what `sbatch --parsable` prints: ID or ID;CLUSTER, perhaps after remarks; "" if there is none."""
    lines = [line for line in text.splitlines() if re.fullmatch(r"\d+(;\S+)?", line.strip())]
    return lines[-1].strip().partition(";")[0] if lines else ""


def _given(value: str) -> str:
    return "" if value in ("(null)", "None", "N/A") else value


# Slurm's commands as functions.  An id alone is never trusted: a job of ours carries a token as its name and comment.
#
# slurm = Slurm()
# token = new_token("nightly")
# job = slurm.sbatch(Path("job.sh"), token, ["--partition=mi300x", "--gres=gpu:mi300x:1"])
# slurm.find(job, token)      # its rows in the queue; none: Slurm has forgotten it, or lost it


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

FORMATS = re.compile(r"(SQUEUE|SCONTROL)_|SLURM_(TIME_FORMAT|CLUSTERS|BITSTR_LEN)$")
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
        found = submitted_id(said)
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
        return queue_rows(self._asked(["squeue", "-h", "-t", "all", "-r", *which, "-o", SQUEUE]))

    def scancel(self, job: str, token: str) -> bool:
        """Cancel a job of ours, with all tasks of its array; False if it is not in the queue."""
        if all(row.ended for row in self.find(job, token)):
            return False
        self._asked(["scancel", job])
        return True

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


# The text of a batch script: a pure function, so that a change shows in a golden file.


DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60


@dataclasses.dataclass(frozen=True)
class Allocation:
    """What a job asks of Slurm.  time: as --time takes it.  shards: tasks of an array, none for a job that is none.

    exclude: nodes to stay away from.  requeue: start it again when its node is lost or somebody with priority takes
    the node.  options: further ones, with "--".
    """

    partition: str
    time: str
    output: str
    chdir: str
    account: str = ""
    gres: str = ""
    constraint: str = ""
    exclusive: bool = False
    exclude: tuple[str, ...] = ()
    requeue: bool = True
    shards: tuple[int, ...] = ()
    options: tuple[str, ...] = ()

    @classmethod
    def of_pool(cls, pools: Pools, pool: Pool, gpus: int, **how: Any) -> Allocation:
        """Of so many GPUs of a pool that has a site, away from its drained nodes.  how: the other fields."""
        site = pools.sites[pool.site]
        return cls(
            partition=pool.partition,
            account=pools.account(pool),
            gres=pool.gres_of(gpus),
            constraint=pool.constraint,
            exclusive=pool.exclusive,
            exclude=tuple(sorted(drained(folder_of(site)))),
            options=(*site.sbatch, *pool.sbatch),
            **how,
        )

    def lines(self) -> list[str]:
        """The options, one a line.  Nothing of the submitter's environment enters: it may hold secrets."""
        named = ("partition", "account", "gres", "constraint")
        given = [
            *(f"--{name}={getattr(self, name)}" for name in named if getattr(self, name)),
            "--exclusive" if self.exclusive else "",
            f"--exclude={','.join(self.exclude)}" if self.exclude else "",
            f"--time={self.time}",
            "--nodes=1",
            f"--array={ranges(self.shards)}" if self.shards else "",
            "--requeue" if self.requeue else "--no-requeue",
            "--open-mode=append",
            "--export=NONE",
            f"--chdir={self.chdir}",
            f"--output={self.output}",
            *self.options,
        ]
        return [option for option in given if option]


def batch(allocation: Allocation, body: str) -> str:
    """A batch script: the options for Slurm, then a bash script (with or without its #! line)."""
    options = [f"#SBATCH {_quoted(option)}" for option in allocation.lines()]
    return "\n".join(["#!/bin/bash", *options, body.removeprefix("#!/bin/bash\n")])


REQUEUES = 3
"""How often a task that did not begin is requeued.  A controller that restarts knows its nodes' GPUs again in seconds,
and a requeued job waits for two minutes by default (cred_expire of AuthInfo, slurm.conf(5), 26.05)."""

START = "RIDGELINE_START"
"""Environment variable: the mark of one start of a task, which the command writes down as soon as it runs."""

NOT_BEGUN = "not_begun"
"""File in a task's folder with a line for each start at which its command did not begin."""

REQUEUE = """\
# A task whose command did not begin is requeued.  For some seconds after a restart of its controller Slurm 22.05 starts
# jobs without the GPUs that they asked for (job_gres "gpu:0(IDX:)"): the nodes have not reported theirs yet.
task={folder}/$SLURM_ARRAY_TASK_ID
export {START}=$SLURM_JOB_NAME.$RANDOM$RANDOM$RANDOM
requeue() {{
  local code=$? starts id=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
  # Not one that came to its end, was ended by a signal (255 is Apptainer's own code), had begun or is cancelled; and
  # none whose starts cannot be counted.
  ((code > 0 && (code <= 128 || code == 255))) || return
  ! grep -qsF "${START}" "$task"/attempts/*/attempt.json && [ ! -e "$task/../../cancel" ] || return
  : "${{said:=exit code $code before the command began}}"
  mkdir -p "$task" && echo "$(date -u +%FT%TZ) on $SLURMD_NODENAME: $said" >>"$task/{NOT_BEGUN}" || return
  starts=$(wc -l <"$task/{NOT_BEGUN}")
  if [ "$starts" -gt {REQUEUES} ]; then
    echo "ridgeline: task $SLURM_ARRAY_TASK_ID did not begin at $starts starts and is lost: $said" >&2
    return
  fi
  echo "ridgeline: task $SLURM_ARRAY_TASK_ID did not begin and is requeued ($starts of {REQUEUES} times): $said" >&2
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do  # the controller may be away; an id may be another job's by now
    [ "$(squeue --noheader --jobs="$id" --format=%j)" = "$SLURM_JOB_NAME" ] && scontrol requeue "$id" && return
    sleep 5
  done
  echo "ridgeline: Slurm did not requeue task $SLURM_ARRAY_TASK_ID, which is lost" >&2
}}
trap requeue EXIT
if [ "$SLURM_JOB_NODELIST" != "$SLURMD_NODENAME" ]; then
  said="it was given $SLURM_JOB_NODELIST and started on $SLURMD_NODENAME"
  exit 3
fi
"""


def requeueing(folder: Path, body: str) -> str:
    """The body of an array's task, which requeues itself where its command does not begin.

    folder: of the tasks, each under its number; the command writes $RIDGELINE_START to attempts/<n>/attempt.json there.
    """
    first = REQUEUE.format(folder=shlex.quote(str(folder)), START=START, NOT_BEGUN=NOT_BEGUN, REQUEUES=REQUEUES)
    return first + body.removeprefix("#!/bin/bash\n")


def _quoted(option: str) -> str:
    """sbatch splits a line at blanks unless they are quoted, and takes what follows # for a remark."""
    if not re.search(r"[\s#\"'\\]", option):
        return option
    name, equals, value = option.partition("=")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{equals}"{escaped}"'


def ranges(numbers: tuple[int, ...]) -> str:
    """Task numbers as --array takes them: 0-2,5."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def seconds(time: str) -> int:
    """Seconds of a --time: MINUTES, MINUTES:SECONDS, H:MM:SS, or DAYS-HOURS[:MINUTES[:SECONDS]] (sbatch(1))."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    whole = (HOUR_S, MINUTE_S, 1)
    units = whole if dash else whole[-len(parts) :] if len(parts) > 1 else (MINUTE_S,)
    return int(days or 0) * DAY_S + sum(part * unit for part, unit in zip(parts, units, strict=False))


def minutes(seconds_: float) -> str:
    """A --time of at least so many seconds; Slurm counts whole minutes."""
    return str(max(1, -int(-seconds_ // MINUTE_S)))
