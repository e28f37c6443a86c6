"""Steps planted in ranges of commits: `ridgeline run A..B` on recorded trials, then `ridgeline events`.

    python -m tests.study.history.ranges --histories 20 --seed 1

Every range has COMMITS commits, each of which changes the kernel's file.  The rounds are those of lock-stepped trials
of an H200 (tests/recordings/h200), drawn with replacement: ours is Triton's GEMM, the library torch.mm of the same
trial.  On top of their noise the machine's speed wanders by DRIFT from commit to commit.  A history is right if
`events` names the commit of what was planted, and no other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ci.options import err_console
from tests import kit
from tests.ci import made_trials
from tests.ci.bisect import toys
from tests.study import simulate

COMMITS, TRIALS = 24, 3
DRIFT = 0.01
"""Standard deviation of the machine's speed from commit to commit (log): clocks and heat move an H200 by 1 to 2 %."""
EDGE = 6
"""Commits before the first and after the last place of a step."""
CASES = {"n8192": ("tgemm", "mm"), "m64": ("tgemm_m64", "mm_m16")}
"""By case: the recorded cases that are ours and the library's."""
FIRST_S, DAY_S = 1_790_000_000, 86_400
DATA = kit.ROOT / "tests/recordings/h200"
OTHER_MACHINE = {**made_trials.MACHINE, "name": "h200x2-5e6f7a8b", "driver": "580.1"}


@dataclasses.dataclass(frozen=True)
class PlantedRange:
    """What is planted at a commit, by its place: our time and the library's times a factor, a wave of both, a machine.

    step: of our time; library: of the library's time, with a new torch; drift: amplitude of a slow wave; machine:
    whether the commits from there on ran on another one, 4 % slower, on which ours is 1 % faster beside the library.
    """

    place: int
    step: float = 1.0
    library: float = 1.0
    drift: float = 0.0
    machine: bool = False

    @property
    def name(self) -> str:
        if self.step != 1:
            return f"step of {100 * self.step - 100:+.0f} %"
        if self.library != 1:
            return f"library's update, {100 * self.library - 100:+.0f} %"
        return "another machine" if self.machine else f"drift of {self.drift:.0%}" if self.drift else "nothing"

    @property
    def wanted(self) -> set[tuple[str, str, int]]:
        """(kind, direction, place) of the events that are right."""
        if self.step != 1:
            return {("kernel", "slower" if self.step > 1 else "faster", self.place)}
        return {("library", "slower" if self.library > 1 else "faster", self.place)} if self.library != 1 else set()


def planned(count: int, seed: int) -> list[PlantedRange]:
    """The histories: steps of 1, 2 and 5 % either way, drifts, one machine's change, one library's update."""
    rng = np.random.default_rng([seed, 0])
    places = iter(rng.integers(EDGE, COMMITS - EDGE + 1, max(count, 5)).tolist())
    sizes = itertools.cycle((1.01, 1.02, 1.05, 1 / 1.01, 1 / 1.02, 1 / 1.05))
    none = [PlantedRange(next(places), machine=True), PlantedRange(next(places), library=0.95)]
    none += [PlantedRange(next(places), drift=one) for one in (0.02, 0.03, 0.05)]
    return [*none, *(PlantedRange(place, step) for place, step in zip(places, sizes, strict=False))][:count]


