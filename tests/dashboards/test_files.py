"""The files of a site: safe inside a script, put in place whole, left alone where nothing changed."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import dashboards
from dashboards import files
from dashboards.files import MARKER, SiteError
from dashboards.table import PARTS, Column, Kind, Table
from tests.dashboards import node, synthetic
from tests.kit import HANGS_S


@pytest.mark.parametrize("text", synthetic.TEXTS)
def test_no_text_leaves_its_string_in_a_script(text):
    content = files.receive("a", {text: [text]}).decode()
    assert not any(character in content for character in "<>&\u2028\u2029\0")
    assert content.startswith('Ridgeline.receive("a",')
    inside = json.loads(content.removeprefix('Ridgeline.receive("a",').removesuffix(");\n"))
    plain = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").replace("\0", "\ufffd")
    assert {key.replace("\ufffd", "") for key in inside} == {plain.replace("\ufffd", "")}


def test_numbers_have_six_digits_and_holes_are_null():
    value = {"a": 1.23456789, "b": [float("nan"), float("inf")], "c": np.array([1.5, np.nan]), "d": np.float64(2.5)}
    assert files.script_json(value) == b'{"a":1.23457,"b":[null,null],"c":[1.5,null],"d":2.5}'


def test_a_site_is_replaced_whole_and_nothing_of_the_old_one_stays(tmp_path):
    out = tmp_path / "site"
    files.write(out, {"index.html": b"old", "data/gone.js": b"x"}, "one")
    files.write(out, {"index.html": b"new"}, "two")
    assert {path.name for path in out.rglob("*") if path.is_file()} == {"index.html", MARKER}
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert out.stat().st_mode & 0o777 == 0o777 & ~files._umask()


def test_a_folder_that_is_no_site_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SiteError, match="give an empty or new folder"):
        files.write(tmp_path, {"index.html": b""}, "")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_a_killed_build_left_is_put_back_or_removed(tmp_path):
    out = tmp_path / "site"
    files.write(out, {"index.html": b"old"}, "")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    out.rename(tmp_path / f".site{files.DRAFT}{dead.pid}-x.old")
    (tmp_path / f".site{files.DRAFT}{dead.pid}-y").mkdir()
    living = tmp_path / f".site{files.DRAFT}{os.getpid()}-z"
    living.mkdir()
    files._clear(out)
    assert (out / "index.html").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["site", living.name])


def test_a_site_stands_until_an_input_or_a_file_of_its_own_changes(tmp_path):
    results, out = tmp_path / "results", tmp_path / "site"
    results.mkdir()
    made_of = files.inputs(results)
    files.write(out, {"index.html": b"x"}, made_of)
    assert files.stands(out, files.inputs(results))
    (results / "new.json").write_text("{}")
    assert not files.stands(out, files.inputs(results))
    (out / "index.html").write_bytes(b"edited")
    assert not files.stands(out, made_of)


# Tables: one description gives the page's data and the CSV file.

STATIC = Path(dashboards.__file__).parent / "static"


def read(table):
    return list(csv.DictReader(io.StringIO(table.csv().decode())))


def test_a_column_gives_the_parts_of_its_kind():
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
def test_no_text_is_a_formula_of_a_spreadsheet(text):
    cell = read(Table("t", "", [Column("a", ""), Column("b", "")], [[text, "b"]]))[0]["a"]
    assert not cell.startswith(("=", "+", "-", "@", "\t"))


def test_the_script_shows_every_kind():
    script = (STATIC / "table.js").read_text()
    cells = script[script.index("const CELLS = {") : script.index("const NUMBERS")]
    assert set(get_args(Kind)) == set(re.findall(r"^    (\w+):", cells, re.M))
    assert set(PARTS) <= set(get_args(Kind))


# The charts of the pages: the committed script is what the locked packages and the bundle's script give.

ROOT = Path(__file__).parents[2]
BUNDLE, COMMITTED = ROOT / "dashboards" / "bundle", ROOT / "dashboards" / "static" / "echarts"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle's folder with its packages: those of `make bundle` if they are there, else freshly installed."""
    if (BUNDLE / "node_modules" / ".package-lock.json").exists():
        return BUNDLE
    return node.installed(BUNDLE, tmp_path_factory.mktemp("bundle") / "bundle")


@pytest.mark.slow
def test_the_committed_charts_are_what_the_locked_packages_give(bundle, tmp_path):
    subprocess.run(["node", "build.mjs", tmp_path], cwd=bundle, check=True, timeout=HANGS_S)
    made, kept = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in (tmp_path, COMMITTED))
    assert made.keys() == kept.keys()
    differing = [name for name in made if made[name] != kept[name]]
    assert differing == [], "run `make bundle` and commit what it writes"


def test_the_lock_pins_what_the_script_says_it_holds():
    wanted = json.loads((BUNDLE / "package.json").read_text())["devDependencies"]
    lock = json.loads((BUNDLE / "package-lock.json").read_text())
    packages = {name.removeprefix("node_modules/"): one for name, one in lock["packages"].items() if name}
    assert {name: packages[name]["version"] for name in wanted} == wanted
    assert all(one["integrity"].startswith("sha512-") for one in packages.values())
    assert not any("resolved" in one for one in packages.values()), "a lock names no host"
    head = (COMMITTED / "charts.min.js").read_text()[:200]
    assert re.findall(r"(ECharts|zrender) ([\d.]+)", head) == [
        ("ECharts", packages["echarts"]["version"]),
        ("zrender", packages["zrender"]["version"]),
    ]


def test_the_script_asks_for_nothing_and_runs_no_text():
    script = (COMMITTED / "charts.min.js").read_text()
    for word in ("http:", "https:", "new Function(", "eval(", "XMLHttpRequest", "fetch(", "import("):
        assert word not in script, word
