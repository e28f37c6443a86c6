"""The cases whose tuned knobs a change of tables changes, of whatever tier: such a change is measured by them."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.reach.operators import Reach
from ci.git.repository import LocalCheckout
from ci.harness import TIERS, MeasureError, MeasurePlan, machine_kind, options, query
from ci.isa.compiled import TARGETS
from ci.isa.text import few

TABLE = ".toml"
"""How the name of a table of knobs ends (kernels/_shared/tuning.py)."""


def with_changed_rows(
    plan: MeasurePlan, reach: Reach, checkouts: Sequence[LocalCheckout], console: Console
) -> MeasurePlan:
    """The plan with the cases whose knobs differ, where tables alone differ; else the plan as it is.

    plan: its kernels are those that differ, and it names no cases.  A row of a nightly case counts like any other; the
    cases whose knobs are equal run equal code.
    """
    files = {path for name in plan.kernels for path in reach.differing.get(name, ("",))}
    if plan.cases or not files or not all(path.endswith(TABLE) for path in files):
        return plan
    paths = [side.path for side in checkouts]
    arches = [""] if machine_kind() == "gpu" else _changed_arches(paths, files)
    try:
        cases = sorted({case for arch in arches for case in _differing_cases(paths, plan.kernels, arch)})
    except MeasureError as error:  # a side that declares no such operator, or cannot be imported: measuring says so
        console.print(f"the cases of the changed rows are not known: {error}", markup=False)
        return plan
    if not cases:
        console.print("only tables of tuned knobs differ, and no declared case uses a row that changed")
        return plan
    console.print(
        f"only tables of tuned knobs differ: measuring the cases whose rows changed ({few(cases)})", markup=False
    )
    return dataclasses.replace(plan, tier=TIERS[-1], cases=tuple(cases))


def _changed_arches(paths: Sequence[Path], files: set[str]) -> list[str]:
    """The targets whose sections differ in some of the tables; all of them where a table has no such sections."""
    found: set[str] = set()
    for file in files:
        base, head = (_sections(path / file) for path in paths)
        found |= {name for name in {**base, **head} if base.get(name) != head.get(name)}
    return [arch for arch in TARGETS if arch in found] or list(TARGETS)


def _sections(table: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(table.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent on this side; what it means is said where the operator is imported
        return {}


def _differing_cases(paths: Sequence[Path], kernels: Sequence[str], arch: str) -> set[str]:
    """The cases for which some backend chooses other knobs in head than in base.  Raises MeasureError."""
    base, head = (_knobs(path, kernels, arch) for path in paths)
    return {case for kernel, case, backend in head if head[kernel, case, backend] != base.get((kernel, case, backend))}


def _knobs(tree: Path, kernels: Sequence[str], arch: str) -> dict[tuple[str, str, str], str]:
    """The knobs in use by operator, case and backend, as text.  arch: "" for the device here."""
    entries = query("candidates", *options(tree=tree, kernel=list(kernels), arch=arch or None))["entries"]
    return {(one["kernel"], one["case"], one["backend"]): json.dumps(one["config"], sort_keys=True) for one in entries}
