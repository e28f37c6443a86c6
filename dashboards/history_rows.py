"""The rows that the history is judged by, of all commits: full blocks are kept in a file, which is read in a blink.

Of a record the history wants a third of the columns, and the Parquet parts take seconds to unpack (3 million rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ci.history.exact import VERSIONS
from ci.history.health import CASE
from ci.records.frame import RecordPlace
from dashboards import past_file
from dashboards.blocks import chain_of_blocks, is_full
from dashboards.lanes import BLOCK, slug
from dashboards.recent import Past, stacked
from dashboards.sources import LaneSource, ReadRows

COLUMNS = dict.fromkeys(
    [
        *("machine", "kind", "device", "count", "date", *CASE, "baseline", "seconds", "status", "yardstick", "code"),
        *VERSIONS,
        *("trials", "paired_ratio", "paired_low", "paired_high", "paired_with", "baseline_ratio", "baseline_name"),
    ]
)
"""Columns that `ci.history` reads, of the records and derived."""


def history_rows(sources: Sequence[ReadRows], code: str, kept: Path | None) -> pd.DataFrame:
    """The rows of all machines with these columns, oldest commit first, as of a derived frame of all records.

    code: digest of the code that reads; kept: folder for what was read, None to keep nothing.
    """
    frames = [
        _of_machine(source, code, kept / f"history-{slug(source.machine)}.arrow" if kept else None)
        for source in sources
    ]
    return _by_date(stacked(frames)) if frames else pd.DataFrame()


def _of_machine(source: ReadRows, code: str, file: Path | None) -> pd.DataFrame:
    blocks = LaneSource(source, None, source.places).blocks(BLOCK)
    chain = chain_of_blocks(code, [source.made_of(block) for block in blocks])
    full = sum(map(is_full, blocks))
    count, past = past_file.load(file, chain[: full + 1])
    settled = [*([past.rows] if past else []), *(_rows(source, blocks[n]) for n in range(count, full))]
    if count < full:
        settled = [stacked(settled)]
        past_file.save(file, chain[full], Past(settled[0]))
    return stacked([*settled, *(_rows(source, blocks[n]) for n in range(full, len(blocks)))])


def _rows(source: ReadRows, places: Sequence[RecordPlace]) -> pd.DataFrame:
    frame = source.derived(places)
    return frame[[name for name in COLUMNS if name in frame]]


def _by_date(frame: pd.DataFrame) -> pd.DataFrame:
    """In the order of dates, then commits; rows of one commit as they were."""
    dates, commits = frame["date"].array.asi8, frame["commit"].cat.codes.to_numpy()
    later = (dates[1:] > dates[:-1]) | ((dates[1:] == dates[:-1]) & (commits[1:] >= commits[:-1]))
    if later.all():
        return frame
    return frame.iloc[np.lexsort((commits, dates))].reset_index(drop=True)
