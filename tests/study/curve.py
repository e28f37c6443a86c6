"""Bandwidth against the number of CUs (SMs) that a collective takes, as Markdown, from trials of one case.

    python -m tests.study.curve results/curves/all_gather_w4_fp16_64MB.jsonl.gz

One trial per number: `NCCL_MIN_NCHANNELS=8 NCCL_MAX_NCHANNELS=8 ridgeline run --kernel all_gather --tier nightly
--case w4_fp16_64MB --set programs=8 --trials 1 --out curve.jsonl`.  Our backends take `programs` CUs, RCCL and NCCL one
per channel.  Bus bandwidth by the nccl-tests convention: bytes over the links / median time.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ci.records import rates
from ci.report.markdown import code
from ci.report.words import plain
from ci.trials.file import read
from ci.trials.trial import Trial


def table(found: Mapping[str, Mapping[int, float]]) -> str:
    """One row per number of CUs, one column per backend."""
    counts = sorted({count for curve in found.values() for count in curve})
    columns = "".join(f" {code(name)}, GB/s |" for name in found)
    rows = [f"| {count} |" + "".join(_cell(curve, count) for curve in found.values()) for count in counts]
    return "\n".join([f"| CUs |{columns}", "|---:|" + "---:|" * len(found), *rows]) + "\n"


def _cell(curve: Mapping[int, float], count: int) -> str:
    return f" {curve[count]:.0f} |" if count in curve else "  |"


def points(trials: Iterable[Trial]) -> dict[str, dict[int, float]]:
    """GB/s by backend and number of CUs.  ValueError for trials of several cases, or that do not state the number."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    cases = set()
    for trial in trials:
        cases |= {f"{trial.operator}/{case}" for case in trial.cases}
        for backend, count, busbw in points_of(trial):
            found[backend][count] = busbw
    if len(cases) != 1:
        raise ValueError(f"a curve is of one case; these trials have {', '.join(sorted(cases)) or 'none'}")
    return dict(found)


def points_of(trial: Trial) -> Iterator[tuple[str, int, float]]:
    """(backend, CUs, GB/s) of every arm that moved something.  ValueError for one that does not state its CUs."""
    head = trial.checkouts["head"]
    for case, _, backend, arm in trial.arms():
        declared = head.declaration.cases.get(case) if head.declaration else None
        if arm.ok and declared and declared.cost.link_bytes:
            count = arm.knobs.get("programs", head.environment.variables.get("NCCL_MAX_NCHANNELS"))
            if count is None:
                raise ValueError(f"{backend} of {case} has no knob `programs`, and NCCL_MAX_NCHANNELS was not set")
            yield backend, int(count), rates.gb_per_s(float(declared.cost.link_bytes), statistics.median(arm.seconds))


def main(names: list[str]) -> str:
    """The table of trial files.  ValueError names a file or line that is not a trial."""
    files = [read(Path(name)) for name in names]
    for file in files:
        for one in file.rejected:
            raise ValueError(f"{one.at(file.path)}: {one.why}")
    return table(points(trial for file in files for trial in file.trials))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    try:
        print(main(sys.argv[1:]), end="")
    except ValueError as error:
        sys.exit(f"error: {plain(error, 600)}")
