"""Tables: one description gives the page's data and the CSV file."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import get_args

import pytest

import dashboards
from dashboards.table import PARTS, Column, Kind, Table
from tests.dashboards import synthetic

STATIC = Path(dashboards.__file__).parent / "static"


def read(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.csv().decode())))


def test_a_column_gives_the_parts_of_its_kind() -> None:
    columns = [Column("r", "ratio", "ratio"), Column("v", "speed", "rate"), Column("c", "commit", "commit")]
    table = Table("t", "a table", columns, [[(1.02, 1.01, float("nan")), [3.5, "TFLOPS"], ["ab" * 20, "2026-11-20"]]])
    assert read(table) == [
        {
            "r": "1.02",
            "r_low": "1.01",
            "r_high": "",
            "v": "3.5",
            "v_unit": "TFLOPS",
            "c": "ab" * 20,
            "c_date": "2026-11-20",
        }
    ]
    described = table.piece()["columns"]
    assert [column.get("parts", [column["key"]]) for column in described] == [column.parts for column in columns]


@pytest.mark.parametrize("text", [one for one in synthetic.TEXTS if "\0" not in one])
def test_no_text_is_a_formula_of_a_spreadsheet(text: str) -> None:
    cell = read(Table("t", "", [Column("a", ""), Column("b", "")], [[text, "b"]]))[0]["a"]
    assert not cell.startswith(("=", "+", "-", "@", "\t"))


def test_the_script_shows_every_kind() -> None:
    script = (STATIC / "table.js").read_text()
    cells = script[script.index("const CELLS = {") : script.index("const NUMBERS")]
    assert set(get_args(Kind)) == set(re.findall(r"^    (\w+):", cells, re.M))
    assert set(PARTS) <= set(get_args(Kind))
