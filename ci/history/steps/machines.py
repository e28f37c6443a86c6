"""Machines that go by another name now: joined where somebody said so, suggested where it looks so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import pandas as pd

from ci.history.steps.series import first_rows

HARDWARE = ("kind", "arch", "device", "market_name", "count", "compute_units", "memory_bytes")
"""What two names of one machine have in common.  The chip id may differ: a device may have been exchanged."""


def root(machine: str, renamed: Mapping[str, str]) -> str:
    """The oldest name of a machine: ids of events are made of it.  renamed: new name -> old name."""
    seen = {machine}
    while (older := renamed.get(machine)) is not None and older not in seen:
        machine = older
        seen.add(machine)
    return machine


def joined(frame: pd.DataFrame, renamed: Mapping[str, str]) -> pd.DataFrame:
    """The frame with each machine under its newest name."""
    if not renamed:
        return frame
    newest = {root(name, renamed): name for name in renamed if name not in renamed.values()}
    names = frame["machine"].astype(str)
    return frame.assign(machine=names.map({name: newest.get(root(name, renamed), name) for name in names.unique()}))


def suggestions(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence for each machine that begins where another one of the same hardware ended.

    The frame stands in the order of dates.
    """
    columns = [name for name in HARDWARE if name in frame]
    if not columns:
        return
    rows = first_rows(frame, ["machine"]), len(frame) - 1 - first_rows(frame.iloc[::-1], ["machine"])
    spans = [frame[["machine", "date", *columns]].iloc[one].set_index("machine") for one in rows]
    for old, new in itertools.permutations(spans[0].index, 2):
        ended, began = spans[1].loc[old], spans[0].loc[new]
        if ended["date"] < began["date"] and all(_same(ended[name], began[name]) for name in columns):
            yield (
                f"{new} has the hardware of {old}, which was last seen before {new} began: if it is the same machine,"
                f' join their histories with [renamed] "{new}" = "{old}" in the file of decisions'
            )


def _same(one: object, other: object) -> bool:
    return one == other or (pd.isna(one) and pd.isna(other))  # type: ignore[call-overload]
