"""Explanations in results/: kept once, replaced by later ones, and never lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ci.records import ledger
from ci.records.ledger import CAUSES, Explanation, RecordedCause, TriedCause, machine_folders

CASE, MACHINE, BASE, HEAD = "gemm/triton/m64", "h200x1-1a2b3c4d", "b" * 40, "a" * 40
SHOWN = Explanation(
    (CASE,),
    CASE,
    "proven",
    "knob num_stages 3 → 2: putting it back leaves +0.01 % of +5.84 %: proven",
    (TriedCause("knob", "num_stages", "3 → 2", "explains all", 0.99, 1.0001, 0.998, 1.002, 3),),
    ("LDS bytes: 3 → 2",),
    1,
    3,
    12.5,
)
RECORDED = RecordedCause(MACHINE, BASE, HEAD, SHOWN)


def test_what_is_kept_is_read_back_and_is_no_machine(tmp_path: Path) -> None:
    (path,) = ledger.record_causes(tmp_path, [RECORDED])
    assert path == tmp_path / "causes" / f"{MACHINE}.jsonl"
    assert ledger.causes_in(tmp_path) == ([RECORDED], [])
    assert machine_folders(tmp_path) == []
    before = path.read_bytes()
    ledger.record_causes(tmp_path, [RECORDED])
    assert path.read_bytes() == before


def test_later_experiments_on_the_same_case_count_and_others_stay(tmp_path: Path) -> None:
    other = dataclasses.replace(RECORDED, base="c" * 40)
    again = dataclasses.replace(RECORDED, explanation=dataclasses.replace(SHOWN, state="partly"))
    ledger.record_causes(tmp_path, [RECORDED, other])
    ledger.record_causes(tmp_path, [again])
    assert ledger.causes_in(tmp_path)[0] == [again, other]


def test_what_rests_on_no_experiment_is_not_kept(tmp_path: Path) -> None:
    left = dataclasses.replace(RECORDED, explanation=Explanation((CASE,), CASE, "not examined", "not examined: ..."))
    assert ledger.record_causes(tmp_path, [left]) == []
    assert ledger.causes_in(tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("line", "why"), [("{", "not JSON"), ('{"format": "x"}', "it is missing"), ("[]", "an object")]
)
def test_a_line_that_cannot_be_used_is_said_and_stays(tmp_path: Path, line: str, why: str) -> None:
    (path,) = ledger.record_causes(tmp_path, [RECORDED])
    path.write_text(path.read_text() + line + "\n")
    found, said = ledger.causes_in(tmp_path)
    assert found == [RECORDED]
    assert why in said[0]
    assert str(path) in said[0]
    ledger.record_causes(tmp_path, [dataclasses.replace(RECORDED, base="c" * 40)])
    assert line in path.read_text().splitlines()


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    line = json.loads(CAUSES.line(RECORDED))
    line["tried"][0]["ratio"] = "1.0"
    with pytest.raises(ValueError, match="ratio"):
        CAUSES.parsed(json.dumps(line))


def test_a_pair_of_commits_has_its_own(tmp_path: Path) -> None:
    assert ledger.causes_of([RECORDED], BASE, HEAD, MACHINE) == (SHOWN,)
    assert ledger.causes_of([RECORDED], HEAD, BASE, MACHINE) == ()
    assert ledger.causes_of([RECORDED], BASE, HEAD, "other") == ()
