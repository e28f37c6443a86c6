"""Files as they come: what cannot be used is named, the rest is read."""

from __future__ import annotations

import gzip
import math
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.tables import MAX_NAMED, ColumnChoice, TableError, compare, read_table


def file(tmp_path, text, name="t.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return str(path)


def table(tmp_path, text, asked=None, **options):
    return read_table(file(tmp_path, text, **options), asked or ColumnChoice())


def test_keys_are_text_and_backends_are_numbers(tmp_path):
    found = table(tmp_path, "model,M,op,triton,gmm\nx,064,f,1.5,2\ny,128,d, 3 ,4e0\n")
    assert found.keys == ["model", "M", "op"]
    assert found.compared == ["triton", "gmm"]
    assert found.baseline == "triton"
    assert found.frame["M"].tolist() == ["064", "128"]
    assert found.frame["triton"].tolist() == [1.5, 3.0]
    assert found.frame.index.tolist() == [1, 2]
    assert list(found.remarks) == []


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffop,a,b\nf,1,2\n",
        "op;a;b\r\nf;1;2\r\n",
        "op\ta\tb\nf\t1\t2\n",
        '"op","a","b"\n"f","1","2"\n',
        "\n\nop,a,b\n\nf,1,2\n\n",
        " op , a , b \n f , 1 , 2 \n",
        '"op;x",a,b\nf,1,2\n',
    ],
)
def test_one_table_however_it_is_written(tmp_path, text):
    found = table(tmp_path, text)
    assert found.frame[["a", "b"]].to_numpy().tolist() == [[1.0, 2.0]]
    assert found.frame[found.keys[0]].tolist() == ["f"]
    assert list(found.remarks) == []


def test_gz_is_read(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"op,a,b\nf,1,2\n"))
    assert read_table(str(path), ColumnChoice()).frame["b"].tolist() == [2.0]


def test_every_bad_cell_is_named_with_its_row_key_and_column_and_the_rest_is_read(tmp_path):
    bad = ["", "n/a", "0", "-3", "OOM", "nan", "inf", "1e300", "1,5", "1.5"]
    found = table(tmp_path, "op,a,b\n" + "".join(f'o{i},"{cell}",2\n' for i, cell in enumerate(bad)))
    assert found.frame["a"].notna().tolist() == [False] * 9 + [True]
    assert found.left_out == {
        "missing cells": 3,
        "zeros": 1,
        "negative cells": 1,
        "cells of text": 2,
        "cells out of range": 2,
    }
    lines = list(found.remarks)
    assert lines[0] == "row 1 (op=o0), column 'a': there is no number; the cell is left out"
    assert lines[2] == "row 3 (op=o2), column 'a': 0 is no time and no rate, and has no ratio; the cell is left out"
    assert lines[3] == "row 4 (op=o3), column 'a': '-3' is negative, which no time and no rate is; the cell is left out"
    assert lines[4] == "row 5 (op=o4), column 'a': 'OOM' is not a number; the cell is left out"
    assert "'inf' is outside 1e-150 to 1e+150" in lines[6]
    assert "'1e300' is outside 1e-150 to 1e+150" in lines[7]
    assert "'1,5' is not a number, as points and separators differ by country; write 1234.5" in lines[8]


def test_of_rows_with_the_same_key_the_first_counts(tmp_path):
    found = table(tmp_path, "op,M,a,b\nf,1,1,2\nf,2,3,4\nf,1,5,6\n")
    assert found.frame["a"].tolist() == [1.0, 3.0]
    assert list(found.remarks) == ["row 3 (op=f, M=1) repeats the key of a row before; left out"]


def test_rows_without_a_key_are_all_counted(tmp_path):
    found = table(tmp_path, "a,b\n1,2\n1,2\n")
    assert len(found.frame) == 2
    assert list(found.remarks) == []


def test_a_column_that_is_not_compared_still_tells_rows_apart(tmp_path):
    text = "op,chunk,a,b\nf,1,1,2\nf,2,3,4\n"
    found = table(tmp_path, text, ColumnChoice(columns=("a", "b")))
    assert len(found.frame) == 2
    assert found.unused == ["chunk"]


def test_a_short_row_has_empty_cells(tmp_path):
    found = table(tmp_path, "op,a,b\nf,1,2\ng,3\n")
    assert found.frame["a"].tolist() == [1.0, 3.0]
    assert list(found.remarks) == ["row 2 (op=g), column 'b': there is no number; the cell is left out"]


