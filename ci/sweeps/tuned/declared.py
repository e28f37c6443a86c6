"""What can be tuned in a tree, as its declarations have it (`python -m benchmarks candidates`)."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path

from ci.harness import options, query
from ci.sweeps.measured import SweepError
from ci.sweeps.tuned.cases import Table, TablePlace, TunedCase, sharing


def parsed(found: Table, operator: str) -> list[TunedCase]:
    """The cases of an operator whose backends have a table, and a configuration on the asked architecture."""
    mine = [one for one in found["entries"] if one.get("kernel", operator) == operator]
    return [_case(one, operator) for one in mine if one.get("table")]


def _case(one: Table, operator: str) -> TunedCase:
    table = one["table"]
    place = TablePlace(Path(table["file"]), tuple(table["table"]), table["key"])
    facts = {name: table[name] for name in ("entry", "rule", "defaults", "scale")}
    return TunedCase(operator, one["case"], one["backend"], place, **facts, candidates=tuple(one["candidates"]))


def chosen(
    cases: Sequence[TunedCase], operator: str, patterns: Sequence[str] = (), backends: Sequence[str] = ()
) -> list[TunedCase]:
    """The asked cases, and those that share an entry with them.  SweepError names what fits nothing."""
    if not cases:
        raise SweepError(
            f"no backend of {operator} has a tuned table and knobs on this machine; `tuned=` of kernel.backend() "
            "names one (kernels/spec.py)"
        )
    names, owners = sorted({one.case for one in cases}), sorted({one.backend for one in cases})
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise SweepError(f"no case of {operator} that can be tuned fits {pattern!r}; it has {', '.join(names[:8])}")
    for name in backends:
        if name not in owners:
            raise SweepError(
                f"backend {name!r} of {operator} has no tuned table; those that have one: {', '.join(owners)}"
            )
    fits = [
        one
        for one in cases
        if (not backends or one.backend in backends)
        and (not patterns or any(fnmatch.fnmatchcase(one.case, pattern) for pattern in patterns))
    ]
    return sharing(cases, fits)


def operators(tree: Path) -> list[str]:
    """Every operator of a tree that has a tuned table, by what it declares."""
    found = query("list", *options(tree=tree))
    return [one["kernel"] for one in found["kernels"] if one.get("tuned")]
