"""`ridgeline table`: the shape of its answer, what each form prints, and how it ends."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
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
    assert triton["mean"] == pytest.approx((11 + 8 + 30 + 5) / (10 + 10 + 20 + 8))
    assert triton["mean_of_ratios"] == pytest.approx((1.1 + 0.8 + 1.5 + 0.625) / 4)
    assert triton["geomean"] == pytest.approx((1.1 * 0.8 * 1.5 * 0.625) ** 0.25)
    assert (triton["wins"], triton["ties"], triton["losses"]) == (2, 0, 2)
    assert (found["backends"]["tuned"]["wins"], found["backends"]["tuned"]["ties"]) == (2, 1)
    gmm = found["backends"]["gmm"]
    assert (gmm["mean"], gmm["geomean"], gmm["wins"], gmm["ties"]) == (1.0, 1.0, 0, 4)
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


def test_times_are_better_when_they_are_lower():
    rates = answer("--baseline", "gmm")["backends"]["triton"]
    rows = list(csv.reader(io.StringIO(TEXT)))
    times = [rows[0], *([*row[:3], *(repr(1 / float(cell)) for cell in row[3:])] for row in rows[1:])]
    found = answer("--baseline", "gmm", "--score", "lower", given="\n".join(map(",".join, times)))["backends"]["triton"]
    assert found["wins"] == rates["wins"]
    assert found["geomean"] == pytest.approx(rates["geomean"])
    assert found["mean_of_ratios"] == pytest.approx(rates["mean_of_ratios"])


def test_ties_and_regret_and_the_rows_below_a_bound():
    asked = ("--tie", "12.5", "--regret", "tuned=triton,gmm", "--below", "0.9", "--worst", 1, "--by", "model")
    found = answer("--baseline", "gmm", *asked)
    assert (found["backends"]["triton"]["wins"], found["backends"]["triton"]["ties"]) == (1, 1)
    (regret,) = found["regret"]
    assert regret["candidates"] == ["triton", "gmm"]
    assert regret["geomean"] == pytest.approx((12 / 11 * 10 / 10 * 27 / 30 * 6 / 8) ** 0.25)
    assert regret["mean"] == pytest.approx((12 + 10 + 27 + 6) / (11 + 10 + 30 + 8))
    assert (regret["below"], regret["worst"], regret["picks"]) == (1, 0.75, {"triton": 2, "gmm": 2})
    assert [row["row"] for row in regret["worst_rows"]] == [4]
    below = {one["key"]["model"]: one["backends"]["tuned"]["below"] for one in regret["groups"]}
    assert below == {"x": 0, "y": 1}


def test_the_example_of_the_help_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    words = table.EXAMPLE.split("ridgeline table ")[1].split()
    result = run(*words)
    assert result.exit_code == 0
    assert "Autotune / the best of hipBLASLt, Triton in each row" in result.stdout
    assert "columns that are not compared: Autotune/GMM" in result.stderr


def test_the_guide_shows_what_its_commands_print(monkeypatch):
    """The published table and ours: every row of the guide's tables is one that its commands print."""
    monkeypatch.chdir(ROOT)
    lines = (ROOT / ".github" / "guides" / "tables.md").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("ridgeline table ") and "--format" in line]
    printed = [line for one in commands for line in run(*shlex.split(one)[2:]).stdout.splitlines()]
    shown = [line for line in lines if line.startswith("| ")]
    assert len(commands) == 2
    assert len(shown) > 15
    assert [line for line in shown if line not in printed] == []


def test_a_column_that_is_named_a_ratio_is_no_backend():
    printed = ["ratio", "1.2", "1.0", "1.35", "0.76"]
    text = "".join(f"{line},{cell}\n" for line, cell in zip(TEXT.splitlines(), printed, strict=True))
    assert set(answer("--baseline", "gmm", given=text)["backends"]) == {"triton", "tuned", "gmm"}
    assert "not compared: ratio" in run("-", "--baseline", "gmm", given=text).stderr


