"""The study of the verdict rule on recorded timings: false alarms and power, beside what others would say.

    python -m tests.study.verdicts --data tests/recordings/h200 --out tests/study

writes ab_study.md (tables), ab_study.svg (a plot) and ab_study.json (the numbers).  The seed is fixed: the same data
and number of draws give the same files.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import numpy as np
import pandas as pd
from scipy import stats

from ci.judging import policy
from ci.judging.policy import Settings
from ci.stats.interval import Shifts, fit, shifts
from ci.stats.types import FloatArray
from tests.study import simulate
from tests.study.simulate import Noise, findings, subsets

matplotlib.use("svg")
from matplotlib import pyplot as plt

Row = dict[str, Any]
"""One counted number with what it was counted for, as in ab_study.json."""

CASES = ("copy", "tgemm", "mm", "tgemm_m64", "mm_m16")

TRIALS = (3, 4, 5, 6, 8, 10, 12)
ARMS = ("head1", "head2", "head3", "head6")
WAYS = ("seq", "il", "gr")
"""How the separate runs took their samples: one after the other, round-robin over the cases, graph replays."""

PARTS = ("scatter", "false_alarms", "separate_false_alarms", "coverage", "power", "rounds", "stress", "looks", "others")
"""Methods of :class:`VerdictStudy` and keys of ab_study.json, in the order in which they draw."""

PROMISES = (
    ("copy", "head1", 8),
    ("tgemm", "head1", 8),
    ("mm", "head1", 8),
    ("mm_m16", "head2", 12),
    ("tgemm_m64", "head2", 12),
    ("mm_m16", "head3", 6),
    ("tgemm_m64", "head3", 6),
    ("copy", "head3", 4),
    ("tgemm_m64", "head3", 4),
    ("copy", "head6", 3),
    ("tgemm_m64", "head6", 4),
    ("mm_m16", "head6", 4),
)
"""(case, arm, trials) that must be found in 95 % of draws."""

STRESS = {
    "normal, 0.1 % between trials": Noise(),
    "as noisy between trials as within": Noise(trials=0.003),
    "trial scatter with 3 degrees of freedom": Noise(trials=0.003, tails=3),
    "two states 1.2 % apart": Noise(trials=0.006, two_states=True),
    "apart, 0.3 % each": Noise(trials=0.003, apart=True),
    "apart, 1 % each": Noise(trials=0.01, apart=True),
    "apart, 3 % each": Noise(trials=0.03, apart=True),
    "apart, 1 % each, drift 3 %": Noise(trials=0.01, apart=True, drift=0.03),
    "common drift 3 % in a trial": Noise(drift=0.03),
    "one round in 20 three times slower": Noise(spikes=0.05),
}


class VerdictStudy:
    """Everything that is counted; every method returns plain rows."""

    def __init__(self, data: Path, draws: int, seed: int) -> None:
        self.rng, self.draws, self.settings = np.random.default_rng(seed), draws, policy.load().settings()
        trials = {file.name[len("ab_trials_") : -len(".jsonl.gz")]: file for file in simulate.trial_files(data)}
        self.gpus = list(trials)
        self.trials = {gpu: simulate.lock_step_trials(file) for gpu, file in trials.items()}
        self.runs = {gpu: simulate.separate_runs(data / f"separate_runs_{gpu}.jsonl.gz") for gpu in self.gpus}
        pairs = itertools.product(self.gpus, ("same", *ARMS))
        self.shifts = {(gpu, arm): simulate.cases_of(self.trials[gpu], arm) for gpu, arm in pairs}

    def scatter(self) -> list[Row]:
        """Of every case: times, and standard deviation between trials of both estimates of the A/A log-ratio."""
        return [self._scatter(gpu, case) for gpu, case in itertools.product(self.gpus, self.trials[self.gpus[0]])]

    def _scatter(self, gpu: str, case: str) -> Row:
        base, same = self.trials[gpu][case]["base"], self.trials[gpu][case]["same"]
        ours = self.shifts[gpu, "same"][case]
        return {
            "gpu": gpu,
            "case": case,
            "base_us": float(np.median(base)) * 1e6,
            "median_sd": float(np.median(np.log(same / base), axis=1).std(ddof=1)),
            "block_sd": float(ours.shift.std(ddof=1)),
            "rounds_imply": float(np.sqrt(ours.variance.mean())),
        }

    def _run(self, cases: Sequence[Shifts], trials: int, rounds: int = 40, share: float = 1.0) -> FloatArray:
        """Findings in random draws of trials, the same trials for all cases of a run."""
        index = subsets(self.rng, self.draws, len(cases[0].shift), trials)
        return findings([c[index] for c in cases], rounds, self.settings, share)

    def false_alarms(self) -> list[Row]:
        """A/A in lock-step, by number of trials: each case judged alone, and the five of a run together."""
        rows = []
        for gpu, n in itertools.product(self.gpus, TRIALS):
            cases = list(self.shifts[gpu, "same"].values())
            alone = [_found(self._run([c], n)) for c in cases]
            together = _found(self._run(cases, n))
            judged = self.draws * len(cases) * 2
            rows.append({"gpu": gpu, "trials": n, **_alarms(alone, [together]), "judged": judged})
        return rows

    def separate_false_alarms(self) -> list[Row]:
        """A/A pairs of separate runs: run i as base, run j as head, no run twice."""
        rows = []
        for way in WAYS:
            runs = {gpu: self.runs[gpu][way] for gpu in self.gpus}
            pairs = {gpu: [simulate.all_pairs(r) for r in cases.values()] for gpu, cases in runs.items()}
            for n in TRIALS:
                alone, together = [], []
                for gpu in self.gpus:
                    rounds = next(iter(runs[gpu].values())).shape[1]
                    drawn = self._separate_draws(pairs[gpu], n)
                    alone += [_found(findings([d], rounds, self.settings)) for d in drawn]
                    together.append(_found(findings(drawn, rounds, self.settings)))
                judged = self.fewer_draws * len(alone) * 2
                rows.append({"way": way, "trials": n, **_alarms(alone, together), "judged": judged})
        return rows

    @property
    def fewer_draws(self) -> int:
        """For what is slow to count."""
        return max(50, self.draws // 4)

    def _separate_draws(self, pairs: Sequence[Shifts], trials: int) -> list[Shifts]:
        """Random pairs of runs, the same for all cases; fields of shape (draws, trials)."""
        index = subsets(self.rng, self.fewer_draws, len(pairs[0].shift), 2 * trials)
        return [pair[index[:, :trials], index[:, trials:]] for pair in pairs]

    def coverage(self) -> list[Row]:
        """Share of intervals that hold "no change": A/A in lock-step, and A/A pairs of separate runs."""
        rows = []
        for kind, case, values, rounds in self._unchanged():
            for n in TRIALS:
                if values.shift.ndim == 1:
                    drawn = values[subsets(self.rng, self.fewer_draws, len(values.shift), n)]
                else:
                    [drawn] = self._separate_draws([values], n)
                draws = len(drawn.shift)
                fitted = fit([(drawn, rounds, np.full(draws, self.settings.trial_noise))], [np.arange(draws)])[0]
                low, high = fitted.interval(self.settings.confidence)
                rows.append({"kind": kind, "case": case, "trials": n, "held": float(np.mean((low <= 0) & (high >= 0)))})
        return rows

    def _unchanged(self) -> Iterator[tuple[str, str, Shifts, int]]:
        """(kind, case, shifts, rounds) of everything recorded in which nothing changed."""
        for gpu in self.gpus:
            for case, values in self.shifts[gpu, "same"].items():
                yield f"lock-step, {gpu}", case, values, 40
        for gpu, way in itertools.product(self.gpus, WAYS):
            for case, runs in self.runs[gpu][way].items():
                yield f"separate runs, {way}", case, simulate.all_pairs(runs), runs.shape[1]

    def power(self) -> list[Row]:
        """Share of draws in which each arm is SLOWER (and, never, FASTER), judged alone."""
        rows = []
        for gpu, arm, n in itertools.product(self.gpus, ARMS, TRIALS):
            for case, values in self.shifts[gpu, arm].items():
                found = self._run([values], n)
                shares = {"slower": float(np.mean(found > 0)), "faster": float(np.mean(found < 0))}
                rows.append({"gpu": gpu, "case": case, "arm": arm, "trials": n, "effect": _effect(values), **shares})
        return rows

    def rounds(self) -> list[Row]:
        """Fewer rounds in a trial: power of the promises, and false alarms with the same trials."""
        rows = []
        for count in (10, 20, 40):
            for (case, arm, n), gpu in itertools.product(PROMISES, self.gpus):
                arms = self.trials[gpu][case]
                slower = self._run([_shifts(arms, arm, count)], n, count)
                alarm = self._run([_shifts(arms, "same", count)], n, count)
                shares = {"slower": float(np.mean(slower > 0)), "alarm": _found(alarm)}
                rows.append({"rounds": count, "gpu": gpu, "case": case, "arm": arm, "trials": n, **shares})
        return rows

    def stress(self) -> list[Row]:
        """False alarms on synthetic noise that is unlike the recordings."""
        rows = []
        for (name, noise), n in itertools.product(STRESS.items(), (3, 4, 6, 8, 12)):
            made = simulate.synthetic(self.rng, noise, self.draws, n, 40)
            rows.append({"noise": name, "trials": n, "alarm": _found(findings([made], 40, self.settings))})
        return rows

    def looks(self) -> list[Row]:
        """The live rule without its confirmation: error and power over all looks, and trials spent."""
        rows = []
        for gpu, arm in itertools.product(self.gpus, ("same", *ARMS)):
            for case, values in self.shifts[gpu, arm].items():
                verdict, spent = self._look_by_look(values)
                shares = {"slower": float(np.mean(verdict > 0)), "found": _found(verdict)}
                where = {"gpu": gpu, "case": case, "arm": arm, "effect": _effect(values)}
                rows.append({**where, **shares, "trials": float(spent.mean())})
        return rows

    def _look_by_look(self, values: Shifts) -> tuple[FloatArray, FloatArray]:
        """(first finding, trials until then) of every draw."""
        looks = self.settings.looks
        index = subsets(self.rng, self.draws, len(values.shift), looks[-1])
        verdict, spent = np.zeros(self.draws), np.full(self.draws, float(looks[-1]))
        for n in looks:
            now = findings([values[index[:, :n]]], 40, self.settings, 1 / len(looks))[:, 0]
            fresh = (verdict == 0) & (now != 0)
            verdict[fresh], spent[fresh] = now[fresh], n
        return verdict, spent

    def others(self) -> list[Row]:
        """What other rules say of the same effects with 8 trials or runs per side: false alarms and power."""
        rows = []
        for gpu in self.gpus:
            for case, arms in self.trials[gpu].items():
                for arm in ("same", *ARMS):
                    effect, where = _effect(self.shifts[gpu, arm][case]), {"gpu": gpu, "case": case, "arm": arm}
                    said = self._asv(arms["base"], arms[arm])
                    rows += [{**where, "rule": rule, "found": found, "effect": effect} for rule, found in said]
            for case, base, head, extra in _separate_pairs(self.runs[gpu]["seq"]):
                effect, where = extra / 100, {"gpu": gpu, "case": case, "arm": f"+{extra:.2f} %"}
                said = self._apart(base, head)
                rows += [{**where, "rule": rule, "found": found, "effect": effect} for rule, found in said]
        return rows

    def _asv(self, base: FloatArray, head: FloatArray) -> Iterator[tuple[str, float]]:
        """asv's own comparison (asv 0.6, `_is_result_better`) on the pooled samples of 8 trials."""
        from asv._stats import is_different
        from asv_runner.statistics import compute_stats

        index = subsets(self.rng, max(10, self.draws // 40), len(base), 8)
        hits = {1.1: 0, 1.005: 0}
        for chosen in index:
            one, two = base[chosen].ravel(), head[chosen].ravel()
            facts = [compute_stats(list(arm), 1)[1] for arm in (one, two)]
            differs = is_different(list(one), list(two), *facts)
            ratio = float(np.median(two) / np.median(one))
            for factor in hits:
                hits[factor] += bool(differs and (ratio > factor or ratio < 1 / factor))
        for factor, count in hits.items():
            yield f"asv compare, factor {factor}", count / len(index)

    def _apart(self, base: FloatArray, head: FloatArray) -> Iterator[tuple[str, float]]:
        """A t-test (p < 0.001) and a fixed 3 % rule on 8 separate runs per side, medians of the runs."""
        index = subsets(self.rng, self.draws, len(base), 16)
        one, two = (np.log(np.median(arm, axis=1)) for arm in (base, head))
        one, two = one[index[:, :8]], two[index[:, 8:]]
        yield "separate runs, t-test", float(np.mean(stats.ttest_ind(one, two, axis=1, equal_var=False).pvalue < 1e-3))
        gap = np.median(two, axis=1) - np.median(one, axis=1)
        yield "separate runs, 3 % rule (8 runs)", float(np.mean(np.abs(gap) > np.log(1.03)))
        yield "separate runs, 3 % rule (1 run)", float(np.mean(np.abs(two[:, 0] - one[:, 0]) > np.log(1.03)))


def _found(found: FloatArray) -> float:
    """Share of findings, of either sign."""
    return float(np.mean(found != 0))


def _alarms(alone: Sequence[float], together: Sequence[float]) -> Row:
    """Shares of false alarms, of cases judged alone and of those judged together."""
    return {"alone": float(np.mean(alone)), "worst": max(alone), "together": float(np.mean(together))}


def _effect(values: Shifts) -> float:
    """The true change, as the median over all recorded trials shows it."""
    return float(np.expm1(np.median(values.shift)))


def _shifts(arms: dict[str, FloatArray], arm: str, rounds: int) -> Shifts:
    return shifts(arms["base"][:, :rounds], arms[arm][:, :rounds])


def _separate_pairs(runs: dict[str, FloatArray]) -> Iterator[tuple[str, FloatArray, FloatArray, float]]:
    """(operator, base runs, head runs, extra time in % by the medians over all runs) of every operator."""
    operators: dict[str, list[str]] = {}
    for case in runs:
        operators.setdefault(case.split("/")[0], []).append(case)
    for operator, cases in operators.items():
        for case in cases:
            ratio = np.median(runs[case]) / np.median(runs[cases[0]])
            if case == cases[0] or ratio < 1.08:
                yield operator, runs[cases[0]], runs[case], float(ratio - 1) * 100


# ---- the page and the plot -------------------------------------------------------------------------------------------

EFFECTS = (-1.0, 0.003, 0.01, 0.02, 0.035, 0.08)
SIZES = ("A/A", "0.3 to 1 %", "1 to 2 %", "2 to 3.5 %", "3.5 to 8 %")
"""Bounds and names of the columns in which effects are put together."""


def page(numbers: Row, settings: Settings) -> str:
    """The page in Markdown."""
    source = (Path(__file__).parent / "ab_study.md.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return environment.from_string(source).render({**_policy(settings), **_tables(numbers)})


def _policy(settings: Settings) -> Row:
    return {
        "smallest_effect": f"{settings.smallest_effect:.1%}",
        "arm_bias": f"{settings.arm_bias:.2%}",
        "false_alarm": f"{settings.false_alarm:.1%}",
        "confidence": f"{settings.confidence:.0%}",
        "budget": settings.looks[-1],
        "look_list": ", ".join(map(str, settings.looks)),
        "confirming": settings.confirming,
    }


def _tables(numbers: Row) -> Row:
    frames = {part: pd.DataFrame(numbers[part]) for part in PARTS}
    power, rounds = frames["power"], frames["rounds"]
    found = _wide(rounds, ["case", "arm", "trials"], "rounds", "slower", _share)
    alarms = _wide(rounds, ["case", "arm", "trials"], "rounds", "alarm", _per_thousand)
    both = (found + " / " + alarms).add_suffix(" rounds: found / false per 1,000")
    covered = _wide(frames["coverage"], "kind", "trials", "held", _share).add_suffix(" trials")
    return {
        "draws": numbers["draws"],
        "scatter": _scatter(frames["scatter"]),
        "false_alarms": _false(frames["false_alarms"]),
        "separate_false_alarms": _false(frames["separate_false_alarms"].rename(columns={"way": "sampling"})),
        "coverage": _table(covered.reset_index(names="")),
        "promised": _table(pd.DataFrame(_promised(power))),
        "power": _power(power),
        "wrong_way": (power["faster"] > 0).sum(),
        "power_rows": len(power),
        "rounds": _table(both.loc[list(PROMISES)].reset_index()),
        "stress": _table(
            _wide(frames["stress"], "noise", "trials", "alarm", _per_thousand).add_suffix(" trials").reset_index()
        ),
        "looks": _looks(frames["looks"]),
        "others": _others(frames),
    }


def _share(share: float) -> str:
    return f"{share:.3f}"


def _per_thousand(share: float) -> str:
    return f"{1000 * share:.2f}"


def _change(effect: float) -> str:
    return f"{100 * effect:+.2f} %"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _table(cells: pd.DataFrame) -> str:
    """A Markdown table of cells that are text."""
    lines = ["| " + " | ".join(cells.columns) + " |", "|" + "---|" * len(cells.columns)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in cells.to_numpy(object)), ""])


def _wide(frame: pd.DataFrame, down: Any, across: str, value: str, shown: Callable[[float], str]) -> pd.DataFrame:
    """The mean of a value in a row for each of `down` and a column for each of `across`, as text."""
    return frame.pivot_table(value, down, across, sort=False).map(shown).rename(columns=str)


def _scatter(frame: pd.DataFrame) -> str:
    times = frame["base_us"].map("{:.1f}".format)
    shares = frame[["median_sd", "block_sd", "rounds_imply"]].map(_percent)
    cells = pd.concat([frame[["gpu", "case"]], times, shares], axis=1)
    return _table(cells.set_axis(["GPU", "case", "base, us", "median", "block shift", "implied"], axis=1))


def _false(frame: pd.DataFrame) -> str:
    shares = frame[["alone", "worst", "together"]].map(_per_thousand)
    cells = frame.assign(**shares)
    return _table(cells.rename(columns={"worst": "worst case", "judged": "cases judged"}))


def _promised(power: pd.DataFrame) -> Iterator[Row]:
    for case, arm, trials in PROMISES:
        mine = power.query("case == @case and arm == @arm and trials == @trials")
        found = ", ".join(map(_share, mine["slower"]))
        effect = _change(mine["effect"].mean())
        yield {"case": case, "arm": arm, "effect": effect, "trials": trials, "found, by GPU": found}


def _power(power: pd.DataFrame) -> str:
    cells = _wide(power, ["case", "arm"], "trials", "slower", _share).add_suffix(" trials")
    cells.insert(0, "effect", power.groupby(["case", "arm"])["effect"].mean().map(_change))
    return _table(cells.loc[list(CASES)].droplevel("arm").reset_index())


def _looks(looks: pd.DataFrame) -> str:
    mean = looks.groupby(["case", "arm"], sort=False)[["effect", "found", "slower", "trials"]].mean()
    mean = mean.loc[list(CASES)].reset_index()
    false, found = mean["found"].map(_per_thousand) + " per 1,000 false", mean["slower"].map(_share) + " found"
    cells = mean[["case"]].assign(effect=mean["effect"].map(_change), outcome=false.where(mean["arm"] == "same", found))
    return _table(cells.assign(**{"mean trials spent on findings": mean["trials"].map("{:.1f}".format)}))


def _others(frames: Mapping[str, pd.DataFrame]) -> str:
    """Our rule with 8 trials beside the others, by size of the effect."""
    power, alarms = (frames[part].query("trials == 8") for part in ("power", "false_alarms"))
    ours = [power.assign(found=power["slower"]), alarms.assign(found=alarms["alone"], effect=0.0)]
    every = pd.concat([pd.concat(ours).assign(rule="this rule, 8 trials"), frames["others"]])
    every["size"] = pd.cut(every["effect"], EFFECTS, right=False, labels=SIZES).astype(object)
    wide = every.pivot_table("found", "rule", "size", sort=False)[list(SIZES)]
    return _table(wide.map(lambda share: "-" if np.isnan(share) else _share(share)).reset_index())


def plot(numbers: Row, path: Path) -> None:
    """Share found against effect: left this rule with 4, 8 and 12 trials, right the other rules."""
    power, alarms, others = (pd.DataFrame(numbers[part]) for part in ("power", "false_alarms", "others"))
    plt.rcParams["svg.hashsalt"] = "ridgeline"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for trials, marker in ((4, "v"), (8, "o"), (12, "^")):
        mine = power.query("trials == @trials")
        left.plot(100 * mine["effect"], mine["slower"], marker, alpha=0.7, label=f"{trials} trials")
    left.plot(0 * alarms["alone"], alarms["alone"], "s", alpha=0.7, label="A/A: false alarms")
    for (rule, mine), marker in zip(others.groupby("rule", sort=False), "+xvo^", strict=True):
        right.plot(100 * mine["effect"], mine["found"], marker, alpha=0.7, label=rule)
    left.set(title="this rule, A/B in lock-step", ylabel="share of draws with a finding", ylim=(-0.03, 1.03))
    right.set(title="other rules, 8 trials or runs")
    for axes in (left, right):
        axes.axhline(0.95, color="grey", linewidth=0.8, linestyle=":")
        axes.set(xlabel="true effect, % of the time", xlim=(-0.3, 7))
        axes.legend(fontsize=8, loc="center right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the study; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.study.verdicts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with ab_trials_*.gz and separate_runs_*.gz")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--draws", type=int, default=4000, help="random draws per number (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        study = VerdictStudy(options.data, options.draws, options.seed)
    except OSError as error:
        parser.exit(3, f"{error}\n")
    numbers: Row = {"draws": options.draws, "seed": options.seed}
    for part in PARTS:
        print(f"{part} ...", flush=True)
        numbers[part] = getattr(study, part)()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "ab_study.json").write_text(json.dumps(numbers, indent=0) + "\n", encoding="utf-8")
    (options.out / "ab_study.md").write_text(page(numbers, study.settings), encoding="utf-8")
    plot(numbers, options.out / "ab_study.svg")
    print(f"wrote {options.out}/ab_study.md, ab_study.svg, ab_study.json")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
