"""What a start of the processes adds to the noise of a trial, and whether it ties together the cases that share it.

    python -m tests.study.budget.starts --data tests/recordings/h200

On recorded trials of equal code, in which five kernels were measured by the same processes: tau, the scatter from one
start to the next beyond what rounds explain, from the covariance of even and odd rounds; w / tau^2, how many rounds
tell as much as one start; the rounds that tell most in a second where a start costs 100 and 300 rounds
(ci.stats.sequential); and how the shifts of two kernels of one start are correlated.  If that is none, kernels may
share processes as far as the statistics go: what is judged together is as independent as from processes of their own.

They do not share them all the same: what one kernel does to its process would reach the others, and a start (0.9 s of
5 s on an H200) is made while another trial is timed or checked (benchmarks.coordinator.lanes).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ci.judging import policy
from ci.stats.interval import Shifts, shifts
from ci.stats.sequential import TrialSeconds, best
from ci.stats.types import FloatArray
from tests.study import simulate

STARTS = (100.0, 300.0)
"""Rounds that a start costs: of one of ten cases, and of the only one that is still open (GEMM, H200, 2026-11)."""

Pairs = Mapping[str, tuple[FloatArray, FloatArray]]
"""By case, the samples of two processes with the same code, shape (trials, rounds)."""


def pairs(file: Path) -> Pairs:
    """The pairs of equal code in a recording."""
    return {case: (arms["base"], arms["same"]) for case, arms in simulate.lock_step_trials(file).items()}


def between_starts(base: FloatArray, head: FloatArray) -> float:
    """tau of a case as a log-ratio: even and odd rounds of a trial have it in common, and nothing else; 0 at least."""
    even, odd = (shifts(base[:, i::2], head[:, i::2]).shift for i in (0, 1))
    return float(np.sqrt(max(0.0, float(np.cov(even, odd)[0, 1]))))


def rows(found: Pairs) -> Iterator[str]:
    """The table of the cases of one recording."""
    yield f"{'case':12} sd of a trial %   tau %   w/tau^2   rounds, start = " + ", ".join(f"{s:g}" for s in STARTS)
    noise = policy.load().settings().trial_noise
    for case, (base, head) in found.items():
        whole, tau = shifts(base, head), between_starts(base, head)
        wanted = ", ".join(str(_rounds(whole, base.shape[1], noise, start)) for start in STARTS)
        of_round = float(whole.shift.var(ddof=1) - tau**2) * base.shape[1]
        ratio = f"{of_round / tau**2:9.0f}" if tau else f"{'-':>9}"
        yield f"{case:12} {100 * whole.shift.std(ddof=1):15.3f} {100 * tau:7.3f} {ratio}   {wanted}"


def _rounds(found: Shifts, had: int, noise: float, start: float) -> int:
    return best(found, np.full(len(found.shift), float(had)), noise, TrialSeconds(start, 1.0))


def correlations(found: Pairs) -> FloatArray:
    """Of the shifts of every two cases, over the starts that they share."""
    told = [shifts(base, head).shift for base, head in found.values()]
    return np.array([np.corrcoef(one, other)[0, 1] for one, other in itertools.combinations(told, 2)])


def tied(files: list[Path]) -> tuple[float, float, float]:
    """(mean correlation, its standard error, root of the mean square times the root of the starts).

    The last is 1 where there is none: by chance a correlation over n starts is 1 / sqrt(n - 1), standard deviation.
    """
    recorded = [pairs(file) for file in files]
    each = [correlations(found) * np.sqrt(len(next(iter(found.values()))[0]) - 1) for found in recorded]
    scaled, plain = np.concatenate(each), np.concatenate([correlations(found) for found in recorded])
    error = float(plain.std(ddof=1) / np.sqrt(len(plain)))
    return float(plain.mean()), error, float(np.sqrt((scaled**2).mean()))


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="folder with ab_trials_*.jsonl.gz")
    files = sorted(options.parse_args().data.glob("ab_trials_*.jsonl.gz"))
    if not files:
        options.error("--data: no ab_trials_*.jsonl.gz in that folder; tests/recordings/h200 has some")
    for file in files:
        print(file.name, *rows(pairs(file)), sep="\n")
    mean, error, spread = tied(files)
    print(f"two kernels of one start: mean correlation {mean:+.3f} (standard error {error:.3f}),")
    print(f"scatter of the correlations {spread:.2f} times that of chance")


if __name__ == "__main__":
    main()