def test_on_a_terminal_each_average_has_its_name():
    result = run("-", "--baseline", "gmm", "--by", "op", given=TEXT)
    assert result.exit_code == 0
    first, header, triton, *_ = result.stdout.splitlines()
    assert first == "4 rows; ratio = value / gmm, higher is better"
    assert re.split(r" {1,}", header.strip())[:3] == ["backend", "rows", "ratio"]
    assert "ratio of means geometric mean mean of ratios wins ties losses" in header
    assert triton.split() == ["triton", "4", "1.125", "0.953", "1.006", "2", "0", "2", "0.625", "1.500", "2"]
    assert "by op" in result.stdout
    assert "worst rows" in result.stdout


def test_markdown_and_csv_are_tables_of_the_same_cells():
    asked = ["-", "--baseline", "gmm", "--by", "model", "--format"]
    cells = ["triton", "4", "1.125", "0.953", "1.006", "2", "0", "2", "0.625", "1.500", "2"]
    markdown = run(*asked, "markdown", given=TEXT).stdout
    assert f"| {' | '.join(cells)} |" in markdown
    rows = list(csv.DictReader(io.StringIO(run(*asked, "csv", given=TEXT).stdout)))
    assert [(row["model"], row["backend"]) for row in rows[:3]] == [("", "triton"), ("", "tuned"), ("x", "triton")]
    assert rows[0]["ratio of means"] == "1.125"


def test_what_is_left_out_is_said_beside_the_table_and_in_the_answer():
    text = TEXT + "y,odd,d,1,2,3\nz,even,f,OOM,5,5\n"
    result = run("-", "--baseline", "gmm", "--format", "markdown", given=text)
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
        (["--tie", "nan"], "nan"),
        (["--tie", "-1"], "range"),
        (["--score", "sideways"], "sideways"),
        (["--by", "speed"], "there is no column 'speed'"),
    ],
)
def test_a_wrong_question_leaves_with_3_and_says_what_is_allowed(args, sentence):
    result = run("-", *args, given=TEXT)
    assert result.exit_code == USAGE
    assert sentence in result.stderr
    assert "defect" not in result.stderr


def test_one_row_and_huge_numbers():
    found = answer(given="op,a,c\nf,1e149,1e-149\n")
    assert found["backends"]["c"]["mean"] == pytest.approx(1e-298)
    assert run("-", given="op,a,c\nf,1e151,1\n").exit_code == USAGE


def recorded(tmp_path, machine="h200x1-537ca5d2"):
    folder = tmp_path / "studies" / "moe" / machine
    folder.mkdir(parents=True)
    (folder / "table.csv").write_text("case,triton,gmm\na,12.0,10\nb,8.0,10\n")


def test_a_recorded_study_goes_through_the_maths(tmp_path):
    recorded(tmp_path)
    maths = json.loads(run("moe", "--results", tmp_path, "--baseline", "gmm", "--json").stdout)
    assert maths["backends"]["triton"]["mean"] == 1.0
    recorded(tmp_path, "h200x2-aabbbde0")
    assert "choose one with --machine" in run("moe", "--results", tmp_path, "--baseline", "gmm").stderr
    one = ["--machine", "h200x2-aabbbde0", "--baseline", "gmm"]
    assert run("moe", "--results", tmp_path, *one).exit_code == 0


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["mo"], "'mo' is no file and no recorded study; studies with a table are moe; did you mean 'moe'?"),
        (["moe", "--machine", "x"], "study moe has no table of machine 'x'; it has one of h200x1-537ca5d2"),
    ],
)
def test_a_study_that_is_not_there(tmp_path, args, sentence):
    recorded(tmp_path)
    result = run(*args, "--results", tmp_path)
    assert result.exit_code == USAGE
    assert sentence in result.stderr


def test_without_any_study_the_next_step_is_said(tmp_path):
    result = run("gone.csv", "--results", tmp_path)
    assert result.exit_code == USAGE
    assert "has no study with a table" in result.stderr
