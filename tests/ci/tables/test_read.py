"""Files as they come: what cannot be used is named, the rest is read."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from ci.tables.read import LISTED, AskedColumns, TableFileError, read


def file(tmp_path, text, name="t.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return str(path)


def table(tmp_path, text, asked=None, **options):
    return read(file(tmp_path, text, **options), asked or AskedColumns())


def said(found):
    return "\n".join(found.left_out.all())


def test_keys_are_text_and_backends_are_numbers(tmp_path):
    found = table(tmp_path, "model,M,op,triton,gmm\nx,064,f,1.5,2\ny,128,d, 3 ,4e0\n")
    assert found.roles.keys == ("model", "M", "op")
    assert found.roles.compared == ("triton", "gmm")
    assert found.roles.baseline == "triton"
    assert found.frame["M"].tolist() == ["064", "128"]
    assert found.frame["triton"].tolist() == [1.5, 3.0]
    assert found.frame.index.tolist() == [1, 2]
    assert found.left_out.all() == []


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffop,a,b\nf,1,2\n",
        "op;a;b\r\nf;1;2\r\n",
        "op\ta\tb\nf\t1\t2\n",
        '"op","a","b"\n"f","1","2"\n',
        "\n\nop,a,b\n\n,,\nf,1,2\n   \n",
        " op , a , b \n f , 1 , 2 \n",
        '"op;x",a,b\nf,1,2\n',
    ],
)
def test_one_table_however_it_is_written(tmp_path, text):
    found = table(tmp_path, text)
    assert found.frame[["a", "b"]].to_numpy().tolist() == [[1.0, 2.0]]
    assert found.frame[found.roles.keys[0]].tolist() == ["f"]
    assert found.left_out.all() == []


def test_utf_16_and_gz_are_read(tmp_path):
    text = "op,a,b\nf,1,2\n"
    assert table(tmp_path, text, encoding="utf-16").frame["b"].tolist() == [2.0]
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert read(str(path), AskedColumns()).frame["b"].tolist() == [2.0]


def test_every_bad_cell_is_named_with_its_row_key_and_column_and_the_rest_is_read(tmp_path):
    bad = ["", "n/a", "0", "-3", "OOM", "nan", "inf", "1e300", "1,5", "1.5"]
    found = table(tmp_path, "op,a,b\n" + "".join(f'o{i},"{cell}",2\n' for i, cell in enumerate(bad)))
    assert found.frame["a"].notna().tolist() == [False] * 9 + [True]
    assert found.left_out.counts == {
        "missing cells": 3,
        "zeros": 1,
        "negative cells": 1,
        "cells of text": 2,
        "cells out of range": 2,
    }
    lines = found.left_out.all()
    assert lines[0] == "row 1 (op=o0), column 'a': there is no number; the cell is left out"
    assert lines[2] == "row 3 (op=o2), column 'a': 0 is no time and no rate, and has no ratio; the cell is left out"
    assert lines[3] == "row 4 (op=o3), column 'a': '-3' is negative, which no time and no rate is; the cell is left out"
    assert lines[4] == "row 5 (op=o4), column 'a': 'OOM' is not a number; the cell is left out"
    assert "'inf' is not finite" in lines[6]
    assert "'1e300' is outside 1e-150 to 1e+150" in lines[7]
    assert "'1,5' is not a number, as points and separators differ by country; write 1234.5" in lines[8]


def test_of_rows_with_the_same_key_the_first_counts(tmp_path):
    found = table(tmp_path, "op,M,a,b\nf,1,1,2\nf,2,3,4\nf,1,5,6\n")
    assert found.frame["a"].tolist() == [1.0, 3.0]
    assert found.left_out.all() == ["row 3 (op=f, M=1) repeats the key of row 1; the first counts"]


def test_rows_without_a_key_are_all_counted(tmp_path):
    found = table(tmp_path, "a,b\n1,2\n1,2\n")
    assert len(found.frame) == 2
    assert found.left_out.all() == []


def test_a_column_that_is_not_compared_still_tells_rows_apart(tmp_path):
    text = "op,chunk,a,b\nf,1,1,2\nf,2,3,4\n"
    found = table(tmp_path, text, AskedColumns(columns=("a", "b")))
    assert len(found.frame) == 2
    assert found.roles.unused == ("chunk",)


def test_headers_within_and_rows_of_another_length_are_named(tmp_path):
    found = table(tmp_path, "op,a,b\nf,1,2\nop,a,b\ng,3\nh,4,5,6\ni,7,8,,\n")
    assert found.frame["a"].tolist() == [1.0, 3.0, 7.0]
    assert said(found).splitlines()[:3] == [
        "row 2 is the header again; left out",
        "row 3 has 2 cells for 3 columns; the others count as empty",
        "row 4 has 4 cells for 3 columns; left out (is a comma within a cell? Quote it)",
    ]


def test_a_name_that_stands_twice_in_the_header_is_the_first_column(tmp_path):
    found = table(tmp_path, "op,a,b,a,\nf,1,2,9,8\n")
    assert found.frame["a"].tolist() == [1.0]
    assert found.roles.compared == ("a", "b", "column 5")
    assert said(found) == "column 'a' stands twice in the header, at 2 and 4; the first counts"


@pytest.mark.parametrize(
    ("header", "row", "keys", "compared"),
    [
        ("M,op,a,b", "1,f,2,3", ("M", "op"), ("a", "b")),
        ("op,M,N,a,b", "f,1,2,3,4", ("op", "M", "N"), ("a", "b")),
        ("a,b", "1,2", (), ("a", "b")),
        ("op,a,b,note", "f,1,2,slow", ("op", "note"), ("a", "b")),
        ("op,a,b,a/b", "f,1,2,0.500x", ("op",), ("a", "b")),
        ("year,op,a,b", "2026,f,2,3", ("year", "op"), ("a", "b")),
    ],
)
def test_which_columns_are_backends(tmp_path, header, row, keys, compared):
    found = table(tmp_path, f"{header}\n{row}\n").roles
    assert (found.keys, found.compared) == (keys, compared)


def test_backends_by_name(tmp_path):
    text = "op,a,b,c,d\nf,1,2,3,4\n"
    found = table(tmp_path, text, AskedColumns(columns=("c",), baseline="b", regret=(("d", ("a", "c")),))).roles
    assert found.compared == ("c", "b")
    assert found.backends == ("a", "b", "c", "d")
    assert found.keys == ("op",)
    grouped = table(tmp_path, text, AskedColumns(by=(("a",),))).roles
    assert grouped.keys == ("op", "a")


def test_a_backend_stands_for_its_only_quantity():
    header = ["op", "a: tflops", "b: tflops", "b: us"]
    assert AskedColumns(("a", "op"), "b: us", (("op",),), (("a", ("b: us",)),)).within(header) == AskedColumns(
        ("a: tflops", "op"), "b: us", (("op",),), (("a: tflops", ("b: us",)),)
    )
    with pytest.raises(TableFileError, match="there is no column 'b'; the columns are op, a: tflops, b: tflops, b: us"):
        AskedColumns(baseline="b").within(header)


@pytest.mark.parametrize(
    ("text", "asked", "sentence"),
    [
        ("", AskedColumns(), "is empty; a table has a header and one row for each case"),
        ("\ufeff\n \n", AskedColumns(), "is empty"),
        ("op,a,b\n", AskedColumns(), "has a header and no rows"),
        ("op,a,b\nop,a,b\n", AskedColumns(), "has a header and no rows"),
        ("op,model\nf,x\n", AskedColumns(), "no column of numbers was found among op, model; a comparison needs two"),
        ("op,a\nf,1\n", AskedColumns(), "only 'a' is a column of numbers among op, a"),
        ("op;a;b\nf;1,5;2,5\n", AskedColumns(), "'1,5' is not read as a number: write 1234.5"),
        ("op,a,b\nf,1,2\n", AskedColumns(("a",), "a"), "--columns and --baseline name 'a' only"),
        ("op,a,b\nf,1,2\n", AskedColumns(baseline="gm"), "there is no column 'gm'; the columns are op, a, b"),
        ("op,gmm,b\nf,1,2\n", AskedColumns(baseline="gmmm"), "did you mean 'gmm'?"),
        ("op,a,b\nf,1,2\n", AskedColumns(columns=("a", "x")), "there is no column 'x'"),
        ("op,a,b\nf,1,2\n", AskedColumns(by=(("oops",),)), "there is no column 'oops'"),
        (
            "op,a,b\nf,x,0\n",
            AskedColumns(baseline="a", columns=("b",)),
            "no row of .* has a number above 0 both in 'a'",
        ),
        ("op,a,b\nf,1,\ng,,2\n", AskedColumns(), "both in 'a' and in another column: row 2 .op=g., column 'a'"),
        ('op,a,b\n"f,1,2\n' + "x" * 1_000_001, AskedColumns(), "is a quote left open"),
        ("op,a,b\nf,\0,2\n", AskedColumns(), "is not a text file"),
    ],
)
def test_a_file_of_which_nothing_is_left_says_why(tmp_path, text, asked, sentence):
    with pytest.raises(TableFileError, match=sentence):
        table(tmp_path, text, asked)


def test_a_torn_gz_is_said(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"op,a,b\nf,1,2\n" * 100)[:40])
    with pytest.raises(TableFileError, match="damaged .gz"):
        read(str(path), AskedColumns())


def test_many_bad_cells_are_counted_and_some_are_named(tmp_path):
    rows = 40_000
    found = table(tmp_path, "op,a,b\n" + "".join(f"{i}x,{i + 1},{'OOM' if i % 2 else 5}\n" for i in range(rows)))
    bad = int((np.arange(rows) % 2 != 0).sum())
    assert found.left_out.counts == {"cells of text": bad}
    lines = found.left_out.all()
    assert len(lines) == LISTED + 1
    assert lines[-1] == f"and {bad - LISTED:,} more; in all {bad:,} cells of text"
