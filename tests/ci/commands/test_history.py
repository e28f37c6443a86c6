"""`ridgeline bisect` as somebody runs it: on real commits on a CPU, over recorded trials, and with wrong words."""

from __future__ import annotations

import functools
import gzip
import json
import sys

import numpy as np
import pytest

from ci.commands.detect import read
from ci.options import NO_VERDICT, PASS, REGRESSION, USAGE
from ci.tables import TableError
from tests.ci.bisect import toys
from tests.kit import ridgeline

CASE = ("--case", "rows/r4")
FAST = ("--rounds", "11", "--smallest", "0.5")
"""Other work on the machine moves a trial by tens of percent; the planted step is a factor of eight, of a call that is
short and of one thread, so that most rounds are undisturbed."""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "repository"
    return folder, toys.made(folder)


@pytest.fixture
def inside(toy, monkeypatch):
    monkeypatch.chdir(toy[0])
    return toy


run = functools.partial(ridgeline, "bisect")


@pytest.mark.slow
def test_it_finds_the_commit_among_twenty_and_goes_on_where_it_was(inside, tmp_path):
    _, commits = inside
    out = tmp_path / "trials.jsonl"
    asked = ("v0", "v20", *CASE, *FAST, "--out", out, "--json")
    few = run(*asked, "--trials", "3")
    assert few.exit_code == NO_VERDICT, few.output
    stopped = json.loads(few.stdout)
    assert (stopped["verdict"], stopped["first_bad"], stopped["trials"]) == ("NOT DECIDED", None, 3)

    done = run(*asked)
    assert done.exit_code == PASS, done.output
    assert "going on with the 3 trials" in done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "FOUND"
    assert found["first_bad"] == commits[toys.SLOWER]
    assert found["probability"] >= 0.99
    assert found["ratio"] > 2
    assert found["trials"] == len(found["steps"]) <= 20
    assert found["steps"][:3] == stopped["steps"]
    assert {one["name"] for one in found["skipped"]} <= {commits[toys.BROKEN]}
    last = found["steps"][-1]
    assert (last["base"], last["head"]) == (commits[toys.SLOWER - 1], commits[toys.SLOWER])

    again = run("v0", "v20", *CASE, *FAST, "--out", out)
    assert again.exit_code == PASS, again.output
    assert len(out.read_text().splitlines()) == found["trials"], "what is decided is measured no further"
    assert f"first bad commit: {commits[toys.SLOWER][:8]} change {toys.SLOWER}: +" in again.stdout
    pair = " ".join(commits[place][:8] for place in (toys.SLOWER - 1, toys.SLOWER))
    assert f"`ridgeline ab {pair} {' '.join(CASE)}` says why" in again.stdout
    other = run("v0", "v3", *CASE, "--out", out)
    assert other.exit_code == USAGE
    assert "has trials of other commits than these 4; give another file with --out" in other.stderr


def test_which_environment_is_asked_of_pythons_in_their_order(inside, tmp_path):
    """The same Python twice under two names: no step."""
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    done = run("--axis", "env", sys.executable, link, *CASE, *FAST, "--dry-run")
    assert done.exit_code == PASS, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[:2]] == [sys.executable, str(link)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("v0", *CASE), "1 commits given; name two, the good one first"),
        (("v0", "v20"), "say what became slower: --case KERNEL/CASE"),
        (("v20", "v0", *CASE), "name the older commit first"),
        (("--axis", "knob", "num_warps=4", *CASE), "'num_warps=4': NAME=GOOD,BAD with two different values"),
        (("--axis", "triton", sys.executable, *CASE), "needs two Pythons or more"),
        (("--axis", "env", sys.executable, "/nowhere/python", *CASE), "'/nowhere/python' is no program"),
        (("v0", "v20", "--event", "3f2a"), "--event names the ends itself; leave out v0 v20"),
    ],
)
def test_wrong_words_are_refused_in_one_sentence(inside, words, said):
    done = run(*words)
    assert done.exit_code == USAGE, done.output
    assert said in " ".join(done.stderr.replace("│", " ").split())


# `ridgeline detect`: the shape of its answer, and files as they come.


def levels(*parts, seed=0):
    """(points, level) one after the other, with 1 % noise."""
    rng = np.random.default_rng(seed)
    return np.concatenate([level * np.exp(0.01 * rng.normal(size=points)) for points, level in parts])


def csv_file(path, values, name=None, first=0):
    columns = ["value", "commit", "time"] + (["series"] if name else [])
    rows = [
        [repr(float(value)), f"{i:040x}", str(1_700_000_000 + 86_400 * i)] + ([name] if name else [])
        for i, value in enumerate(values, first)
    ]
    path.write_text("\n".join(",".join(row) for row in [columns, *rows]) + "\n")
    return path


detected = functools.partial(ridgeline, "detect")


def answer(*args, given=None):
    result = detected(*args, "--json", given=given)
    return result.exit_code, json.loads(result.stdout)