@pytest.mark.parametrize(
    ("header", "row", "keys", "compared"),
    [
        ("M,op,a,b", "1,f,2,3", ("M", "op"), ("a", "b")),
        ("op,M,N,a,b", "f,1,2,3,4", ("op", "M", "N"), ("a", "b")),
        ("a,b", "1,2", (), ("a", "b")),
        ("op,a,b,note", "f,1,2,slow", ("op", "note"), ("a", "b")),
        ("op,a,b,a/b", "f,1,2,0.500x", ("op",), ("a", "b")),
        ("op,a,b,ratio", "f,1,2,0.5", ("op",), ("a", "b")),
        ("op,a,b,Speed-up (b),c", "f,1,2,2.0x,3", ("op",), ("a", "b", "c")),
        ("capacity_ratio,op,a,b", "0.5,f,1,2", ("capacity_ratio", "op"), ("a", "b")),
        ("year,op,a,b", "2026,f,2,3", ("year", "op"), ("a", "b")),
    ],
)
def test_which_columns_are_backends(tmp_path, header, row, keys, compared):
    found = table(tmp_path, f"{header}\n{row}\n")
    assert (tuple(found.keys), tuple(found.compared)) == (keys, compared)


def test_backends_by_name(tmp_path):
    text = "op,a,b,c,d\nf,1,2,3,4\n"
    found = table(tmp_path, text, ColumnChoice(columns=("c",), baseline="b", regret=(("d", ("a", "c")),)))
    assert found.compared == ["c", "b"]
    assert found.backends == ["a", "b", "c", "d"]
    assert found.keys == ["op"]
    asked = ColumnChoice(columns=("ratio", "a"))
    assert table(tmp_path, "op,a,b,ratio\nf,1,2,3\n", asked).compared == ["ratio", "a"]
    grouped = table(tmp_path, text, ColumnChoice(by=(("a",),)))
    assert grouped.keys == ["op", "a"]


def test_a_backend_stands_for_its_only_quantity(tmp_path):
    text = "op,a: tflops,b: tflops,b: us\nf,1,2,3\n"
    choice = ColumnChoice(("a",), "b: us", (("op",),), (("a", ("b: us",)),))
    found = table(tmp_path, text, choice).choice
    assert found == ColumnChoice(("a: tflops",), "b: us", (("op",),), (("a: tflops", ("b: us",)),))
    with pytest.raises(TableError, match="there is no column 'b'; the columns are op, a: tflops, b: tflops, b: us"):
        table(tmp_path, text, ColumnChoice(baseline="b"))


@pytest.mark.parametrize(
    ("text", "asked", "sentence"),
    [
        ("", ColumnChoice(), "is empty; a table has a header and one row for each case"),
        ("\ufeff\n \n", ColumnChoice(), "is empty"),
        ("op,a,b\n", ColumnChoice(), "has a header and no rows"),
        ("op,model\nf,x\n", ColumnChoice(), "no column of numbers was found among op, model; a comparison needs two"),
        ("op,a\nf,1\n", ColumnChoice(), "only 'a' is a column of numbers among op, a"),
        (
            "op;a;b\nf;1,5;2,5\n",
            ColumnChoice(),
            "no column of numbers was found among op, a, b; .* Numbers are written 1234.5",
        ),
        ("op,a,b\nf,1,2\n", ColumnChoice(("a",), "a"), "--columns and --baseline name 'a' only"),
        ("op,a,b\nf,1,2\n", ColumnChoice(baseline="gm"), "there is no column 'gm'; the columns are op, a, b"),
        ("op,gmm,b\nf,1,2\n", ColumnChoice(baseline="gmmm"), "did you mean 'gmm'?"),
        ("op,a,b\nf,1,2\n", ColumnChoice(columns=("a", "x")), "there is no column 'x'"),
        ("op,a,b\nf,1,2\n", ColumnChoice(by=(("oops",),)), "there is no column 'oops'"),
        (
            "op,a,b\nf,x,0\n",
            ColumnChoice(baseline="a", columns=("b",)),
            "no row of .* has a number above 0 both in 'a'",
        ),
        ("op,a,b\nf,1,\ng,,2\n", ColumnChoice(), "both in 'a' and in another column: row 1 .op=f., column 'b'"),
        ('op,a,b\n"f,1,2\n', ColumnChoice(), "is a comma within a cell, or a quote left open"),
        ("op,a,b\nf,1,2\ng,1,2,3\n", ColumnChoice(), "is a comma within a cell"),
        ("op,a,b\nf,\0,2\n", ColumnChoice(), "is not a text file"),
    ],
)
def test_a_file_of_which_nothing_is_left_says_why(tmp_path, text, asked, sentence):
    with pytest.raises(TableError, match=sentence):
        table(tmp_path, text, asked)


def test_a_torn_gz_is_said(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"op,a,b\nf,1,2\n" * 100)[:40])
    with pytest.raises(TableError, match="damaged .gz"):
        read_table(str(path), ColumnChoice())


