"""How well steps are found: in made series without and with one, and in two public sets of annotated series.

    python -m tests.study.detector --trials 300
    git clone https://github.com/SAP/performance-regression-data-set sap
    git clone https://github.com/alan-turing-institute/TCPD tcpd
    python -m tests.study.detector --sap sap/hana/small_2021 --tcpd tcpd

A made series has a step half-way.  TCPD's F1 (margin of 5) and cover are those of its benchmark (van den Burg and
Williams, arXiv 2003.06222), over the series that lie in its repository and have one dimension; where values are not
positive, of their exponentials.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.signal import lfilter
from scipy.stats import zscore

from ci.commands.detect import regressed
from ci.stats import FloatArray
from ci.stats.steps import find

SIGMA, POINTS, NEAR = 0.02, 300, 5
"""Standard deviation (log) of a point; points of a series; how far a step may be off, as in TCPD."""

NOISES: dict[str, Callable[[np.random.Generator], FloatArray]] = {
    "Gaussian": lambda rng: rng.normal(size=POINTS),
    "t, 3 degrees": lambda rng: rng.standard_t(3, POINTS) / 3**0.5,
    "AR(1) 0.5": lambda rng: lfilter([0.75**0.5], [1, -0.5], rng.normal(size=POINTS)),
    "1 % outliers": lambda rng: rng.normal(size=POINTS) + np.log(1.3) / SIGMA * (rng.random(POINTS) < 0.01),
}
"""Standardised noise."""


def simulated(trials: int) -> None:
    """Print in how many series a step is found: none in the first of each noise, then 1, 2 and 5 %."""
    for name, noise in NOISES.items():
        for ratio, sigma in ((1.0, SIGMA), (1.01, 0.005), (1.02, SIGMA), (1.05, SIGMA)):
            rng, step = np.random.default_rng(1), np.repeat([0, np.log(ratio)], POINTS // 2)
            hits = sum(bool(find(np.exp(sigma * noise(rng) + step))) for _ in range(trials))
            print(f"{name}, step of {ratio - 1:.0%}, noise of {sigma:.1%}: found in {hits} of {trials}")


def sap(folder: Path) -> None:
    """Print how many regressions have a step at their place, and how many of the other series `detect` calls slower."""
    details = pd.read_csv(folder / "metadata/dataset_details.csv", sep=";")
    alarms: dict[bool, list[bool]] = {True: [], False: []}
    for kind, name, last in details.itertuples(index=False):
        values = pd.read_csv(folder / "data" / name, sep=None, engine="python").iloc[:, -1].to_numpy(float)
        found, regression = find(values), kind == "regression"
        placed = any(not regression or abs(step.index - last - 1) <= NEAR for step in found)
        alarms[regression].append(placed and regressed(found, "lower"))
    counts = (f"{sum(own)} of {len(own)}" for own in alarms.values())
    print("SAP: {} regressions found, {} other series alarmed".format(*counts))


def tcpd(folder: Path) -> None:
    """Print mean F1 and cover."""
    scores = []
    for name, of_annotators in json.loads((folder / "annotations.json").read_text()).items():
        path, marks = folder / "datasets" / name / f"{name}.json", list(of_annotators.values())
        columns = json.loads(path.read_text())["series"] if path.is_file() else []
        if len(columns) == 1:
            values = np.array(columns[0]["raw"], float)
            place = np.flatnonzero(np.isfinite(values))
            x = values[place]
            found = [int(place[step.index]) for step in find(x if (x > 0).all() else np.exp(zscore(x)))]
            scores.append((f1(found, marks), cover(found, marks, len(values))))
    print("TCPD: F1 {:.4f}, cover {:.4f}, {} series".format(*np.mean(scores, axis=0), len(scores)))


def f1(found: Iterable[int], marks: Sequence[Sequence[int]]) -> float:
    """Of found places against those of all annotators together (precision) and of each (recall)."""
    guesses, truths = {0, *found}, [{0, *own} for own in marks]
    precision = _near(set().union(*truths), guesses) / len(guesses)
    recall = float(np.mean([_near(own, guesses) / len(own) for own in truths]))
    return 2 * precision * recall / (precision + recall)


def _near(truth: set[int], guesses: set[int]) -> int:
    """True places with a guess of their own within the margin."""
    rest, count = set(guesses), 0
    for place in sorted(truth):
        nearest = min(rest, key=lambda one: abs(place - one), default=-POINTS)
        if abs(place - nearest) <= NEAR:
            rest.remove(nearest)
            count += 1
    return count


def cover(found: Iterable[int], marks: Sequence[Sequence[int]], points: int) -> float:
    """How well the levels of each annotator are covered by the found ones: their Jaccard index, by length."""
    own = _levels(found, points)
    shares = [[len(one) * max(len(one & o) / len(one | o) for o in own) for one in _levels(m, points)] for m in marks]
    return float(np.mean([sum(row) / points for row in shares]))


def _levels(places: Iterable[int], points: int) -> list[set[int]]:
    return [set(range(*edges)) for edges in itertools.pairwise(sorted({0, *places, points}))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, help="series of each kind")
    parser.add_argument("--sap", type=Path, help="folder small_2021 of SAP's set")
    parser.add_argument("--tcpd", type=Path, help="TCPD's repository")
    asked = parser.parse_args()
    for study, of in ((simulated, asked.trials), (sap, asked.sap), (tcpd, asked.tcpd)):
        if of:
            study(of)


if __name__ == "__main__":
    main()
