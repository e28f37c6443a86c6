"""What a session is told to measure while it runs: some trials of some cases, again and again.

Whoever judges between the trials says what comes next, and the session keeps what took it seconds to find out: what
the checkouts declare, the machine, and a fork server that has imported torch.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from benchmarks.plan import Json, PlannedCase, UsageError, unknown_kernel

MOST_ROUNDS = 10_000
"""What an order may ask for; a trial of 40 is usual."""

ASKING = {"asks": "orders"}
"""The line on stderr that asks for the next line on stdin: a JSON list of orders, an empty one to end."""


@dataclasses.dataclass(frozen=True)
class MeasureOrder:
    """Trials `first_trial` and on of some cases of a kernel; no cases: all of them.

    kernel "": of every planned one but those `without`.  rounds: by case, where it is not the protocol's number.
    """

    kernel: str
    cases: tuple[str, ...]
    first_trial: int
    trials: int
    without: tuple[str, ...] = ()
    rounds: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, data: Json) -> MeasureOrder:
        """From its JSON; UsageError names what is wrong."""
        try:
            numbers = int(data["first_trial"]), int(data["trials"])
            rounds = {str(case): int(count) for case, count in dict(data.get("rounds", {})).items()}
            found = cls(str(data["kernel"]), tuple(data["cases"]), *numbers, tuple(data.get("without", ())), rounds)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"an order has kernel, cases, first_trial and trials, not {data!r} ({error})") from None
        if found.trials < 1 or found.first_trial < 0:
            raise UsageError(f"an order of {found.trials} trials from number {found.first_trial}: 1 from 0 at least")
        for case, count in found.rounds.items():
            if not 1 <= count <= MOST_ROUNDS:
                raise UsageError(f"an order of {count} rounds of {case}: 1 to {MOST_ROUNDS}")
        return found


@dataclasses.dataclass(frozen=True)
class PlannedTrial:
    """One trial to be measured: of a kernel, with its number."""

    kernel: str
    number: int
    cases: tuple[PlannedCase, ...]


def in_turns(orders: Sequence[MeasureOrder], plans: Mapping[str, Sequence[PlannedCase]]) -> list[PlannedTrial]:
    """The trials of all orders: a trial of each, then the next of each."""
    single = [one for order in orders for one in _of_kernels(order, plans)]
    return [
        PlannedTrial(one.kernel, one.first_trial + turn, _ordered(one, plans[one.kernel]))
        for turn in range(max((one.trials for one in single), default=0))
        for one in single
        if turn < one.trials
    ]


def _of_kernels(order: MeasureOrder, plans: Mapping[str, Any]) -> list[MeasureOrder]:
    if order.kernel and order.kernel not in plans:
        raise unknown_kernel(order.kernel, sorted(plans))
    names = [order.kernel] if order.kernel else [name for name in plans if name not in order.without]
    return [dataclasses.replace(order, kernel=name) for name in names]


def _ordered(order: MeasureOrder, planned: Sequence[PlannedCase]) -> tuple[PlannedCase, ...]:
    known = [case.name for case in planned]
    for name in (*order.cases, *order.rounds):
        if name not in known:
            raise UsageError(f"{order.kernel} has no planned case {name!r}; there are: {', '.join(known)}")
    chosen = (case for case in planned if not order.cases or case.name in order.cases)
    return tuple(dataclasses.replace(case, rounds=order.rounds.get(case.name, 0)) for case in chosen)


def read(source: TextIO | None = None) -> Iterator[list[MeasureOrder]]:
    """Orders from stdin, each asked for when the one before is done, until there is none.  Raises UsageError."""
    while True:
        print(json.dumps(ASKING), file=sys.stderr, flush=True)
        line = (source or sys.stdin).readline()
        try:
            told = json.loads(line or "[]")
        except ValueError as error:
            raise UsageError(f"orders are a JSON list in one line, not {line[:80]!r} ({error})") from None
        if not isinstance(told, list):
            raise UsageError(f"orders are a JSON list, not {line[:80]!r}")
        if not told:
            return
        yield [MeasureOrder.of(one) for one in told]
