"""The text of a batch script: a pure function, so that a change shows in a golden file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from ci.pools.drained import drained_nodes, folder_of
from ci.pools.file import Pool, Pools


@dataclasses.dataclass(frozen=True)
class Allocation:
    """What a job asks of Slurm.  time: as --time takes it.  tasks: of an array, none for a job that is none.

    exclude: nodes to stay away from.  requeue: start it again when its node is lost or somebody with priority takes
    the node.  options: further ones, with "--".
    """

    name: str
    partition: str
    time: str
    output: str
    chdir: str
    account: str = ""
    gres: str = ""
    constraint: str = ""
    exclusive: bool = False
    exclude: tuple[str, ...] = ()
    comment: str = ""
    requeue: bool = True
    tasks: tuple[int, ...] = ()
    options: tuple[str, ...] = ()

    @classmethod
    def of_pool(cls, pools: Pools, pool: Pool, gpus: int, **fields: Any) -> Allocation:
        """Of so many GPUs of a pool that has a site, away from its drained nodes.  fields: the other ones."""
        site = pools.sites[pool.site]
        return cls(
            partition=pool.partition,
            account=pools.account(pool),
            gres=pool.gres_of(gpus),
            constraint=pool.constraint,
            exclusive=pool.exclusive,
            exclude=tuple(drained_nodes(folder_of(site))),
            options=(*site.sbatch, *pool.sbatch),
            **fields,
        )

    def lines(self) -> list[str]:
        """The options, one a line.  Nothing of the submitter's environment enters: it may hold secrets."""
        named = ("comment", "partition", "account", "gres", "constraint")
        options = [
            f"--job-name={self.name}",
            *(f"--{name}={getattr(self, name)}" for name in named if getattr(self, name)),
            "--exclusive" if self.exclusive else "",
            f"--exclude={','.join(self.exclude)}" if self.exclude else "",
            f"--time={self.time}",
            "--nodes=1",
            f"--array={ranges(self.tasks)}" if self.tasks else "",
            "--requeue" if self.requeue else "--no-requeue",
            "--open-mode=append",
            "--export=NONE",
            f"--chdir={self.chdir}",
            f"--output={self.output}",
            *self.options,
        ]
        return [option for option in options if option]


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


def ranges(numbers: Iterable[int]) -> str:
    """Task numbers as --array takes them: 0-2,5."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
