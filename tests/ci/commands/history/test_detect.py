"""`ridgeline detect`: the shape of its answer, and files as they come."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from click.testing import CliRunner

from ci.__main__ import USAGE, main
from ci.commands import detect
from ci.commands.detect import read
from ci.options import NO_VERDICT, PASS, REGRESSION
from ci.stats.types import Step
from ci.tables.read import TableFileError


def levels(*parts, seed=0):
    """(points, level) one after the other, with 1 % noise."""
    rng = np.random.default_rng(seed)
    return np.concatenate([level * np.exp(0.01 * rng.normal(size=points)) for points, level in parts])


def written(path, values, name=None, first=0):
    columns = ["value", "commit", "time"] + (["series"] if name else [])
    rows = [
        [repr(float(value)), f"{i:040x}", str(1_700_000_000 + 86_400 * i)] + ([name] if name else [])
        for i, value in enumerate(values, first)
    ]
    path.write_text("\n".join(",".join(row) for row in [columns, *rows]) + "\n")
    return path


def run(*args, given=None):
    return CliRunner().invoke(main, ["detect", *map(str, args)], input=given)


def answer(*args, given=None):
    result = run(*args, "--json", given=given)
    return result.exit_code, json.loads(result.stdout)


def test_the_answer_has_the_fixed_shape(tmp_path):
    file = written(tmp_path / "a.csv", levels((60, 1.0), (40, 1.1)))
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
        (((60, 1.0), (40, 0.9)), PASS, REGRESSION),
        (((60, 1.0), (40, 1.1), (40, 1.0)), PASS, REGRESSION),
        (((60, 1.0), (40, 0.8), (40, 0.9)), REGRESSION, PASS),
        (((90, 1.0),), PASS, PASS),
    ],
)
def test_the_exit_code_is_of_what_stands_at_the_end(tmp_path, parts, lower, higher):
    file = written(tmp_path / "a.csv", levels(*parts))
    assert run(file).exit_code == lower
    assert run(file, "--better", "higher").exit_code == higher


def test_a_series_that_comes_back_half_way_still_stands_slower():
    def step(before, after):
        return Step(1, before, after, after / before, 0.0, 0.0, 0.0)

    assert detect.regressed([step(1.0, 1.2), step(1.2, 1.15)], "lower")
    assert not detect.regressed([step(1.0, 1.2), step(1.2, 1.05)], "lower")
    assert not detect.regressed([step(1.0, 1.2), step(1.2, 0.7)], "lower")
    assert not detect.regressed([], "lower")


def test_rows_in_any_order_are_put_in_order_of_time(tmp_path):
    file = written(tmp_path / "a.csv", levels((60, 1.0), (40, 1.1)))
    header, *rows = file.read_text().splitlines()
    mixed = [rows[i] for i in np.random.default_rng(1).permutation(100)]
    code, found = answer("-", given="\n".join([header, *mixed]))
    assert found["series"][0]["changes"] == answer(file)[1]["series"][0]["changes"]
    assert "order of time" in found["notes"][0]
    dated = [row.replace(row.split(",")[2], str(np.datetime64(int(row.split(",")[2]), "s"))) for row in mixed]
    assert answer("-", given="\n".join([header, *dated]))[1]["series"][0]["changes"][0]["index"] == 60


def test_gaps_are_left_out_counted_and_keep_their_place(tmp_path):
    values = [repr(float(value)) for value in levels((60, 1.0), (40, 1.1))]
    for i, gap in ((5, ""), (6, "nan"), (7, "inf"), (8, "-inf"), (9, "fast"), (80, "NaN")):
        values[i] = gap
    code, found = answer("-", given="commit,value\n" + "\n".join(f"c{i},{value}" for i, value in enumerate(values)))
    (series,) = found["series"]
    assert (code, series["points"]) == (REGRESSION, 94)
    assert (series["changes"][0]["index"], series["changes"][0]["commit"]) == (60, "c60")
    notes = "\n".join(found["notes"])
    assert "without a value: 1 (first: line 7" in notes
    assert "infinite value: 2 (first: line 9, 'inf')" in notes
    assert "not a number: 1 (first: line 11, 'fast')" in notes


def test_repeated_commits_are_points_and_said():
    values = levels((60, 1.0), (40, 1.1))
    text = "value,commit\n" + "\n".join(f"{float(value)},c{i // 2}" for i, value in enumerate(values))
    _, found = answer("-", given=text)
    assert found["series"][0]["points"] == 100
    assert "commit that their series has before; each is a point: 50" in found["notes"][0]


def test_series_keep_their_order_and_names(tmp_path):
    names = ["b", "a\u202e<script>alert(1)</script>", "__proto__", "=cmd()", "\x1b[31mred", "x" * 600]
    rows = [f'"{name}",{value}' for value in levels((20, 1.0), (20, 1.5)) for name in names]
    text = "series,value\n" + "\n".join(rows)
    _, found = answer("-", given=text)
    assert [series["name"] for series in found["series"]] == names
    shown = run("-", given=text).output
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown


def test_zeros_and_negatives_are_steps_of_a_difference():
    values = levels((60, 1.0), (40, 1.1)) - 1.05
    code, found = answer("-", given="value\n" + "\n".join(map(str, values)))
    (series,) = found["series"]
    assert code == REGRESSION
    assert [(change["index"], change["ratio"], change["direction"]) for change in series["changes"]] == [
        (60, None, "slower")
    ]
    assert "not positive" in series["notes"][0]
    assert "slower" in run("-", given="value\n" + "\n".join(map(str, values))).output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column `value`"),
        ("1.0,a\n2.0,b\n", "no column `value`: its first line is '1.0,a'"),
        ("value\n", "no rows"),
        ("value,unit\n1,ms\n2,us\n", "mixes units: ms (1), us (1)"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text, said):
    result = run("-", given=text)
    assert result.exit_code == USAGE
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    for path in (tmp_path / "no.csv", tmp_path):
        result = run(path)
        assert result.exit_code == USAGE
        assert "Traceback" not in result.output


def test_units_that_agree_and_units_that_seem_mixed():
    one = "value,unit\n" + "\n".join(f"{value},us" for value in levels((20, 1.0)))
    assert answer("-", given=one)[1]["series"][0]["notes"] == []
    two = "value\n" + "\n".join(map(str, levels((20, 1.0), (20, 1e6))))
    assert "are units mixed" in answer("-", given=two)[1]["series"][0]["notes"][0]


@pytest.mark.parametrize("points", [1, 5])
def test_too_few_points_are_no_verdict(points):
    code, found = answer("-", given="value\n" + "1.0\n" * points)
    assert (code, found["series"][0]["changes"]) == (NO_VERDICT, [])
    assert "fewest" in found["series"][0]["notes"][0]


def test_a_constant_series_passes():
    assert answer("-", given="value\n" + "1.0\n" * 50) == (
        PASS,
        {"series": [{"name": "stdin", "points": 50, "changes": [], "regressed": False, "notes": []}], "notes": []},
    )


def test_packed_files_other_separators_and_foreign_bytes(tmp_path):
    plain = written(tmp_path / "a.csv", levels((60, 1.0), (40, 1.1)))
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
    foreign.write_bytes(b"series,value\n" + b"\n".join(b"\xff\xfe\x00,%d" % (i % 2 + 1) for i in range(20)))
    assert answer(foreign)[0] == PASS
    torn = tmp_path / "d.csv.gz"
    torn.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(TableFileError, match="damaged"):
        read(str(torn))


def test_ragged_rows_lack_what_they_lack():
    text = "value,commit\n" + "\n".join(["1.0,a", "1.0", "1.0,b,more", "", "1.0,c"] * 3)
    _, found = answer("-", given=text)
    assert found["series"][0]["points"] == 12


def test_many_rows_are_read_in_chunks(monkeypatch, tmp_path):
    file = written(tmp_path / "a.csv", levels((60, 1.0), (40, 1.1)))
    whole = answer(file)
    monkeypatch.setattr("ci.commands.detect.CHUNK", 7)
    monkeypatch.setattr(detect, "PART", 30)
    monkeypatch.setattr(detect, "TOGETHER", 1)
    assert answer(file) == whole
    seen: list[int] = []
    read(str(file), seen.append)
    assert seen == sorted(seen)
    assert len(seen) == 15
    assert seen[-1] == file.stat().st_size


def test_a_table_longer_than_a_screen_is_cut_and_says_so(monkeypatch):
    rows = [f"s{name},{value}" for name in range(5) for value in levels((20, 1.0), (20, 1.5))]
    monkeypatch.setattr(detect, "ROWS", 2)
    shown = run("-", given="series,value\n" + "\n".join(rows)).output
    assert "5 series, 5 changes; 5 end slower" in shown
    assert "and 3 more changes" in shown