def test_many_bad_cells_are_counted_and_some_are_named(tmp_path):
    rows = 40_000
    found = table(tmp_path, "op,a,b\n" + "".join(f"{i}x,{i + 1},{'OOM' if i % 2 else 5}\n" for i in range(rows)))
    bad = int((np.arange(rows) % 2 != 0).sum())
    assert found.left_out == {"cells of text": bad}
    lines = list(found.remarks)
    assert len(lines) == MAX_NAMED + 1
    assert lines[-1] == f"and {bad - MAX_NAMED:,} more; in all {bad:,} cells of text"


# The maths of a table against slow loops, and against a published table.


PUBLISHED = Path(__file__).parent / "tables" / "data" / "primus_turbo_pr284.csv"
"""The 96 rows of the description of AMD-AGI/Primus-Turbo pull request 284 (2026-04-14; BF16, MI355X, TFLOPS)."""


def slow(values, base, score, tie, bound):
    """What `compare` says of one column, row by row."""
    pairs = [(v, b) for v, b in zip(values, base, strict=True) if v > 0 and b > 0 and math.isfinite(v * b)]
    if not pairs:
        return None
    ratios = [v / b if score == "higher" else b / v for v, b in pairs]
    own, other = statistics.fmean(v for v, _ in pairs), statistics.fmean(b for _, b in pairs)
    tied = [max(r, 1 / r) <= (1 + tie / 100) * (1 + 1e-11) for r in ratios]
    return {
        "rows": len(pairs),
        "ratio_of_means": own / other if score == "higher" else other / own,
        "mean_of_ratios": statistics.fmean(ratios),
        "geometric_mean": math.exp(statistics.fmean(map(math.log, ratios))),
        "wins": sum(r > 1 and not t for r, t in zip(ratios, tied, strict=True)),
        "ties": sum(tied),
        "losses": sum(r < 1 and not t for r, t in zip(ratios, tied, strict=True)),
        "below": sum(r < bound for r in ratios),
        "worst": min(ratios),
        "best": max(ratios),
    }


def numbers(found):
    return {name: found[name] for name in slow([1], [1], "higher", 0, 0.5)}


cells = st.one_of(
    st.sampled_from([float("nan"), 0.0, -1.0, float("inf"), 100.0, 101.0]), st.floats(1e-6, 1e6, allow_nan=False)
)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from("xy"), cells, cells, cells), min_size=1, max_size=12),
    score=st.sampled_from(["higher", "lower"]),
    tie=st.sampled_from([0.0, 1.0, 5.0]),
)
def test_every_number_is_that_of_a_loop(rows, score, tie):
    frame = pd.DataFrame(rows, columns=["g", "a", "b", "base"])
    found = compare(frame, ["g"], ["a", "b"], "base", score=score, by=[["g"]], tie_percent=tie)
    whole, *groups = found.against.groups
    parts = [(whole.columns, frame)]
    parts += [(group.columns, frame[frame["g"] == group.key["g"]]) for group in groups]
    for columns, part in parts:
        for name in ("a", "b", "base"):
            expected = slow(part[name], part["base"], score, tie, 0.95)
            if expected is None:
                assert columns[name]["rows"] == 0
                assert math.isnan(columns[name]["ratio_of_means"])
                assert math.isnan(columns[name]["worst"])
            else:
                assert numbers(columns[name]) == pytest.approx(expected, rel=1e-9)
    assert [group.key["g"] for group in groups] == list(dict.fromkeys(frame["g"]))
    assert sum(group.rows for group in groups) == whole.rows == len(found.against.ratios) == len(rows)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=10), score=st.sampled_from(["higher", "lower"])
)
def test_regret_is_the_choice_against_the_best_that_it_could_have_made(rows, score):
    frame = pd.DataFrame(rows, columns=["auto", "a", "b"])
    (found,) = compare(frame, [], ["auto"], "a", score=score, regret={"auto": ["a", "b"]}).regrets
    pick = max if score == "higher" else min
    offered = [[c for c in (a, b) if c > 0 and math.isfinite(c)] for _, a, b in rows]
    best = [pick(some) if some else float("nan") for some in offered]
    expected = slow([row[0] for row in rows], best, score, 0, 0.95)
    (column,) = found.against.columns.values()
    assert (numbers(column) if expected else column["rows"]) == (pytest.approx(expected, rel=1e-9) if expected else 0)
    assert sum(found.picks.values()) == sum(map(bool, offered))


