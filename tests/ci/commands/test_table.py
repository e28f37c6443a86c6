"""`ridgeline table`: the shape of its answer, what each form prints, and how it ends."""

from __future__ import annotations

import functools
import json
import shlex
from pathlib import Path

import pytest

from ci.commands import table
from ci.options import USAGE
from tests.kit import ridgeline

TEXT = """model,routing,op,triton,tuned,gmm
x,even,f,11,12,10
x,even,d,8,10,10
x,odd,f,30,27,20
y,odd,d,5,6,8
"""


ROOT = Path(__file__).parents[3]

run = functools.partial(ridgeline, "table")


def answer(*args, given=TEXT):
    result = run("-", *args, "--json", given=given)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_answer_has_the_fixed_shape():
    found = answer("--columns", "triton,tuned", "--baseline", "gmm", "--score", "higher", "--by", "model,routing")
    assert {"rows", "backends", "groups", "worst"} <= set(found)
    assert found["rows"] == 4
    assert set(found["backends"]) == {"triton", "tuned", "gmm"}
    triton = found["backends"]["triton"]
    assert triton["geomean"] == pytest.approx((1.1 * 0.8 * 1.5 * 0.625) ** 0.25)
    assert (triton["wins"], triton["ties"], triton["losses"]) == (2, 0, 2)
    assert [group["key"] for group in found["groups"]] == [
        {"model": "x", "routing": "even"},
        {"model": "x", "routing": "odd"},
        {"model": "y", "routing": "odd"},
    ]
    assert found["groups"][0]["backends"]["triton"]["mean"] == pytest.approx(0.95)
    assert found["worst"][0] == {
        "row": 4,
        "key": {"model": "y", "routing": "odd", "op": "d"},
        "backend": "triton",
        "ratio": 0.625,
        "value": 5.0,
        "baseline": 8.0,
    }


def test_regret_and_the_rows_below_a_bound():
    found = answer("--baseline", "gmm", "--regret", "tuned=triton,gmm", "--by", "model")
    (regret,) = found["regret"]
    assert regret["candidates"] == ["triton", "gmm"]
    assert (regret["below"], regret["worst"], regret["picks"]) == (2, 0.75, {"triton": 2, "gmm": 2})
    assert [row["row"] for row in regret["worst_rows"]][:2] == [4, 3]
    below = {one["key"]["model"]: one["backends"]["tuned"]["below"] for one in regret["groups"]}
    assert below == {"x": 1, "y": 1}


def test_the_example_of_the_help_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    words = table.EXAMPLE.split("ridgeline table ")[1].split()
    result = run(*words)
    assert result.exit_code == 0
    assert "Autotune against the best of hipBLASLt, Triton in each row" in result.stdout
    assert "columns that are not compared: Autotune/GMM" in result.stderr


def test_the_guide_shows_what_its_commands_print(monkeypatch):
    """The published table: every row of the guide's tables is one that its commands print."""
    monkeypatch.chdir(ROOT)
    lines = (ROOT / ".github" / "guides" / "tables.md").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("ridgeline table ") and "/" in line]
    printed = [line for one in commands for line in run(*shlex.split(one)[2:]).stdout.splitlines()]
    shown = [line for line in lines if line.startswith("| ")]
    assert len(commands) == 1
    assert len(shown) == 7
    assert [line for line in shown if line not in printed] == []


def test_what_is_left_out_is_said_beside_the_table_and_in_the_answer():
    text = TEXT + "y,odd,d,1,2,3\nz,even,f,OOM,5,5\n"
    result = run("-", "--baseline", "gmm", given=text)
    assert result.exit_code == 0
    assert "repeats the key of a row before" in result.stderr
    assert "'OOM' is not a number" in result.stderr
    assert "OOM" not in result.stdout
    found = answer("--baseline", "gmm", given=text)
    assert found["rows"] == 5
    assert (found["backends"]["triton"]["rows"], found["backends"]["tuned"]["rows"]) == (4, 5)
    assert found["left_out"] == {"repeated keys": 1, "cells of text": 1}
    assert found["remarks"][0].startswith("row 5 (model=y, routing=odd, op=d) repeats")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            ["--baseline", "gm"],
            "there is no column 'gm'; the columns are model, routing, op, triton, tuned, gmm; did you",
        ),
        (["--by", "model,"], "names of columns are expected"),
        (["--regret", "tuned"], "COLUMN=CANDIDATE"),
        (["--score", "sideways"], "sideways"),
        (["--by", "speed"], "there is no column 'speed'"),
    ],
)
def test_a_wrong_question_leaves_with_3_and_says_what_is_allowed(args, sentence):
    result = run("-", *args, given=TEXT)
    assert result.exit_code == USAGE
    assert sentence in result.stderr
    assert "defect" not in result.stderr