def test_the_answer_has_the_fixed_shape(tmp_path):
    file = csv_file(tmp_path / "a.csv", levels((60, 1.0), (40, 1.1)))
    code, found = answer(file)
    assert code == REGRESSION
    (series,) = found["series"]
    (change,) = series["changes"]
    assert (series["name"], series["points"]) == ("a.csv", 100)
    assert (change["index"], change["commit"], change["direction"]) == (60, f"{60:040x}", "slower")
    assert change["ratio"] == pytest.approx(change["after"] / change["before"])
    assert change["ratio_low"] < 1.1 < change["ratio_high"]
    assert change["p_value"] < 1e-3


@pytest.mark.parametrize(
    ("parts", "lower", "higher"),
    [
        (((60, 1.0), (40, 1.1)), REGRESSION, PASS),
        (((60, 1.0), (40, 1.1), (40, 1.0)), PASS, REGRESSION),
        (((60, 1.0), (40, 0.8), (40, 0.9)), REGRESSION, PASS),
        (((60, 1.0), (40, 1.2), (40, 1.05)), PASS, REGRESSION),
        (((90, 1.0),), PASS, PASS),
    ],
)
def test_the_exit_code_is_of_what_stands_at_the_end(tmp_path, parts, lower, higher):
    file = csv_file(tmp_path / "a.csv", levels(*parts))
    assert detected(file).exit_code == lower
    assert detected(file, "--better", "higher").exit_code == higher


def test_a_change_below_the_smallest_is_listed_and_ends_no_series_slower(tmp_path):
    done = detected(csv_file(tmp_path / "a.csv", levels((60, 1.0), (40, 1.015))))
    assert (done.exit_code, "1 change; " in done.output) == (PASS, True)


def test_rows_in_any_order_are_put_in_order_of_time(tmp_path):
    file = csv_file(tmp_path / "a.csv", levels((60, 1.0), (40, 1.1)))
    header, *rows = file.read_text().splitlines()
    mixed = [rows[i] for i in np.random.default_rng(1).permutation(100)]
    code, found = answer("-", given="\n".join([header, *mixed]))
    assert found["series"][0]["changes"] == answer(file)[1]["series"][0]["changes"]
    dated = [row.replace(row.split(",")[2], str(np.datetime64(int(row.split(",")[2]), "s"))) for row in mixed]
    assert answer("-", given="\n".join([header, *dated]))[1]["series"][0]["changes"][0]["index"] == 60


def test_gaps_are_left_out_counted_and_keep_their_place():
    values = [repr(float(value)) for value in levels((60, 1.0), (40, 1.1))]
    for i, gap in ((5, ""), (6, "nan"), (80, "NaN")):
        values[i] = gap
    text = "commit,value\n" + "\n".join(f"c{i},{value}" for i, value in enumerate(values))
    code, found = answer("-", given=text)
    (series,) = found["series"]
    assert (code, series["points"]) == (REGRESSION, 97)
    assert (series["changes"][0]["index"], series["changes"][0]["commit"]) == (60, "c60")
    assert "left out: 3 rows without a value" in detected("-", given=text).output


def test_series_keep_their_order_and_names(tmp_path):
    names = ["b", "a\u202e<script>alert(1)</script>", "__proto__", "=cmd()", "\x1b[31mred", "x" * 600]
    rows = [f'"{name}",{value}' for value in levels((20, 1.0), (20, 1.5)) for name in names]
    text = "series,value\n" + "\n".join(rows)
    _, found = answer("-", given=text)
    assert [series["name"] for series in found["series"]] == names
    shown = detected("-", given=text).output
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value\n1\n-2\n", "row 2, column 'value': '-2' is no positive number"),
        ("value,time\n1,1\n2,soon\n", "row 2, column 'time': 'soon' is no time"),
        ("value,commit\n1,a\n2,b,more\n", "Expected 2 fields in line 3, saw 3"),
        ("1.0,a\n2.0,b\n", "no column `value`: its first line is '1.0,a'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text, said):
    result = detected("-", given=text)
    assert result.exit_code == USAGE
    assert said in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("points", [1, 5])
def test_too_few_points_are_no_verdict(points):
    code, found = answer("-", given="value\n" + "1.0\n" * points)
    assert (code, found["series"][0]["changes"]) == (NO_VERDICT, [])
    assert "the fewest that can show a step" in detected("-", given="value\n" + "1.0\n" * points).output


def test_packed_files_other_separators_and_foreign_bytes(tmp_path):
    plain = csv_file(tmp_path / "a.csv", levels((60, 1.0), (40, 1.1)))
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    changes = answer(plain)[1]["series"][0]["changes"]
    assert answer(packed)[1]["series"][0]["changes"] == changes
    odd = tmp_path / "b.csv"
    odd.write_bytes(
        b"\xef\xbb\xbf Value ;Commit;time;x\r\n" + plain.read_bytes().split(b"\n", 1)[1].replace(b",", b";")
    )
    assert answer(odd)[1]["series"][0]["changes"] == changes
    foreign = tmp_path / "c.csv"
    foreign.write_bytes(b"series,value\n\xff\xfe,1\n")
    with pytest.raises(TableError, match=r"cannot be read .* CSV in UTF-8"):
        read(str(foreign))
    torn = tmp_path / "d.csv.gz"
    torn.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(TableError, match="cannot be read"):
        read(str(torn))
