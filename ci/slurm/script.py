"""The text of a batch script: a pure function, so that a change shows in a golden file."""

from __future__ import annotations

import dataclasses
import re

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

    def lines(self) -> list[str]:
        """The options, one a line.  Nothing of the submitter's environment enters: it may hold secrets."""
        given = [
            f"--partition={self.partition}",
            f"--account={self.account}" if self.account else "",
            f"--gres={self.gres}" if self.gres else "",
            f"--constraint={self.constraint}" if self.constraint else "",
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
