"""The numbers of a page as files for other programs: JSON and CSV with the same columns, beside the page's own data."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet run a text as a formula; an apostrophe before it keeps it a text."""


def beside(path: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """data/PATH.json and data/PATH.csv of rows that share their keys; of no rows, nothing."""
    if rows:
        lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
        yield f"data/{path}.json", f"[\n{lines}\n]\n".encode("ascii")
        yield f"data/{path}.csv", as_csv(csv_lines(rows, list(rows[0])))


def csv_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """The head and a line for each row, as CSV."""
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return lines


def as_csv(lines: Iterable[str]) -> bytes:
    """A file of such lines."""
    return "".join(lines).encode("utf-8", "backslashreplace")


class _Lines(list[str]):
    """What csv writes to, a line at a time."""

    write = list.append


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    return str(value).lower() if isinstance(value, bool) else value
