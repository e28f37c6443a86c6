"""What Slurm's commands print, as values: pure functions over text.

The formats are the same in 22.05, 24.11 and 26.05 (tests/recordings/slurm); Slurm's JSON changes with every version.
"""

from __future__ import annotations

import dataclasses
import re

SQUEUE = "%i|%A|%j|%T|%r|%P|%N|%M|%l|%S|%e|%k|%b"
SINFO = "%N|%P|%T|%G|%f|%E|%u|%H"

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


@dataclasses.dataclass(frozen=True)
class NodeRow:
    """A node in one of its partitions.  responding: the controller hears its slurmd."""

    name: str
    partition: str
    state: str
    responding: bool
    gres: str
    features: tuple[str, ...]
    reason: str

    @property
    def usable(self) -> bool:
        """Whether it takes jobs, now or after those it has."""
        return self.responding and self.state in ("idle", "mixed", "allocated", "completing")


_ROW = re.compile(
    r"(?P<id>[^|]+)\|(?P<raw>\d+)\|(?P<name>.*)\|(?P<state>[A-Z_]+)"
    r"\|(?P<reason>[^|]*)\|(?P<partition>[^|]*)\|(?P<nodes>[^|]*)\|(?:[^|]*\|){4}(?P<comment>.*)\|[^|]*"
)
"""One line in the format SQUEUE.  Names and comments of other people's jobs may hold anything, | too."""


def queue_rows(text: str) -> list[QueueRow]:
    """The rows of `squeue -h -t all -r -o SQUEUE`.  A line of another shape is an error message; it is left out."""
    found = (_ROW.fullmatch(line) for line in text.splitlines())
    return [
        QueueRow(
            id=row["id"],
            raw_id=row["raw"],
            name=row["name"],
            state=row["state"],
            reason=_given(row["reason"]),
            partition=row["partition"],
            nodes=row["nodes"],
            comment=_given(row["comment"]),
        )
        for row in found
        if row
    ]


def node_rows(text: str) -> list[NodeRow]:
    """The rows of `sinfo -h -N -o SINFO`: one for each node and partition.  A reason may hold |."""
    rows = (line.split("|") for line in text.splitlines())
    return [_node(fields) for fields in rows if len(fields) >= 8]


def _node(fields: list[str]) -> NodeRow:
    """A state ends with marks: * does not respond, ~#!% power, $@ maintenance and reboot, ^ reboots, - planned."""
    name, partition, state, gres, features = fields[:5]
    reason = "|".join(fields[5:-2])
    return NodeRow(
        name=name,
        partition=partition.removesuffix("*"),
        state=state.rstrip("*~#!%$@^-"),
        responding="*" not in state,
        gres="" if gres == "(null)" else gres,
        features=() if features == "(null)" else tuple(features.split(",")),
        reason="" if reason == "none" else reason,
    )


def submitted_id(text: str) -> str:
    """The id in what `sbatch --parsable` prints: ID or ID;CLUSTER, perhaps after remarks; "" if there is none."""
    lines = [line for line in text.splitlines() if re.fullmatch(r"\d+(;\S+)?", line.strip())]
    return lines[-1].strip().partition(";")[0] if lines else ""


def _given(value: str) -> str:
    return "" if value in ("(null)", "None", "N/A") else value
