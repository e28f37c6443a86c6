"""The value that every rendering starts from, one judgement and what surrounds it; and the lines and tables it becomes.

A report is complete: rendering needs no file, clock or network, so the same report gives the same text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from benchmarks.shapes import form
from benchmarks.trial_file import Status
from ci.git.repository import LocalCheckout
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records.ledger import SUSTAINED, Explanation
from ci.stats import Clocks
from ci.trials.trial import Checkout, Trial, ran_differently

Scalar = str | int | float | bool | None

NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two sides: its commit (40 hex digits, or "" where there is none), a name, and its versions."""

    commit: Annotated[str, form(re.compile(r"[0-9a-f]{40}"), "40 hex digits, or none", empty=True)] = ""
    name: str = ""
    dirty: bool = False
    environment: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """For people: ``my-branch 0123abcd+changes``."""
        short = self.commit[:8] + ("+changes" if self.dirty else "")
        return " ".join(part for part in (self.name if self.name != self.commit else "", short) if part) or "no commit"


@dataclasses.dataclass(frozen=True)
class CaseCost:
    """What one call of a case must do, per rank (see kernels.spec.Cost), and its number of ranks.

    flops: FLOP.  hbm_bytes, link_bytes: bytes; link_bytes by the bus convention of nccl-tests.
    """

    flops: int = 0
    hbm_bytes: int = 0
    link_bytes: int = 0
    world: int = 1


@dataclasses.dataclass(frozen=True)
class Skip:
    """Something that was asked for and not measured, and the reason in one sentence."""

    what: str
    status: str
    why: str


@dataclasses.dataclass(frozen=True)
class ReportWarning:
    """What makes the numbers less sure: one sentence, about one case or ("") about the whole run."""

    text: str
    case: str = ""

    def __str__(self) -> str:
        return f"{self.case}: {self.text}" if self.case else self.text


def grouped(warnings: Iterable[ReportWarning]) -> list[Bullet]:
    """One line per cause, in order of appearance: sentences about cases that differ in their numbers only are one."""
    found: dict[str | tuple[str, str], list[ReportWarning]] = {}
    for warning in warnings:
        key = ("case", NUMBER.sub("#", warning.text)) if warning.case else warning.text
        found.setdefault(key, []).append(warning)
    return [_together(members) for members in found.values()]


def _together(members: list[ReportWarning]) -> Bullet:
    first = members[0].text
    cases = tuple(dict.fromkeys(warning.case for warning in members if warning.case))
    alike = all(warning.text == first for warning in members)
    return Bullet(first if alike or len(cases) < 2 else f"{first} (numbers of the first case)", cases)


@dataclasses.dataclass(frozen=True)
class Report:
    """A judgement with its machine, its two sides and everything that was left out.

    machine: the fingerprint of the trial file.  clocks: by arm or moment ("base", "head", "before").
    costs: by case name.  links: label -> URL, written by us, never by what was measured.
    explanations: why cases are slower.  ran: files of the change that were run.  again: the command that shows the
    worst cases again, "" for that of their operators.
    title: what was judged, for the first line ("pull request", "recorded commits", "replay").
    """

    judgement: Judgement
    title: str = "pull request"
    base: Side = Side()
    head: Side = Side()
    machine: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    costs: Mapping[str, CaseCost] = dataclasses.field(default_factory=dict)
    clocks: Mapping[str, Clocks] = dataclasses.field(default_factory=dict)
    skipped: tuple[Skip, ...] = ()
    warnings: tuple[ReportWarning, ...] = ()
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    explanations: tuple[Explanation, ...] = ()
    ran: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    again: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict on everything together."""
        return self.judgement.verdict

    @property
    def all_warnings(self) -> tuple[ReportWarning, ...]:
        """Warnings of the judgement, then of the measurement, each once."""
        judged = (ReportWarning(text) for text in self.judgement.warnings)
        return tuple(dict.fromkeys((*judged, *self.warnings)))

    def moved(self) -> tuple[CaseVerdict, ...]:
        """The cases to show one by one: worst verdict first, then the largest change first."""
        moved = (case for case in self.judgement.cases if case.verdict.moved)
        return tuple(sorted(moved, key=lambda case: (case.verdict.rank, -_size(case), case.case)))


def _size(case: CaseVerdict) -> float:
    return abs(case.ratio - 1.0) if case.ratio is not None else float("inf")


# From trials and a judgement to a report: who was compared, on what machine, and what was left out.


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
        warnings=tuple(dict.fromkeys(one for trial in trials for one in _warnings(trial, judgement))),
        ran=ran_differently(trials),
        programs=tuple(dict.fromkeys(trial.operator for trial in trials if trial.by_program)),
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


def _warnings(trial: Trial, judgement: Judgement) -> Iterable[ReportWarning]:
    told = judgement.sentences()
    for role, checkout in trial.checkouts.items():
        for one in checkout.broken:
            if any(one.reason in sentence for sentence in told):
                continue  # a broken import is told once, with its cases or the operators that it hides
            yield ReportWarning(f"kernels module {one.module} of {role} is broken: {one.reason}")
    yield from map(ReportWarning, trial.warnings)
    for name, case in trial.cases.items():
        yield from (ReportWarning(text, f"{trial.operator}/{name}") for text in case.warnings)


def skips_of(trials: Iterable[Trial]) -> Iterable[Skip]:
    """What has no time: one entry for all backends and cases that share a reason."""
    by_reason: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for trial in trials:
        for case, _, backend, arm in trial.arms():
            if not arm.ok and not (arm.status is Status.UNTIMED and arm.code_hash):  # the same code is a verdict
                backends, cases = by_reason.setdefault((str(arm.status), arm.why), ({}, {}))
                backends[f"{trial.operator}/{backend}"] = cases[case] = None
    for (status, why), (backends, cases) in by_reason.items():
        yield Skip(f"{_few([*backends])}/{_few([*cases])}", status, why)


def _unreached(operators: Sequence[str]) -> Iterable[Skip]:
    """What was not measured because nothing that changed can reach it."""
    if operators:
        why = "no file that its code can come from differs; --all-cases measures it"
        yield Skip(", ".join(operators), "unchanged", why)


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
    return {
        moment: Clocks(clocks.sm_clock_mhz, clocks.power_w, clocks.temperature_c, clocks.throttle or "")
        for moment, clocks in moments.items()
        if clocks
    }


# ---- lines of a list, and tables of cells ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bullet:
    """One line of a list.  cases: what it is about, () for everything.  style: on a terminal, in the words of rich.

    most: characters of it in a comment.
    """

    text: str
    cases: tuple[str, ...] = ()
    style: str = ""
    most: int = 400


@dataclasses.dataclass(frozen=True)
class Sheet:
    """Cells that are ready to be shown.  texts: how many of the first columns are text; the others are numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int


def pipes(sheet: Sheet) -> list[str]:
    """The lines of a pipe table; what its cells hold must be inert already."""
    rule = ["---" if i < sheet.texts else "--:" for i in range(len(sheet.header))]
    return [f"| {' | '.join(sheet.header)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(row)} |" for row in sheet.rows)]


def markdown(sheet: Sheet) -> str:
    """A pipe table below its title; a cell may hold any text."""

    def inert(cells: Iterable[str]) -> tuple[str, ...]:
        return tuple(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)

    body = "\n".join(pipes(Sheet("", inert(sheet.header), tuple(map(inert, sheet.rows)), sheet.texts)))
    return f"**{sheet.title}**\n\n{body}\n" if sheet.title else f"{body}\n"