def lines(planted: PlantedRange, hashes: Sequence[str], dates: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """The trial lines of all commits of a history."""
    rng, recorded = (
        np.random.default_rng([seed, 1]),
        [t for file in simulate.trial_files(DATA) for t in simulate.recorded(file)],
    )
    wander = DRIFT * rng.standard_normal(len(hashes))
    wander += planted.drift * np.sin(2 * np.pi * (np.arange(len(hashes)) / len(hashes) + rng.random()))
    for place, hash_ in enumerate(hashes):
        after = place >= planted.place
        moved = planted.machine and after
        speed = float(np.exp(wander[place])) * (1.04 if moved else 1.0)
        factor = {"triton": (planted.step if after else 1.0) * (0.99 if moved else 1.0)}
        factor["blas"] = planted.library if after else 1.0
        torch = "2.12.0+cu130" if planted.library != 1 and after else "2.11.0+cu130"
        environment = {**made_trials.ENVIRONMENT, "torch": torch}
        declared = made_trials.declaration("rows", cases=list(CASES))
        tree = made_trials.tree(hash_, declared=declared, date_ms=dates[place], environment=environment)
        for number in range(TRIALS):
            drawn = recorded[int(rng.integers(len(recorded)))]["cases"]
            arms = {
                case: {
                    f"head/{backend}": made_trials.ok(
                        (simulate.US * speed * factor[backend] * np.array(drawn[name]["base"])).tolist()
                    )
                    for backend, name in zip(("triton", "blas"), names, strict=True)
                }
                for case, names in CASES.items()
            }
            yield made_trials.trial(
                arms, number, f"{place:016x}", place, "rows", {"head": tree},
                OTHER_MACHINE if moved else made_trials.MACHINE,
            )  # fmt: skip


@contextlib.contextmanager
def repository() -> Iterator[tuple[list[str], list[int]]]:
    """Inside a repository of COMMITS commits, a day apart, each of which writes the kernel's file anew.

    Gives their hashes and dates (ms since 1970 UTC).
    """
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder, dates = Path(name), [FIRST_S + DAY_S * number for number in range(COMMITS)]
        kit.repository(folder, **{"pyproject.toml": '[tool.ridgeline]\nkernels = ["toys"]\n', "toys/__init__.py": ""})
        for number, date in enumerate(dates):
            (folder / "toys/rows.py").write_text(toys.ROWS.format(note=f"Version {number}.", repeat=20))
            kit.git(folder, "add", "-A")
            kit.git(folder, "commit", "-q", "-m", f"change {number}", GIT_COMMITTER_DATE=f"{date} +0000")
        yield kit.git(folder, "rev-list", "--reverse", "HEAD").split()[1:], [1000 * date for date in dates]


@dataclasses.dataclass(frozen=True)
class RangeScore:
    """What `events` said of a history.  found: (kind, direction, place) of each event."""

    planted: PlantedRange
    found: set[tuple[str, str, int]]

    @property
    def right(self) -> bool:
        return self.found == self.planted.wanted


def score(planted: PlantedRange, hashes: Sequence[str], dates: Sequence[int], seed: int) -> RangeScore:
    """Record a history and read its events; in the repository."""
    with tempfile.TemporaryDirectory() as name:
        file = made_trials.write(Path(name) / "recorded.jsonl", *lines(planted, hashes, dates, seed))
        kept = ("--results", Path(name) / "results")
        ran = kit.ridgeline("records", "add", file, *kept)
        assert ran.exit_code == 0, ran.output
        listed = kit.ridgeline("events", "list", "--json", *kept, "--code", Path(name) / "none")
        events = json.loads(listed.stdout)["events"]
    place = {hash_: number for number, hash_ in enumerate(hashes)}
    return RangeScore(planted, {(one["kind"], one["direction"], place[one["first_bad"]["hash"]]) for one in events})


@click.command(
    help=(__doc__ or "").split("\n")[0], epilog="Example: python -m tests.study.history.ranges --histories 20"
)
@click.option("--histories", default=20, show_default=True, help="How many; the first five have no step of ours.")
@click.option("--seed", default=1, show_default=True, help="Of all random numbers.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def main(histories: int, seed: int, as_json: bool) -> None:
    """Plant, run, read, count; exits with 1 where a history is not right."""
    with repository() as (hashes, dates):
        each = enumerate(track(planned(histories, seed), "histories", console=err_console()))
        scores = [score(one, hashes, dates, seed + number) for number, one in each]
    right = sum(one.right for one in scores)
    if as_json:
        rows = [dataclasses.asdict(one) | {"right": one.right} for one in scores]
        print(json.dumps({"right": right, "of": len(scores), "histories": rows}, default=sorted))
    else:
        table = Table("planted", "at", "events", "right")
        for one in scores:
            said = ", ".join(f"{kind} {direction} at {at}" for kind, direction, at in sorted(one.found))
            table.add_row(one.planted.name, str(one.planted.place), said or "none", "yes" if one.right else "no")
        Console().print(table)
        print(f"{right} of {len(scores)} right")
    sys.exit(right != len(scores))


if __name__ == "__main__":
    main()
