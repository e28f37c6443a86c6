"""Bandwidth against the number of CUs (SMs) that a collective takes, as Markdown, from trials of one case.

    python -m ci.study.curve results/curves/all_gather_w4_fp16_64MB.jsonl.gz

One trial per number: `NCCL_MIN_NCHANNELS=8 NCCL_MAX_NCHANNELS=8 ridgeline run --kernel all_gather --tier nightly
--case w4_fp16_64MB --set programs=8 --trials 1 --out curve.jsonl`.  Ours take `programs` of them, RCCL and NCCL a
channel each.  Bus bandwidth by the nccl-tests convention: bytes over the links / median time.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from ci.trials.file import read
from ci.trials.trial import Trial


def points(trials: Iterable[Trial]) -> dict[str, dict[int, float]]:
    """GB/s by backend and number of CUs.  ValueError for trials of several cases, or that do not say the number."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    cases = set()
    for trial in trials:
        head = trial.checkouts["head"]
        channels = head.environment.variables.get("NCCL_MAX_NCHANNELS")
        for case, _, backend, arm in trial.arms():
            cases.add(f"{trial.operator}/{case}")
            if not arm.ok:
                continue
            count = arm.knobs.get("programs", channels)
            if count is None:
                raise ValueError(f"{backend} of {case} has no knob `programs`, and NCCL_MAX_NCHANNELS was not set")
            moved = (head.declaration.cases[case].cost.link_bytes if head.declaration else None) or 0
            found[backend][int(count)] = moved / statistics.median(arm.seconds) / 1e9
    if len(cases) != 1:
        raise ValueError(f"a curve is of one case; these trials have {', '.join(sorted(cases)) or 'none'}")
    return dict(found)


def table(found: Mapping[str, Mapping[int, float]]) -> str:
    """One row for each number of CUs, one column for each backend."""
    counts = sorted({count for curve in found.values() for count in curve})
    rows = [
        f"| {count} | "
        + " | ".join(f"{found[name][count]:.0f}" if count in found[name] else "" for name in found)
        + " |"
        for count in counts
    ]
    return (
        "\n".join(
            [f"| CUs | {' | '.join(f'`{name}`, GB/s' for name in found)} |", "|---:|" + "---:|" * len(found), *rows]
        )
        + "\n"
    )


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
        sys.exit(f"error: {error}")
