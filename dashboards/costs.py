"""What the cases of some rows cost, each cost once, and the unit in which a case is quoted."""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np

from ci.records import rates
from ci.records.rates import Rate
from dashboards.columns import Columns, Floats, Ints, Runs, ranks
from dashboards.values import CostRow


@dataclasses.dataclass(frozen=True, eq=False)
class Costs:
    """By case, in the order of the rows.

    names: of the cases; each: the different costs of a case, the newest that is stated last; newest: row of the newest
    record of the case, by any arm; number: for each row, which of the costs of its case it has.
    """

    names: list[str]
    each: list[list[CostRow]]
    newest: Ints
    number: Ints

    @classmethod
    def of(cls, rows: Columns) -> Self:
        """Of rows of one lane, of one kernel or of many."""
        cases, arms = rows.runs("kernel", "case"), rows.runs("kernel", "case", "backend").number()
        fields = [np.nan_to_num(rows.numbers[name]) for name in CostRow._fields]
        stretches = Runs.of(arms, *fields)
        case = cases.number()[stretches.first]
        found = np.column_stack([field[stretches.first] for field in fields]).tolist()
        at = _history(rows)[stretches.last].tolist()
        last: list[dict[CostRow, int]] = [{} for _ in range(len(cases))]
        for number, values, place in zip(case.tolist(), found, at, strict=True):
            cost = CostRow(*values)
            last[number][cost] = max(place, last[number].get(cost, -1))
        each = [sorted(costs, key=lambda cost: (cost.stated, costs[cost])) for costs in last]
        numbers = [{cost: n for n, cost in enumerate(costs)} for costs in each]
        of_run = [numbers[number][CostRow(*values)] for number, values in zip(case.tolist(), found, strict=True)]
        number = np.repeat(np.array(of_run, np.int64), np.diff(stretches.bounds))
        return cls(rows.texts["case"][cases.first].list(), each, _newest(rows, cases), number)

    def rates(self) -> list[Rate]:
        """The unit of each case, by its newest stated cost."""
        return [rates.headline(costs[-1]) for costs in self.each]


def _history(rows: Columns) -> Ints:
    """For each row its place in history: by commit, then by environment and backend."""
    env, backend = rows.texts["env"], rows.texts["backend"]
    size = int(rows.when.max(initial=0)) + 1
    return ranks([(rows.when, size), (env.codes, len(env.names)), (backend.codes, len(backend.names))])


def _newest(rows: Columns, cases: Runs) -> Ints:
    """The row of each case that is last in history."""
    place = _history(rows)
    best = np.maximum.reduceat(place, cases.first) if len(cases) else place
    return np.flatnonzero(place == best[cases.number()])


def plain_cost(cost: CostRow) -> dict[str, float]:
    """What is known of a cost, exactly; whole numbers without ".0"."""
    known = {name: value for name, value in cost._asdict().items() if value}
    return {name: int(value) if value.is_integer() and value < 2**53 else value for name, value in known.items()}


RATES = tuple(Rate)
"""Rates by number."""


def in_rates(rows: Columns, wanted: Ints, seconds: Floats) -> Floats:
    """Seconds of each row in the rate wanted for it (its number among RATES); TIME is in µs.

    NaN where that part of the cost is not known.
    """
    found = np.full(len(rows), np.nan)
    for number in np.unique(wanted).tolist():
        here = np.flatnonzero(wanted == number)
        found[here] = _in_rate(rows, here, RATES[number], seconds[here])
    return found


def _in_rate(rows: Columns, here: Ints, rate: Rate, seconds: Floats) -> Floats:
    if rate is Rate.TIME:
        return seconds * 1e6
    amount = rows.numbers[rates.AMOUNT[rate]][here]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(amount > 0, rates.value(rate, amount, rows.numbers["world"][here], seconds), np.nan)
