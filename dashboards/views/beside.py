"""The numbers of a page as files for other programs: JSON and CSV with the same columns, beside the page's own data."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet run a text as a formula; an apostrophe before it keeps it a text."""


def beside(path: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """data/PATH.json and data/PATH.csv of rows that share their keys; of no rows, nothing."""
    if rows:
        lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
        yield f"data/{path}.json", f"[\n{lines}\n]\n".encode("ascii")
        yield f"data/{path}.csv", _csv(rows)


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
