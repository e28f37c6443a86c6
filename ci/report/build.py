"""From trials and a judgement to a report: who was compared, on what machine, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ci.git.repository import LocalCheckout
from ci.judging.types import Judgement
from ci.records.regimes.folders import SUSTAINED
from ci.report.model import CaseCost, Report, ReportWarning, Side, Skip
from ci.stats.types import Clocks
from ci.trials.trial import Checkout, Scalar, Trial


def report_of(
    judgement: Judgement, trials: Sequence[Trial], checkouts: Iterable[LocalCheckout] = (), title: str = "pull request"
) -> Report:
    """The report on trials: the newest trial names the machine, every trial adds what it left out."""
    newest = trials[-1] if trials else None
    return Report(
        judgement,
        f"{title}, calls back to back in bursts" if newest and newest.regime == SUSTAINED else title,
        *_sides(checkouts, newest.checkouts if newest else {}),
        machine=newest.machine.facts if newest else {},
        costs=costs_of(trials),
        clocks=_clocks(newest) if newest else {},
        skipped=(*skips_of(trials), *_unreached(judgement.unreached)),
        warnings=tuple(dict.fromkeys(one for trial in trials for one in _warnings(trial))),
    )


def _sides(local: Iterable[LocalCheckout], measured: Mapping[str, Checkout]) -> tuple[Side, Side]:
    """Base and head: the commits that were asked for, else those of the trial; versions from the trial."""
    found = {one.role: Side(one.commit.hash if one.commit else "", "", one.dirty) for one in local}
    for role, checkout in measured.items():
        known = found.get(role, Side(checkout.commit or "", "", checkout.dirty))
        found[role] = Side(known.commit, known.name, known.dirty, _plain(checkout.environment.versions))
    return found.get("base", Side()), found.get("head", Side())


def _plain(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {key: value for key, value in values.items() if isinstance(value, (str, int, float, bool)) or value is None}


def _warnings(trial: Trial) -> Iterable[ReportWarning]:
    for role, checkout in trial.checkouts.items():
        for one in checkout.broken:
            yield ReportWarning(f"kernels module {one.module} of {role} is broken: {one.reason}")
    yield from map(ReportWarning, trial.warnings)
    for name, case in trial.cases.items():
        yield from (ReportWarning(text, f"{trial.operator}/{name}") for text in case.warnings)


def skips_of(trials: Iterable[Trial]) -> Iterable[Skip]:
    """What has no time: one entry for all backends and cases of an operator that share a reason."""
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for trial in trials:
        for case, _, backend, arm in trial.arms():
            if not arm.ok:
                found.setdefault((trial.operator, str(arm.status), arm.why), []).append((backend, case))
    for (operator, status, why), arms in found.items():
        backends, cases = (list(dict.fromkeys(part)) for part in zip(*arms, strict=True))
        yield Skip(f"{operator}/{_few(backends)}/{_few(cases)}", status, why)


def _unreached(operators: Sequence[str]) -> Iterable[Skip]:
    """What was not measured because nothing that changed can reach it."""
    if operators:
        what = operators[0] if len(operators) == 1 else f"{len(operators)} operators"
        named = "" if len(operators) == 1 else f" ({', '.join(operators)})"
        yield Skip(what, "unchanged", f"no file that its code can come from differs; --all-cases measures it{named}")


def _few(names: Sequence[str]) -> str:
    """One name as it is, a few in braces, many by their number."""
    if len(names) == 1:
        return names[0]
    return "{" + ",".join(names) + "}" if len(names) <= 3 else f"({len(names)}: {names[0]} ...)"


def costs_of(trials: Iterable[Trial]) -> dict[str, CaseCost]:
    """What a call of each declared case must do, by operator/backend/case."""
    costs: dict[str, CaseCost] = {}
    declarations = (checkout.declaration for trial in trials for checkout in trial.checkouts.values())
    for declared in filter(None, declarations):
        for name, case in declared.cases.items():
            cost = CaseCost(case.cost.flops or 0, case.cost.hbm_bytes or 0, case.cost.link_bytes or 0, case.world)
            costs |= {f"{declared.operator}/{backend}/{name}": cost for backend in declared.backends}
    return costs


def _clocks(trial: Trial) -> dict[str, Clocks]:
    moments = {"before": trial.state.before, "after": trial.state.after}
    return {moment: clocks for moment, clocks in moments.items() if clocks}