def test_the_worst_rows_are_the_smallest_ratios_over_all_columns():
    frame = pd.DataFrame({"k": list("pqrs"), "a": [9.0, 5, 10, 8], "b": [10.0, 7, np.nan, 9], "base": [10.0] * 4})
    found = compare(frame, ["k"], ["a", "b"], "base", worst=3).against.worst
    assert [(one.row, one.backend, one.ratio) for one in found] == [(1, "a", 0.5), (1, "b", 0.7), (3, "a", 0.8)]
    assert [one.ratio for one in compare(frame, ["k"], ["a"], "base", score="lower", worst=1).against.worst] == [1.0]
    assert compare(frame, ["k"], ["a"], "base", worst=0).against.worst == []


def test_several_groupings_stand_one_after_the_other():
    frame = pd.DataFrame({"m": ["x", "x", "y"], "op": ["f", "d", "f"], "a": [1.0, 2, 3], "b": [1.0, 1, 1]})
    groups = compare(frame, ["m", "op"], ["a"], "b", by=[["m", "op"], ["op"]]).against.groups[1:]
    assert [group.key for group in groups] == [
        {"m": "x", "op": "f"},
        {"m": "x", "op": "d"},
        {"m": "y", "op": "f"},
        {"op": "f"},
        {"op": "d"},
    ]
    assert groups[3].columns["a"]["ratio_of_means"] == 2


def test_a_column_that_is_not_there_is_named_with_those_that_are():
    frame = pd.DataFrame({"m": ["x"], "a": [1.0]})
    with pytest.raises(TableError, match=r"no column 'gmm'; the columns are m, a"):
        compare(frame, ["m"], ["a"], "gmm")


def test_a_key_that_is_different_in_every_row_is_no_group():
    frame = pd.DataFrame({"m": range(10_001), "a": 1.0, "b": 2.0})
    with pytest.raises(TableError, match="m would make 10,001 groups of 10,001 rows; at most 10,000"):
        compare(frame, ["m"], ["a"], "b", by=[["m"]])
    assert len(compare(frame[1:], ["m"], ["a"], "b", by=[["m"]]).against.groups) == 1 + 10_000


def published(**others):
    frame = pd.read_csv(PUBLISHED)
    return frame, compare(frame, list(frame)[:8], ["Triton", "Autotune"], "GMM", **others)


def test_the_published_table_is_whole_and_its_printed_ratios_are_those_of_its_numbers():
    frame, found = published()
    assert len(frame) == len(found.against.ratios) == 96
    assert not frame.duplicated(list(frame)[:8]).any()
    counts = frame.groupby(["model", "routing", "layer", "B", "M", "op"]).size()
    assert len(counts) == 2 * 2 * 2 * 2 * 2 * 3, "each shape in both routings and all three products"
    printed = frame["Autotune/GMM"].str.removesuffix("x").astype(float)
    assert (found.against.ratios["Autotune"] - printed).abs().max() <= 0.0005


def test_the_published_totals_groups_and_regret():
    frame, found = published(
        by=[["model"], ["model", "routing"]], regret={"Autotune": ["hipBLASLt", "Triton"]}, tie_percent=0.0
    )
    for name in ("Triton", "Autotune"):
        assert numbers(found.against.columns[name]) == pytest.approx(slow(frame[name], frame["GMM"], "higher", 0, 0.95))
    autotune = found.against.columns["Autotune"]
    assert tuple(autotune[name] for name in ("wins", "ties", "losses", "below")) == (68, 1, 27, 0)
    assert (round(autotune["ratio_of_means"], 3), round(autotune["geometric_mean"], 3)) == (1.055, 1.064)
    groups = {tuple(group.key.values()): group.columns["Autotune"] for group in found.against.groups}
    assert round(groups["DeepSeek-V3", "balanced"]["ratio_of_means"], 3) == 1.010, "as the document prints it"
    assert {key: round(one["geometric_mean"], 3) for key, one in groups.items() if len(key) == 1} == {
        ("DeepSeek-V3",): 1.014,
        ("gpt_oss_20B",): 1.116,
    }
    (regret,) = found.regrets
    assert regret.picks == {"hipBLASLt": 52, "Triton": 44}
    assert round(regret.against.columns["Autotune"]["geometric_mean"], 3) == 0.975
    assert (round(regret.against.worst[0].ratio, 3), regret.against.columns["Autotune"]["losses"]) == (0.846, 82)


def test_the_published_table_with_a_plain_ratio_is_the_same_comparison(tmp_path):
    text = PUBLISHED.read_text(encoding="utf-8").replace("Autotune/GMM", "ratio").replace("x\n", "\n")
    found = table(tmp_path, text, ColumnChoice(baseline="GMM"))
    assert found.compared == ["hipBLASLt", "Triton", "GMM", "Autotune"]
    assert found.unused == ["ratio"]
