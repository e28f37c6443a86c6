"""Files as they come: what cannot be used is named, the rest is read."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.tables import TableError, compare, read_table


def file(tmp_path, text, name="t.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return str(path)


def table(tmp_path, text, **named):
    return read_table(file(tmp_path, text), **named)


def test_keys_are_text_and_backends_are_numbers(tmp_path):
    found = table(tmp_path, "model,M,op,triton,gmm\nx,064,f,1.5,2\ny,128,d, 3 ,4e0\n")
    assert (found.keys, found.backends) == (["model", "M", "op"], ["triton", "gmm"])
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
        '"op;x",a,b\nf,1,2\n',
    ],
)
def test_one_table_however_it_is_written(tmp_path, text):
    found = table(tmp_path, text)
    assert found.frame[["a", "b"]].to_numpy().tolist() == [[1.0, 2.0]]
    assert found.frame[found.keys[0]].tolist() == ["f"]
    assert list(found.remarks) == []


def test_every_bad_cell_is_named_with_its_row_key_and_column_and_the_rest_is_read(tmp_path):
    bad = ["", "n/a", "0", "-3", "OOM", "nan", "inf", "1e300", "1,5", "1.5"]
    found = table(tmp_path, "op,a,b\n" + "".join(f'o{i},"{cell}",2\n' for i, cell in enumerate(bad)))
    assert found.frame["a"].notna().tolist() == [False] * 9 + [True]
    assert found.left_out == {"missing cells": 3, "numbers out of range": 4, "cells of text": 2}
    lines = list(found.remarks)
    assert lines[0] == "row 1 (op=o0), column 'a': there is no number; the cell is left out"
    assert lines[4] == "row 5 (op=o4), column 'a': 'OOM' is not a number; write 1234.5; the cell is left out"
    assert "'-3' is outside 1e-150 to 1e+150" in lines[3]


def test_of_rows_with_the_same_key_the_first_counts(tmp_path):
    found = table(tmp_path, "op,M,a,b\nf,1,1,2\nf,2,3,4\nf,1,5,6\n")
    assert found.frame["a"].tolist() == [1.0, 3.0]
    assert list(found.remarks) == ["row 3 (op=f, M=1) repeats the key of a row before; left out"]


@pytest.mark.parametrize(
    ("header", "row", "keys", "backends"),
    [
        ("M,op,a,b", "1,f,2,3", ("M", "op"), ("a", "b")),
        ("op,a,b,note", "f,1,2,slow", ("op", "note"), ("a", "b")),
        ("op,a,b,a/b", "f,1,2,0.500x", ("op",), ("a", "b")),
        ("op,a,b,Speed-up (b),c", "f,1,2,2.0x,3", ("op",), ("a", "b", "c")),
        ("capacity_ratio,op,a,b", "0.5,f,1,2", ("capacity_ratio", "op"), ("a", "b")),
        ("year,op,a,b", "2026,f,2,3", ("year", "op"), ("a", "b")),
    ],
)
def test_which_columns_are_backends(tmp_path, header, row, keys, backends):
    found = table(tmp_path, f"{header}\n{row}\n")
    assert (tuple(found.keys), tuple(found.backends)) == (keys, backends)


def test_backends_by_name(tmp_path):
    text = "op,a,b,c,d\nf,1,2,3,4\n"
    found = table(tmp_path, text, columns=("c",), others=("b",))
    assert (found.backends, found.unused, found.keys) == (["b", "c"], ["a", "d"], ["op"])
    assert table(tmp_path, "op,a,b,ratio\nf,1,2,3\n", columns=("ratio", "a")).backends == ["a", "ratio"]
    assert table(tmp_path, text, by=("a",)).keys == ["op", "a"]


@pytest.mark.parametrize(
    ("text", "named", "sentence"),
    [
        ("op,a,a\nf,1,2\n", {}, "two columns 'a'"),
        ("op;a;b\nf;1,5;2,5\n", {}, "of op, a, b there is none. .* Numbers are written 1234.5"),
        ("op,a,b\nf,1,2\n", {"columns": ("a",), "others": ("a",)}, "there is 'a'"),
        (
            "op,gmm,b\nf,1,2\n",
            {"others": ("gmmm",)},
            "no column 'gmmm'; the columns are op, gmm, b; did you mean 'gmm'?",
        ),
        ("op,a,b\nf,1,\ng,,2\n", {}, "two numbers above 0 to compare: row 1 .op=f., column 'b'"),
        ("op,a,b\nf,1,2\ng,1,2,3\n", {}, "quotes around a cell with a comma"),
    ],
)
def test_a_file_of_which_nothing_is_left_says_why(tmp_path, text, named, sentence):
    with pytest.raises(TableError, match=sentence):
        table(tmp_path, text, **named)


# The maths of a table against slow loops.


def slow(values, base, score):
    """What `compare` says of one column, row by row."""
    pairs = [(v, b) for v, b in zip(values, base, strict=True) if v > 0 and b > 0 and math.isfinite(v * b)]
    if not pairs:
        return None
    ratios = [v / b if score == "higher" else b / v for v, b in pairs]
    own, other = statistics.fmean(v for v, _ in pairs), statistics.fmean(b for _, b in pairs)
    return {
        "rows": len(pairs),
        "ratio_of_means": own / other if score == "higher" else other / own,
        "mean_of_ratios": statistics.fmean(ratios),
        "geometric_mean": math.exp(statistics.fmean(map(math.log, ratios))),
        "wins": sum(r > 1 + 1e-11 for r in ratios),
        "ties": sum(abs(r - 1) <= 1e-11 for r in ratios),
        "losses": sum(r < 1 - 1e-11 for r in ratios),
        "below": sum(r < 0.95 for r in ratios),
        "worst": min(ratios),
        "best": max(ratios),
    }


def of(table, backend):
    """The numbers of one backend in a table of statistics that has it once."""
    [row] = table[table["backend"] == backend].to_dict("records")
    return row


def equal(row, expected):
    """Whether a row of statistics is what the loop says."""
    if expected is None:
        return row["rows"] == 0 and math.isnan(row["ratio_of_means"]) and math.isnan(row["worst"])
    return {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-9)


cells = st.one_of(
    st.sampled_from([float("nan"), 0.0, -1.0, float("inf"), 100.0, 101.0]), st.floats(1e-6, 1e6, allow_nan=False)
)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from("xy"), cells, cells, cells), min_size=1, max_size=12),
    score=st.sampled_from(["higher", "lower"]),
)
def test_every_number_is_that_of_a_loop(rows, score):
    frame = pd.DataFrame(rows, columns=["g", "a", "b", "base"])
    found = compare(frame, ["a", "b"], "base", score=score, by=[["g"]], regret={"a": ["b", "base"]})
    whole, groups = found.against.groups
    parts = [(whole, frame), *((groups[groups["g"] == name], frame[frame["g"] == name]) for name in set(frame["g"]))]
    for table, part in parts:
        for name in ("a", "b", "base"):
            row = of(table, name)
            assert equal(row, slow(part[name], part["base"], score))
            assert row["size"] == len(part)
    assert list(dict.fromkeys(groups["g"])) == list(dict.fromkeys(frame["g"]))
    [regret] = found.regrets
    pick = max if score == "higher" else min
    offered = [[c for c in (b, base) if c > 0 and math.isfinite(c)] for _, _, b, base in rows]
    best = [pick(some) if some else float("nan") for some in offered]
    assert equal(of(regret.against.groups[0], "a"), slow(frame["a"], best, score))
    assert sum(regret.picks.values()) == sum(map(bool, offered))


def test_the_worst_rows_are_the_smallest_ratios_over_all_columns():
    frame = pd.DataFrame({"k": list("pqrs"), "a": [9.0, 5, 10, 8], "b": [10.0, 7, np.nan, 9], "base": [10.0] * 4})
    worst = compare(frame, ["a", "b"], "base").against.worst
    assert worst[["row", "backend", "ratio"]].values.tolist()[:3] == [[1, "a", 0.5], [1, "b", 0.7], [3, "a", 0.8]]
