"""What is printed where there is no terminal: whole names, a line for each row, no escape codes, a line every 10 s."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci import LOG_WIDTH, VERBS, bars
from ci.options import out_console
from ci.report import terminal
from tests.ci.report import samples
from tests.kit import until

ROOT = Path(__file__).parents[2]
LONG = "gemm_all_scatter/" + "_".join(f"n{number}" for number in range(4096, 4116)) + "_fp16"


def table(names):
    made = Table("case", "why", "TFLOPS", box=None)
    for name in names:
        made.add_row(Text(name), Text("a sentence of many words " * 8), "412.7")
    return made


@pytest.mark.parametrize("columns", ["", "0", "wide", "90", "200"])
def test_a_row_of_a_log_is_one_line_with_its_name(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    out_console().print(table(["gemm/m64", "all_gather/64MB"]), style="bold red")
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["gemm/m64", "all_gather/64MB"]
    assert all(row.rstrip().endswith("412.7") for row in rows)
    assert all("a sentence of many words " * 8 in row for row in rows), "no cell is cut"
    assert "\x1b" not in "".join(rows)


def test_the_report_in_a_log_has_a_line_for_each_case():
    report = samples.slower()
    worse, *others = report.judgement.cases
    cases = (dataclasses.replace(worse, case=LONG), *others)
    report = dataclasses.replace(report, judgement=dataclasses.replace(report.judgement, cases=cases))
    out = io.StringIO()
    terminal.show(report, Console(file=out, width=LOG_WIDTH))
    [line] = [one for one in out.getvalue().splitlines() if one.strip().startswith(LONG)]
    assert "%" in line.removeprefix(f"  {LONG}")


@pytest.mark.slow
def test_a_verb_in_a_pipe_has_120_columns():
    program = [sys.executable, *VERBS]
    env = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run([*program, "--help"], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert "  check    The pull-request job: still right, slower, by how much, on which shapes.\n" in done.stdout
    narrow = subprocess.run(
        [*program, "--help"], cwd=ROOT, env=env | {"COLUMNS": "60"}, capture_output=True, text=True, check=True
    )
    assert max(map(len, narrow.stdout.splitlines())) <= 60
    replay = "tests/recordings/examples/one_percent.jsonl"
    told = subprocess.run([*program, "ab", "--replay", replay], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (told.returncode, "\x1b" in told.stdout) == (1, False)


def test_a_verb_runs_where_packages_have_the_names_of_ours(tmp_path):
    """`-m` puts the current folder first."""
    for name in ("benchmarks", "kernels", "dashboards"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('theirs')\n")
    line = [sys.executable, "-m", "ci", "adopt", "--help"]
    said = subprocess.run(
        line, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert (said.returncode, said.stderr) == (0, "")


def test_long_work_is_told_of_in_a_log(monkeypatch):
    assert bars.SAID_EVERY_S <= 10
    monkeypatch.setattr(bars, "SAID_EVERY_S", 0.05)
    out = io.StringIO()
    with bars.ProgressBars(Console(file=out, width=80), "run") as shown:
        until(lambda: out.getvalue().count("\n") >= 2)
        shown.show({"what": "gemm: rounds", "done": 3, "total": 8})
        until(lambda: out.getvalue().count("gemm: rounds") >= 2)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("run, ")
    assert lines[-1].startswith("gemm: rounds 3/8, ")
    time.sleep(0.15)
    assert out.getvalue().splitlines() == lines, "nothing is said once the work is done"
