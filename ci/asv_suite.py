"""What asv's suite is told about a commit, and what came of each parameter combination: values only, no asv, no I/O.

Declarations come from what `python -m benchmarks list --json` prints; documents are JSON for benchmarks/suite.py.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from ci.harness import TIERS
from ci.records import rows
from ci.records.pooling import Cell, PooledTrials
from ci.trials.trial import Declaration

Json = dict[str, Any]
Outcome = Mapping[str, str | list[float]]
"""What asv is told of one combination: {"samples": seconds}, {"failed": why} or {"absent": why}."""


@dataclasses.dataclass(frozen=True)
class Listing:
    """What a checkout declares.  operators: by name.  document: the same as JSON, as it is kept on disk."""

    operators: Mapping[str, Declaration]
    document: Json

    @classmethod
    def read(cls, document: Json) -> Listing:
        """From its document: {"kernels": {name: declaration}, "broken": [{"module", "reason"}]}."""
        return cls({name: Declaration.of(data) for name, data in document["kernels"].items()}, document)

    @classmethod
    def of_answer(cls, answer: Json) -> Listing:
        """From what `python -m benchmarks list --json` prints."""
        kernels = {declared["kernel"]: declared for declared in answer["kernels"]}
        return cls.read({"kernels": kernels, "broken": answer["broken"]})

    @classmethod
    def of_nothing(cls, why: str) -> Listing:
        """Of a checkout that cannot be listed at all, being older than kernels/: that is its one broken module."""
        return cls.read({"kernels": {}, "broken": [{"module": "kernels", "reason": why}]})


@dataclasses.dataclass(frozen=True)
class Installed:
    """The commit under test: where it is checked out, its committer date (ms since 1970 UTC), what it declares."""

    folder: str
    commit: str
    date_ms: int
    listing: Listing

    @classmethod
    def read(cls, data: Json) -> Installed:
        """From the suite's document: asv may run the process that measures apart from the one that installed."""
        return cls(data["tree"], data["commit"], data["date_ms"], Listing.read(data["listing"]))

    @property
    def name(self) -> str:
        """For messages."""
        return f"commit {self.commit[:8]}"


@dataclasses.dataclass(frozen=True)
class Grid:
    """What a run measures, fixed while several commits run.

    benchmarks: entries of asv's benchmarks.json.  operators: the declarations whose benchmark definitions count.
    """

    benchmarks: Mapping[str, Json]
    operators: Mapping[str, Declaration]

    @classmethod
    def union(cls, installed: Installed, current: Listing) -> Grid:
        """What the discovered commit declares, widened by the operators and cases of the current checkout.

        So `asv find`, which discovers from its oldest commit, knows the operators of today.
        """
        benchmarks: Json = rows.broken_benchmark()
        for declared in current.operators.values():
            benchmarks |= rows.benchmarks_of(declared)
        for declared in installed.listing.operators.values():
            benchmarks = rows.merged(benchmarks, rows.benchmarks_of(declared, installed.date_ms))
        benchmarks.pop("version", None)
        return cls(benchmarks, {**current.operators, **installed.listing.operators})

    def combinations(self, operator: str) -> Iterator[tuple[str, str]]:
        """Backend and case of each combination of an operator's times."""
        axes = self.benchmarks[f"{operator}.{rows.TIME}"]["params"]
        backends, cases = ([text[1:-1] for text in axis] for axis in axes)
        return itertools.product(backends, cases)


def document(installed: Installed, grid: Grid, tier: str) -> Json:
    """What benchmarks/suite.py reads; its docstring describes it."""
    absent = {name: why for name in grid.operators if (why := why_absent(name, grid, installed))}
    return {
        "tree": installed.folder,
        "commit": installed.commit,
        "date_ms": installed.date_ms,
        "listing": installed.listing.document,
        "tier": tier,
        "broken": installed.listing.document["broken"],
        "absent": absent,
        "values": dict(_exact_values(installed, grid, absent)),
        "benchmarks": grid.benchmarks,
    }


def why_absent(operator: str, grid: Grid, installed: Installed) -> str:
    """Why an operator cannot be measured at a commit in this run, "" if it can."""
    declared = installed.listing.operators.get(operator)
    if declared is None:
        return f"{installed.name} declares no kernel {operator!r}"
    own, counts = declared.definition, grid.operators[operator].definition
    if own != counts:
        return (
            f"{installed.name} measures {operator!r} by another benchmark definition ({own}) than this run ({counts});"
            f" `asv run {installed.commit[:8]}^!` measures it by its own"
        )
    return ""


def outcomes(operator: str, grid: Grid, installed: Installed, tier: str, measured: PooledTrials | None) -> Json:
    """Outcomes of an operator by backend and case."""
    found: dict[str, dict[str, Outcome]] = {}
    absent = why_absent(operator, grid, installed)
    for backend, case in grid.combinations(operator):
        cell = measured.cells.get((operator, backend, case)) if measured else None
        why = absent or _why_case_absent(operator, case, grid, installed)
        if not why and cell is None:
            why = _why_not_measured(installed, operator, backend, case, tier)
        found.setdefault(backend, {})[case] = {"absent": why} if why or cell is None else _outcome(cell)
    return found


def _outcome(cell: Cell) -> Outcome:
    if cell.trials:
        return {"samples": [float(value) for trial in cell.trials for value in trial]}
    failed = rows.value_of(cell) is None
    return {"failed" if failed else "absent": f"{cell.status}: {cell.why}"}


def _exact_values(
    installed: Installed, grid: Grid, absent: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, float]]]:
    """FLOPs or bytes of each case for which the declaration states them, by benchmark."""
    for name in grid.benchmarks:
        operator, _, series = name.partition(".")
        if series in rows.EXACT and operator not in absent:
            declared = installed.listing.operators[operator]
            costs = {case: rows.cost_of(declared, case, series) for case in declared.cases}
            yield name, {case: value for case, value in costs.items() if not math.isnan(value)}


def _why_case_absent(operator: str, case: str, grid: Grid, installed: Installed) -> str:
    declared = installed.listing.operators[operator]
    if case not in declared.cases:
        return f"{installed.name} declares no case {case!r} of {operator!r}"
    counts = grid.operators[operator].cases.get(case)
    if counts is None or declared.cases[case].definition != counts.definition:
        return f"{installed.name} means something else by case {case!r}: its benchmark definition differs"
    return ""


def _why_not_measured(installed: Installed, operator: str, backend: str, case: str, tier: str) -> str:
    declared = installed.listing.operators[operator]
    if backend not in declared.backends:
        return f"{installed.name} has no backend {backend!r} of {operator!r}"
    own = declared.cases[case].tier
    if tier in TIERS[TIERS.index(own) :]:  # benchmarks.plan.in_turn
        return f"not measured in tier {tier!r} with this number of devices; set RIDGELINE_TIER=nightly"
    return f"not measured in tier {tier!r}: the case belongs to {own!r}; set RIDGELINE_TIER={own}"
