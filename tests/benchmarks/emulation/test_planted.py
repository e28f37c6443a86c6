"""The table of planted faults is of the faults that are listed, and each can still be planted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.study import planted_emulation as study

TABLE = Path(study.__file__).with_suffix(".md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TABLE.splitlines()[4:]]


def test_the_table_has_every_fault_and_all_are_found():
    assert [(row[0].strip("| "), row[1], row[2]) for row in ROWS] == [
        (fault.what, fault.operator, fault.arch) for fault in study.FAULTS
    ]
    assert len(ROWS) >= 40
    assert re.match(rf"{len(ROWS)} of {len(ROWS)} faults are found", TABLE)
    assert "NOT FOUND" not in TABLE


@pytest.mark.parametrize("fault", study.FAULTS, ids=lambda fault: fault.what)
def test_the_line_is_still_there(fault, tmp_path):
    place = tmp_path / "kernels" / fault.file
    place.parent.mkdir(parents=True)
    text = (study.ROOT / "kernels" / fault.file).read_text(encoding="utf-8")
    place.write_text(text, encoding="utf-8")
    study.planted(fault, tmp_path)
    assert place.read_text(encoding="utf-8") != text
    compile(place.read_text(encoding="utf-8"), fault.file, "exec")
