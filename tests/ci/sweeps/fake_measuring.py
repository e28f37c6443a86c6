"""Stands in for `python -m benchmarks run --points`: writes lines with known ratios, slowly, and needs no torch."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from benchmarks import points, trial_file
from tests.ci.made_trials import parsed
from tests.ci.sweeps.made_lines import line

SLOW_S = 0.06
"""Of a batch: long enough to be killed in the middle of a rung."""


def ratio(knobs):
    """The true time of a point over the anchor's: 5 warps are best."""
    return 0.9 + 0.05 * abs(knobs["num_warps"] - 5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=Path)
    parser.add_argument("--out", type=Path)
    given, _ = parser.parse_known_args()
    asked = points.read(given.points)
    with (given.out.parent / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    for number, batch in enumerate(asked.batches):
        told = {"done": number, "total": len(asked.batches), "what": f"batch {number}"}
        print(json.dumps(told), file=sys.stderr, flush=True)  # whom nobody listens to any more ends here
        time.sleep(SLOW_S)
        timed = [(dict(one.knobs), ratio(dict(one.knobs))) for one in batch.points]
        more = {"case": batch.case, "rung": asked.rung, "batch": number, "rounds": asked.rounds, "sweep": asked.sweep}
        made = line(timed, **more)
        made["session"] = f"{os.getpid():016d}"
        made["id"] = trial_file.identity({key: value for key, value in made.items() if key != "id"})
        trial_file.append(given.out, json.loads(parsed(made).text))


if __name__ == "__main__":
    main()
